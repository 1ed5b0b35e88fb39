"""The start of a run, new, resumed or joined by a worker."""

import json
import shutil
import subprocess
import sys

import pytest
from small_corpus import write_corpus, write_lines

import keras_transformer as kt
from keras_transformer import storage
from keras_transformer.runs import Finished, New, Run, prepare_recipe, training
from keras_transformer.runs.start import copy_pretrained
from keras_transformer.runs.training import begun, join


def begin(recipe, folder):
    """Writes what a training needs, and returns the run."""
    with begun(recipe, folder) as state:
        return state.run


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("training.seed", 7, "training.seed was 1 and is 7"),
        ("tokenizer.vocabulary_size", 31, "vocabulary_size was 29 and is 31"),
        ("data.target", "cc", "data.target was bb and is cc"),
    ],
)
def test_a_run_of_other_settings_is_refused(trained, load, name, value, message):
    with pytest.raises(ValueError, match=f"holds another model: .*{message}.*another"):
        begin(load(**{name: value}), trained.folder)


@pytest.mark.parametrize(
    ("name", "count", "split"), [("train", 53, "training"), ("val", 7, "validation")]
)
def test_a_run_of_other_text_stays_as_it_is(copy, load, tmp_path, name, count, split):
    folder = tmp_path / "text"
    folder.mkdir()
    write_corpus(folder)
    begin(load(**{"data.folder": str(folder)}), copy.folder)
    write_lines(folder / f"{name}.aa", ["ba ko"] * count)
    before = contents(copy.folder)
    with pytest.raises(ValueError, match=f"its {split} text was crc32:"):
        begin(load(**{"data.folder": str(folder)}), copy.folder)
    assert contents(copy.folder) == before


def test_text_that_only_moved_is_the_same(copy, load, tmp_path):
    write_corpus(tmp_path)
    recipe = load(**{"data.folder": str(tmp_path)})
    run = begin(recipe, copy.folder)
    assert run.settings == Run(copy.folder).settings
    assert run.settings.data == recipe.data


def test_a_folder_of_other_things_is_refused(load, tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    for place in (tmp_path, tmp_path / "thesis.tex"):
        with pytest.raises(
            ValueError, match="something other than a run. Choose a new"
        ):
            begin(load(), place)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_prepared_text_is_not_overwritten_by_a_run_of_it(load, tmp_path):
    prepare_recipe(load(), tmp_path / "text", num_shards=1)
    before = contents(tmp_path / "text")
    settings = {"data.prepared": str(tmp_path / "text"), "training.epochs": 1}
    with pytest.raises(
        ValueError, match="text holds prepared text. Choose a new folder"
    ):
        kt.runs.train(load(**settings), tmp_path / "text")
    assert contents(tmp_path / "text") == before


def test_a_run_that_is_being_trained_is_left_alone(load, tmp_path):
    begin(load(), tmp_path / "run")
    hold = (
        "import runpy\n"  # without the package, which loads TensorFlow
        f"locked = runpy.run_path({storage.__file__!r})['locked']\n"
        f"with locked({str(tmp_path / 'run')!r}):\n"
        "    print('locked', flush=True)\n"
        "    input()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", hold], **pipes) as process:
        assert process.stdout.readline() == "locked\n"
        before = contents(tmp_path / "run")
        with pytest.raises(
            BlockingIOError, match="Another process is writing to .*run. W"
        ):
            begin(load(), tmp_path / "run")
        assert contents(tmp_path / "run") == before
        process.communicate("\n")
    begin(load(), tmp_path / "run")


def test_a_run_that_another_process_trained_meanwhile_is_not_begun_anew(
    copy, load, tmp_path, monkeypatch
):
    """Reading the text of a new run may take hours, and its folder is locked then."""
    read = training.survey

    def survey(*files):
        shutil.copytree(copy.folder, tmp_path / "run")
        return read(*files)

    monkeypatch.setattr(training, "survey", survey)
    with begun(load(**{"training.epochs": 3}), tmp_path / "run") as state:
        assert isinstance(state, Finished)
    for name in ("tokenizers/shared.model", "log.csv", "checkpoints/best.keras"):
        found = (tmp_path / "run" / name).read_bytes()
        assert found == (copy.folder / name).read_bytes()


@pytest.mark.parametrize("resumes", [False, True])
def test_what_a_killed_process_left_is_removed(copy, load, tmp_path, resumes):
    run = copy if resumes else Run(tmp_path / "new")
    leftovers = [run.folder / ".unfinished-0", run.translator_path / ".unfinished-1"]
    if not resumes:
        leftovers.pop()
    for leftover in leftovers:
        leftover.mkdir(parents=True)
    begin(load(), run.folder)
    assert not any(leftover.exists() for leftover in leftovers)


def test_a_log_ends_where_training_resumes(copy, load, tmp_path):
    copy.checkpoints().paths()[-1].unlink()
    begin(load(), copy.folder)
    assert [row["epoch"] for row in copy.log.rows()] == ["1", "2"]
    run = begin(load(), tmp_path / "new")
    run.log.add({"epoch": 1})  # killed before the checkpoint of the epoch
    begin(load(), run.folder)
    assert run.log.rows() == []


def test_a_run_without_its_checkpoints_is_not_begun_anew(copy, load):
    """Its record tells that there have been some."""
    for name in ("checkpoints", "translator"):
        copy.folder.joinpath(name).rename(copy.folder / f"moved-{name}")
    before = contents(copy.folder)
    with pytest.raises(ValueError, match="no complete checkpoint to resume from"):
        begin(load(), copy.folder)
    assert contents(copy.folder) == before


