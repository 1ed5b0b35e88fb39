"""Prepared text: written once for many runs."""

import json
import random
import shutil
import time

import pytest
from forked import CONTEXT
from same_runs import assert_same_end
from small_corpus import sentences, write_corpus, write_lines

from keras_transformer.runs import Run, prepare_recipe, train
from keras_transformer.runs.preparing import open_prepared
from keras_transformer.runs.recipe import settings_of
from keras_transformer.runs.survey import survey


@pytest.fixture(scope="module")
def prepared(load, tmp_path_factory):
    """Prepared text of the small corpus; copy it rather than change it."""
    folder = tmp_path_factory.mktemp("prepared") / "text"
    prepare_recipe(load(), folder, num_shards=3)
    return folder


@pytest.fixture
def own_text(tmp_path):
    """The small corpus in a folder that may change."""
    folder = tmp_path / "own"
    folder.mkdir()
    write_corpus(folder)
    return folder


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_training_reads_prepared_text_without_the_text(prepared, load, tmp_path):
    validation = tmp_path / "only-validation"
    validation.mkdir()
    write_corpus(validation)
    (validation / "train.aa").unlink()
    settings = {"data.prepared": str(prepared), "data.folder": str(validation)}
    _, size = open_prepared(load(**settings))
    manifest = json.loads((prepared / "ids" / "manifest.json").read_text())
    written = sum(sum(shard["pairs"]) for shard in manifest["shards"])
    left_out = sum(shard["duplicates"] for shard in manifest["shards"])
    whole = survey(*load().data.check_files("train")).size
    assert size.pairs == written == whole.pairs - left_out
    assert size.words == round(whole.words * written / whole.pairs)


def test_a_text_of_duplicates_is_as_long_as_what_is_left(load, own_text, tmp_path):
    """Its epochs have half the batches, so the same training has twice as many."""
    for side in ("aa", "bb"):
        lines = sentences(53, side == "bb")
        write_lines(own_text / f"train.{side}", lines)
        write_lines(own_text / f"twice.{side}", lines * 2)
    free = {"training.epochs": None, "training.passes_per_epoch": None}
    free |= {"tokenizer.vocabulary_size": 29, "data.folder": str(own_text)}
    found = []
    for name in ("train", "twice"):
        files = {f"data.train.{x}": f"{name}.{{{x}}}" for x in ("source", "target")}
        folder = tmp_path / name
        prepare_recipe(load(**free, **files), folder, num_shards=1)
        prepared = {"data.prepared": str(folder)}
        found.append(settings_of(*open_prepared(load(**free, **files, **prepared))))
    assert found[0].training == found[1].training


@pytest.mark.slow
def test_what_follows_from_the_text_follows_from_prepared_text(load, tmp_path):
    free = {"tokenizer.vocabulary_size": None, "training.epochs": None}
    prepare_recipe(load(**free), tmp_path / "text")
    prepared = load(**free, **{"data.prepared": str(tmp_path / "text")})
    found = settings_of(*open_prepared(prepared))
    expected = settings_of(load(**free), survey(*load().data.check_files("train")).size)
    adjusted = Run(tmp_path / "text").tokenizers()[0].vocabulary_size
    assert found.tokenizer.vocabulary_size == adjusted
    assert found.training == expected.training


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("training.max_length", 17, "training.max_length was 16 and is 17"),
        ("tokenizer.shared", False, "tokenizer.shared was True and is False"),
        ("data.train.tag", "<bt>", "data.train.tag was  and is <bt>"),
    ],
)
def test_prepared_text_of_other_settings_is_refused(
    prepared, load, tmp_path, name, value, message
):
    message = f"was prepared with other settings: {message}. Prepare the text into"
    before = contents(prepared)
    with pytest.raises(ValueError, match=message):
        prepare_recipe(load(**{name: value}), prepared, num_shards=3)
    recipe = load(**{name: value, "data.prepared": str(prepared)})
    with pytest.raises(ValueError, match=message):
        train(recipe, tmp_path / "run")
    assert contents(prepared) == before


