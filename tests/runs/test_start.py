"""The start of a run, new, resumed or joined by a worker."""

import pytest
from small_corpus import write_corpus, write_lines

import keras_transformer as kt
from keras_transformer.runs import Run
from keras_transformer.runs.start import (
    begin,
    check_new,
    copy_pretrained,
    join,
    resumed,
)


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
        resumed(load(**{name: value}), trained)


def test_a_run_of_other_text_stays_as_it_is(copy, load, tmp_path):
    write_corpus(tmp_path)
    write_lines(tmp_path / "train.aa", ["ba ko"] * 53)
    before = contents(copy.folder)
    with pytest.raises(ValueError, match="its training text was crc32:"):
        begin(load(**{"data.folder": str(tmp_path)}), copy, 3)
    assert contents(copy.folder) == before


def test_text_that_only_moved_is_the_same(copy, load, tmp_path):
    write_corpus(tmp_path)
    recipe = load(**{"data.folder": str(tmp_path)})
    begin(recipe, copy, 3)
    assert copy.recipe == Run(copy.folder).recipe == recipe


def test_a_folder_of_other_things_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    for place in (tmp_path, tmp_path / "thesis.tex"):
        with pytest.raises(ValueError, match="something other than a run. Name a new"):
            check_new(Run(place))


@pytest.mark.parametrize("resumes", [False, True])
def test_what_a_killed_process_left_is_removed(copy, load, tmp_path, resumes):
    run = copy if resumes else Run(tmp_path / "new")
    leftovers = [run.folder / ".unfinished-0", run.translator_path / ".unfinished-1"]
    if not resumes:
        leftovers.pop()
    for leftover in leftovers:
        leftover.mkdir(parents=True)
    check_new(run)
    begin(load(), run, 3 * resumes)
    assert not any(leftover.exists() for leftover in leftovers)


def test_a_log_ends_where_training_resumes(copy, load, tmp_path):
    begin(load(), copy, 2)
    assert [row["epoch"] for row in copy.log.rows()] == ["1", "2"]
    run = Run(tmp_path / "new")
    run.log.add({"epoch": 1})  # killed before the checkpoint of the epoch
    begin(load(), run, 0)
    assert run.log.rows() == []


def test_before_the_first_checkpoint_settings_may_change(tmp_path, load):
    run = Run(tmp_path / "run")
    begin(load(), run, 0)
    changed = load(**{"tokenizer.vocabulary_size": 31, "tokenizer.shared": False})
    check_new(run)
    begin(changed, run, 0)
    names = {path.name for path in run.tokenizers_path.iterdir()}
    assert names == {"source.model", "target.model"}
    source, target = run.tokenizers()
    assert source.vocabulary_size == target.vocabulary_size == 31
    assert source.model_proto != target.model_proto


def test_a_recipe_may_ask_for_bytes(tmp_path, load):
    run = Run(tmp_path / "run")
    recipe = load(**{"tokenizer.byte_fallback": True, "tokenizer.vocabulary_size": 281})
    begin(recipe, run, 0)
    tokenizer, _ = run.tokenizers()
    assert tokenizer.detokenize(tokenizer(["中é"])).numpy()[0].decode() == "中é"


def test_a_tag_of_the_text_is_one_subword(tmp_path, load, text):
    run, folder = Run(tmp_path / "run"), tmp_path / "text"
    folder.mkdir()
    write_corpus(folder)
    recipe = load(
        **{
            "data.folder": str(folder),
            "data.train.tag": "<bt>",
            "tokenizer.vocabulary_size": 31,
        }
    )
    begin(recipe, run, 0)
    tokenizer, _ = run.tokenizers()
    [subwords] = tokenizer.split(["<bt> ba ko"]).numpy()
    assert b"<bt>" in subwords
    assert tokenizer.unknown_id not in tokenizer(["<bt> ba ko"]).numpy()


def test_another_worker_joins_the_same_run_only(copy, load, tmp_path):
    join(load(), copy)
    assert copy.recipe == load()
    with pytest.raises(ValueError, match="training.seed was 1 and is 7"):
        join(load(**{"training.seed": 7}), copy)
    with pytest.raises(FileNotFoundError, match="must share the folder"):
        join(load(), Run(tmp_path / "other"))
    write_corpus(tmp_path)
    write_lines(tmp_path / "train.aa", ["ba ko"] * 53)
    with pytest.raises(ValueError, match="its training text was crc32:"):
        join(load(**{"data.folder": str(tmp_path)}), copy)


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
    run = Run(tmp_path / "run")
    begin(load(**{"model.pretrained": str(trained.folder)}), run, 0)
    assert run.pretrained_path.is_dir()
    begin(load(), run, 0)
    assert not run.pretrained_path.exists()


def test_a_translator_that_is_not_there_is_named(load, tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere is not a folder"):
        copy_pretrained(tmp_path / "nowhere", load(), Run(tmp_path / "run"))