def test_a_run_of_a_later_version_says_so(copy, load):
    record = json.loads(copy.record_path.read_text())
    record["versions"]["keras-transformer"] = "7.1.0"
    copy.record_path.write_text(json.dumps(record))
    text = copy.settings_path.read_text()
    copy.settings_path.write_text(text.replace("seed: 1", "seed: 1\n  magic: 3"))
    message = "version 7.1.0 of keras-transformer, and this is .*`training.magic`"
    with pytest.raises(ValueError, match=message):
        begin(load(), copy.folder)
    assert Run(copy.folder).translator().translate([""]) == [""]
    checkpoint = copy.folder / "checkpoints" / "best.keras"
    assert Run(copy.folder).translator(checkpoint).translate([""]) == [""]
    copy.record_path.write_text(json.dumps({**record, "format": 9, "more": 1}))
    with pytest.raises(ValueError, match=r"version 7.1.0 of keras-transformer.*\.$"):
        begin(load(), copy.folder)
    assert Run(copy.folder).translator().translate([""]) == [""]


def test_before_the_first_checkpoint_settings_may_change(tmp_path, load):
    changed = load(**{"tokenizer.vocabulary_size": 31, "tokenizer.shared": False})
    for recipe in (load(), changed):
        with begun(recipe, tmp_path / "run") as state:
            assert isinstance(state, New)
            run = state.run
    names = {path.name for path in run.tokenizers_path.iterdir()}
    assert names == {"source.model", "target.model"}
    source, target = run.tokenizers()
    assert source.vocabulary_size == target.vocabulary_size == 31
    assert source.model_proto != target.model_proto


def test_a_recipe_may_ask_for_bytes(tmp_path, load):
    recipe = load(**{"tokenizer.byte_fallback": True, "tokenizer.vocabulary_size": 281})
    run = begin(recipe, tmp_path / "run")
    tokenizer, _ = run.tokenizers()
    assert tokenizer.detokenize(tokenizer(["中é"])).numpy()[0].decode() == "中é"


def test_a_tag_of_the_text_is_one_subword(tmp_path, load, text):
    folder = tmp_path / "text"
    folder.mkdir()
    write_corpus(folder)
    recipe = load(
        **{
            "data.folder": str(folder),
            "data.train.tag": "<bt>",
            "tokenizer.vocabulary_size": 31,
            "training.max_length": 30,
        }
    )
    tokenizer, _ = begin(recipe, tmp_path / "run").tokenizers()
    [subwords] = tokenizer.split(["<bt> ba ko"]).numpy()
    assert b"<bt>" in subwords
    assert tokenizer.unknown_id not in tokenizer(["<bt> ba ko"]).numpy()


def test_another_worker_joins_the_same_run_only(copy, load, tmp_path):
    assert join(load(), copy.folder).epoch == 3
    with pytest.raises(ValueError, match="training.seed was 1 and is 7"):
        join(load(**{"training.seed": 7}), copy.folder)
    with pytest.raises(FileNotFoundError, match="must share the folder"):
        join(load(), tmp_path / "other")
    write_corpus(tmp_path)
    write_lines(tmp_path / "train.aa", ["ba ko"] * 53)
    with pytest.raises(ValueError, match="its training text was crc32:"):
        join(load(**{"data.folder": str(tmp_path)}), copy.folder)


# From a pretrained translator


@pytest.mark.quick("tokenizer.vocabulary_size-31", "tokenizer.model_type-bpe")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tokenizer.vocabulary_size", 31),
        ("tokenizer.shared", False),
        ("tokenizer.split_digits", True),
        ("tokenizer.model_type", "bpe"),  # a default, but written down
        ("model.num_layers", 3),
        ("model.preset", "big"),
        ("model.preset", "base"),
        ("model.activation", "gelu"),
    ],
)
def test_settings_that_do_not_agree_are_named(trained, load, name, value, tmp_path):
    run = Run(tmp_path / "run")
    wrong = "model.num_layers" if name == "model.preset" else name
    settings = {"model.num_layers": None} if name == "model.preset" else {}
    with pytest.raises(ValueError, match=f"`{wrong}` must be"):
        copy_pretrained(trained.folder, load(**settings, **{name: value}), run)
    assert not run.pretrained_path.exists()


def test_an_activation_agrees_by_any_of_its_names(trained, load, tmp_path):
    translator = trained.translator()
    config = translator.model.get_config() | {"activation": "silu"}
    model = kt.models.Transformer.from_config(config)
    kt.Translator(model, translator.source_tokenizer).save(tmp_path / "silu")
    for activation in ("silu", "swish"):
        run = Run(tmp_path / activation)
        recipe = load(**{"model.activation": activation})
        copy_pretrained(tmp_path / "silu", recipe, run)
        assert run.pretrained_path.is_dir()


def test_a_start_that_was_given_up_leaves_nothing_of_its_translator(
    trained, load, tmp_path
):
    recipe = load(**{"model.pretrained": str(trained.folder)})
    run = begin(recipe, tmp_path / "run")
    assert run.pretrained_path.is_dir()
    begin(load(), run.folder)
    assert not run.pretrained_path.exists()


def test_a_translator_that_is_not_there_is_named(load, tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere is not a folder"):
        copy_pretrained(tmp_path / "nowhere", load(), Run(tmp_path / "run"))