def test_settings_without_influence_on_ids_may_differ(prepared, load, tmp_path):
    other = {"training.seed": 7, "training.tokens_per_batch": 256}
    prepare_recipe(load(**other, **{"tokenizer.sampling": 0.1}), prepared, num_shards=3)
    recipe = load(**other, **{"data.prepared": str(prepared)})
    assert open_prepared(recipe)[0] == recipe
    with pytest.raises(
        ValueError, match="`tokenizer.sampling` must be 0 with `data.pr"
    ):
        load(**{"tokenizer.sampling": 0.1, "data.prepared": str(prepared)})


@pytest.mark.slow
def test_text_that_has_changed_is_noticed(load, own_text, tmp_path):
    where = {"data.folder": str(own_text)}
    prepare_recipe(load(**where), tmp_path / "text", num_shards=3)
    for side in ("aa", "bb"):
        path = own_text / f"train.{side}"
        path.write_text(path.read_text().replace("ba", "ko").replace("ab", "ok"))
    with pytest.raises(ValueError, match="text/ids holds other ids: `text` was crc32:"):
        prepare_recipe(load(**where), tmp_path / "text", num_shards=3)
    recipe = load(**where, **{"data.prepared": str(tmp_path / "text")})
    with pytest.raises(ValueError, match="was prepared from text crc32:"):
        train(recipe, tmp_path / "run")


def test_a_run_and_other_things_are_not_overwritten(copy, load, tmp_path):
    before = contents(copy.folder)
    with pytest.raises(ValueError, match="copy holds a run. Choose a new folder"):
        prepare_recipe(load(**{"training.epochs": 3}), copy.folder)
    assert contents(copy.folder) == before
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(ValueError, match="something other than a run. Choose a new"):
        prepare_recipe(load(), tmp_path)


@pytest.mark.slow
def test_an_interrupted_one_is_no_text_to_train_on(prepared, load, tmp_path):
    folder = tmp_path / "text"
    shutil.copytree(prepared, folder)
    manifest = json.loads((folder / "ids" / "manifest.json").read_text())
    manifest["shards"].pop()
    (folder / "ids" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="ids holds 2 of 3 shards. Repeat `prepare`"):
        train(load(**{"data.prepared": str(folder)}), tmp_path / "run")
    prepare_recipe(load(), folder, num_shards=3)
    found = {path.name: data for path, data in contents(folder / "ids").items()}
    assert found == {x.name: data for x, data in contents(prepared / "ids").items()}


@pytest.mark.slow
def test_one_that_is_killed_again_and_again_writes_the_same_files(
    load, own_text, tmp_path
):
    for seed, side in enumerate(("aa", "bb")):
        write_lines(own_text / f"train.{side}", sentences(9973, seed))
    recipe, shards = load(**{"data.folder": str(own_text)}), 97
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    prepare_recipe(recipe, whole, shards)
    draw, start = random.Random(5), time.monotonic()

    def written():
        return set((killed / "ids").glob("train-*"))

    for moment in (0.1, 0.4, None, None, None):  # None is after the next shard
        process = CONTEXT.Process(target=prepare_recipe, args=(recipe, killed, shards))
        before = written()
        process.start()
        while moment is None and process.is_alive() and written() == before:
            process.join(0.001)
            assert time.monotonic() - start < 600
        process.join(draw.uniform(0, 0.02) if moment is None else moment)
        process.kill()
        process.join()
        assert process.exitcode == -9, "it ended too soon"
    prepare_recipe(recipe, killed, shards)
    found, wanted = (
        {str(path.relative_to(folder)): data for path, data in contents(folder).items()}
        for folder in (killed, whole)
    )
    assert found == wanted


@pytest.mark.slow
def test_a_resumed_training_ends_as_an_uninterrupted_one(prepared, load, tmp_path):
    recipe = {"data.prepared": str(prepared), "training.bleu_every": None}
    whole = train(load(**recipe, **{"training.epochs": 3}), tmp_path / "whole")
    run = Run(tmp_path / "run")
    train(load(**recipe, **{"training.epochs": 1}), run.folder)
    run = train(load(**recipe, **{"training.epochs": 3}), run.folder)
    assert_same_end(run, whole, epochs=3)
    # The text itself would give other batches.
    settings = {"training.bleu_every": None, "training.epochs": 4}
    with pytest.raises(ValueError, match="its training text was ids of crc32:"):
        train(load(**settings), run.folder)
