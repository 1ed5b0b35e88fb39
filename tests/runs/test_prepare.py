import pytest
from small_corpus import write_corpus, write_lines

from keras_transformer.runs import Run, train
from keras_transformer.runs.prepare import begin_run, join_run


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
def test_a_run_of_other_settings_stays_as_it_is(copy, load, name, value, message):
    before = contents(copy.folder)
    with pytest.raises(ValueError, match=f"holds another model: .*{message}.*another"):
        begin_run(load(**{name: value}), copy)
    assert contents(copy.folder) == before


def test_a_run_of_other_text_stays_as_it_is(copy, load, tmp_path):
    write_corpus(tmp_path)
    write_lines(tmp_path / "train.aa", ["ba ko"] * 53)
    with pytest.raises(ValueError, match="its training text was crc32:"):
        begin_run(load(**{"data.folder": str(tmp_path)}), copy)


def test_text_that_only_moved_is_the_same(copy, load, tmp_path):
    write_corpus(tmp_path)
    begin_run(load(**{"data.folder": str(tmp_path)}), copy)
    assert copy.recipe().data.folder == str(tmp_path)


def test_a_folder_of_other_things_stays_as_it_is(tmp_path, load):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(ValueError, match="something other than a run. Name a new"):
        begin_run(load(), Run(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_run_begins_where_another_was_killed_as_it_began(tmp_path, load):
    (tmp_path / ".unfinished-0").mkdir()
    begin_run(load(), Run(tmp_path))
    assert not (tmp_path / ".unfinished-0").exists()


def test_what_a_killed_process_left_in_a_run_is_removed(copy, load):
    folders = copy.translator_path, copy.diversification_path
    leftovers = [folder / ".unfinished-0" for folder in folders]
    for leftover in leftovers:
        leftover.mkdir(parents=True)
    begin_run(load(), copy)
    assert not any(leftover.exists() for leftover in leftovers)


def test_a_file_is_no_run(tmp_path, load):
    (tmp_path / "file").write_text("precious")
    with pytest.raises(ValueError, match="something other than a run"):
        begin_run(load(), Run(tmp_path / "file"))


def test_before_the_first_checkpoint_settings_may_change(tmp_path, load):
    run = Run(tmp_path / "run")
    begin_run(load(), run)
    changed = load(**{"tokenizer.vocabulary_size": 31, "tokenizer.shared": False})
    begin_run(changed, run)
    names = {path.name for path in run.tokenizers_path.iterdir()}
    assert names == {"source.model", "target.model"}
    source, target = run.tokenizers()
    assert source.vocabulary_size == target.vocabulary_size == 31
    assert source.model_proto != target.model_proto


def test_a_recipe_may_ask_for_bytes(tmp_path, load):
    run = Run(tmp_path / "run")
    recipe = {"tokenizer.byte_fallback": True, "tokenizer.vocabulary_size": 281}
    begin_run(load(**recipe), run)
    for tokenizer in run.tokenizers():
        assert tokenizer.detokenize(tokenizer(["中é"])).numpy()[0].decode() == "中é"


def test_a_missing_file_makes_no_folder(tmp_path, load):
    with pytest.raises(FileNotFoundError):
        begin_run(load(**{"data.train.source": "none"}), Run(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_another_worker_joins_the_same_run_only(copy, load, tmp_path):
    join_run(load(), copy)
    with pytest.raises(ValueError, match="training.seed was 1 and is 7"):
        join_run(load(**{"training.seed": 7}), copy)
    with pytest.raises(FileNotFoundError, match="must share the folder"):
        join_run(load(), Run(tmp_path / "other"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"model.preset": "small"},
            "`model.preset` must be one of tiny, base, big",
        ),
        ({"training.optimizer": "sgd"}, "must be adam or muon. Received: 'sgd'"),
        ({"training.best": "val_bleu", "training.bleu_every": 3}, "epochs=2"),
        ({"training.rdrop": 5, "training.simcut": 3}, "Only one of .* may be set"),
        ({"training.rdrop": 5, "training.teachers": "a"}, r"teachers=\['a'\]"),
    ],
)
def test_settings_that_cannot_be_are_reported_before_anything_is_written(
    load, tmp_path, settings, message
):
    with pytest.raises(ValueError, match=message):
        train(load(**settings), tmp_path / "run")
    assert not (tmp_path / "run").exists()
