"""A recipe without a validation text: pairs are held out of the training text."""

import gc
import gzip
import json

import pytest
from small_corpus import SETTINGS, sentences, write_lines, write_recipe
from typer.testing import CliRunner

from keras_transformer.cli import app
from keras_transformer.runs import Recipe, Resumable, Run, prepare_recipe, train
from keras_transformer.runs.survey import Survey
from keras_transformer.runs.training import _training_text, begun, join
from keras_transformer.text import parallel_dataset, prepared_dataset, read_lines
from keras_transformer.text_files import TextFile, pair_hash, read_pairs

PAIRS = 211
SMALL = {
    **{f"model.{name}": value for name, value in SETTINGS["model"].items()},
    **{f"training.{name}": value for name, value in SETTINGS["training"].items()},
    "training.bleu_every": None,
    "tokenizer.vocabulary_size": 29,
}


@pytest.fixture
def two_files(tmp_path):
    """A recipe of two files alone; every other pair is in them twice."""
    lines = list(dict.fromkeys(sentences(2 * PAIRS, seed=7)))[:PAIRS]
    lines += lines[::2]
    write_lines(tmp_path / "train.aa", lines)
    write_lines(tmp_path / "train.bb", [line[::-1] for line in lines])
    data = {"source": "aa", "target": "bb"}
    data["train"] = {"source": "train.{source}", "target": "train.{target}"}
    data["folder"] = str(tmp_path)
    path = write_recipe(tmp_path / "recipe.yaml", {"data": data})
    return lambda **settings: Recipe.load(path, {**SMALL, **settings})


def begin(recipe, folder):
    with begun(recipe, folder) as state:
        return state.run


def validation(run):
    return list(
        zip(
            *(read_lines(x) for [x] in run.validation_files(run.settings.data)),
            strict=True,
        )
    )


def read_back(dataset, tokenizer):
    """Returns the set of pairs that a dataset of batches holds."""
    pairs = set()
    for inputs, labels in dataset:
        sides = (
            tokenizer.detokenize(x).numpy() for x in (inputs["source_ids"], labels)
        )
        pairs |= {(a.decode(), b.decode()) for a, b in zip(*sides, strict=True)}
    return pairs - {("", "")}


def test_a_twentieth_is_held_out_and_not_trained_on(two_files, tmp_path, capsys):
    run = begin(two_files(), tmp_path / "run")
    held_out = validation(run)
    assert len(held_out) == len(set(held_out)) == PAIRS // 20
    [line] = [x for x in capsys.readouterr().out.splitlines() if "eld out" in x]
    assert line.startswith(f"Held out {PAIRS // 20} of 317 pairs for validation")
    tokenizer, _ = run.tokenizers()
    trained_on = read_back(parallel_dataset(**_training_text(run)), tokenizer)
    assert len(trained_on) == PAIRS - len(held_out)
    assert not trained_on & set(held_out)


def test_a_training_does_not_keep_the_lines_it_began_with(two_files, tmp_path):
    with begun(two_files(), tmp_path / "run"):
        gc.collect()
        assert not any(isinstance(x, Survey) for x in gc.get_objects())


@pytest.mark.slow
def test_a_pair_is_held_out_in_both_directions(two_files, tmp_path):
    both = {"source": ["train.aa", "train.bb"], "target": ["train.bb", "train.aa"]}
    run = begin(two_files(**{"data.train": both}), tmp_path / "run")
    tokenizer, _ = run.tokenizers()
    trained_on = read_back(parallel_dataset(**_training_text(run)), tokenizer)
    held_out = {frozenset(pair) for pair in validation(run)}
    assert held_out
    assert not held_out & {frozenset(pair) for pair in trained_on}


def test_a_space_before_a_text_is_no_tag(tmp_path):
    """What is held out by its hash is what reading leaves out."""
    pairs = [(f" ba {number}", f"ko {number}") for number in range(53)]
    write_lines(tmp_path / "a", [source for source, _ in pairs])
    write_lines(tmp_path / "b", [target for _, target in pairs])
    least = sorted(pair_hash(*pair) for pair in pairs)[11]
    file = TextFile(tmp_path / "a", min_hash=least)
    read = {pair[:2] for pair in read_pairs([(file, TextFile(tmp_path / "b"))])}
    assert read == {pair for pair in pairs if pair_hash(*pair) >= least}


def test_a_pair_is_held_out_under_every_tag(two_files, tmp_path):
    sides = {"source": "train.aa", "target": "train.bb"}
    texts = {"data.train": [sides, {**sides, "tag": "<bt>"}]}
    texts["training.max_length"] = 32
    run = begin(two_files(**texts), tmp_path / "run")
    tokenizer, _ = run.tokenizers()
    trained_on = read_back(parallel_dataset(**_training_text(run)), tokenizer)
    assert any(source.startswith("<bt> ") for source, _ in trained_on)
    trained_on = {(source.removeprefix("<bt> "), y) for source, y in trained_on}
    held_out = {(source.removeprefix("<bt> "), y) for source, y in validation(run)}
    assert held_out
    assert not trained_on & held_out


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gzip", "csv"])
def test_the_same_pairs_are_held_out_of_files_of_any_kind(two_files, tmp_path, kind):
    sides = [(tmp_path / f"train.{x}").read_text() for x in ("aa", "bb")]
    if kind == "gzip":
        for name, text in zip(("aa", "bb"), sides, strict=True):
            (tmp_path / f"train.{name}.gz").write_bytes(gzip.compress(text.encode()))
        files = {"source": "train.{source}.gz", "target": "train.{target}.gz"}
    else:
        rows = zip(*map(str.splitlines, sides), strict=True)
        write_lines(tmp_path / "train.csv", map(",".join, [("aa", "bb"), *rows]))
        files = "train.csv"
    plain = begin(two_files(), tmp_path / "plain")
    run = begin(two_files(**{"data.train": files}), tmp_path / "run")
    held_out = validation(run)
    assert held_out == validation(plain)
    tokenizer, _ = run.tokenizers()
    trained_on = read_back(parallel_dataset(**_training_text(run)), tokenizer)
    pairs = zip(*map(str.splitlines, sides), strict=True)
    assert trained_on == {*pairs} - {*held_out}


@pytest.mark.slow
def test_a_run_goes_on_with_the_pairs_that_it_held_out(two_files, tmp_path):
    run = train(two_files(**{"training.epochs": 1}), tmp_path / "run")
    held_out = validation(run)
    with begun(two_files(**{"training.epochs": 2}), run.folder) as state:
        assert isinstance(state, Resumable)
        assert validation(state.run) == held_out
        assert state.run.record.min_hash == run.record.min_hash > 0
    joined = join(two_files(**{"training.epochs": 2}), run.folder)
    assert validation(joined.run) == held_out
    assert float(run.log.rows()[0]["val_loss"]) > 0
    arguments = ["evaluate", str(run.folder), "--split", "validation"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.stderr
    assert f"{len(held_out)} sentences in" in result.stdout
    write_lines(run.folder / "validation.source", ["ba"] * len(held_out))
    with pytest.raises(ValueError, match="its validation text was crc32:"):
        begin(two_files(**{"training.epochs": 2}), run.folder)


@pytest.mark.slow
def test_prepared_ids_hold_out_the_same_pairs(two_files, tmp_path):
    prepare_recipe(two_files(), tmp_path / "ids", num_shards=2)
    recipe = two_files(**{"data.prepared": str(tmp_path / "ids")})
    for name in ("aa", "bb"):
        (tmp_path / f"train.{name}").rename(tmp_path / f"moved.{name}")
    run = begin(recipe, tmp_path / "run")
    for name in ("aa", "bb"):
        (tmp_path / f"moved.{name}").rename(tmp_path / f"train.{name}")
    assert validation(run) == validation(begin(two_files(), tmp_path / "plain"))
    tokenizer, _ = run.tokenizers()
    trained_on = read_back(prepared_dataset(tmp_path / "ids" / "ids", 128), tokenizer)
    assert len(trained_on) == PAIRS - PAIRS // 20
    assert not trained_on & set(validation(run))


def test_of_few_pairs_some_are_held_out_and_of_one_none(two_files, tmp_path):
    for name in ("aa", "bb"):
        write_lines(tmp_path / f"train.{name}", sentences(7, seed=3))
    assert len(validation(begin(two_files(), tmp_path / "run"))) == 3
    for name in ("aa", "bb"):
        write_lines(tmp_path / f"train.{name}", sentences(1, seed=3))
    with pytest.raises(ValueError, match="`data.validation` must name a text"):
        begin(two_files(), tmp_path / "other")


def test_a_named_validation_text_is_kept_and_nothing_held_out(trained):
    assert trained.record.min_hash == 0
    assert not list(trained.folder.glob("validation.*"))
    record = json.loads(trained.record_path.read_text())
    assert Run(trained.folder).record.validation_text == record["validation_text"]
