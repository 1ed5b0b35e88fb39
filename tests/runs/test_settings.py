"""Settings that follow from the size of the training text."""

import re

import numpy as np
import pytest
import tensorflow as tf
from small_corpus import SETTINGS, write_lines, write_recipe

from keras_transformer.datasets import locale_phrases
from keras_transformer.runs import Recipe, Run, train
from keras_transformer.runs.recipe import names_from_text, settings_of
from keras_transformer.runs.run import Finished, Resumable
from keras_transformer.runs.settings import TextSize
from keras_transformer.runs.survey import survey
from keras_transformer.runs.training import begun, table_of, unigram_perplexity
from keras_transformer.text import SubwordTokenizer, parallel_dataset

SIZES = [  # of few words and of many, of one alphabet and of another
    TextSize(pairs, pairs * words, characters)
    for pairs in (1, 300, 2000, 29_000, 10**6, 10**8)
    for words, characters in ((6, 61), (50, 61), (24, 7919))
]
NAMED = {
    "tokenizer.vocabulary_size": 307,
    "model.preset": "big",
    "model.dropout": 0.0,
    "training.epochs": 11,
    "training.passes_per_epoch": 3,
    "training.tokens_per_batch": 1009,
    "training.optimizer": "adam",
    "training.learning_rate": 1e-5,
    "training.warmup_steps": 7,
    "training.cooldown_epochs": 0,
}


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """Function from settings to the recipe that names only its files and these."""
    path = tmp_path_factory.mktemp("bare") / "bare.yaml"
    write_recipe(path, {"data": SETTINGS["data"]})
    return lambda **settings: Recipe.load(path, settings)


def found_in(settings):
    """The settings that follow from the text, by their names."""
    return {name: settings.get(name) for name in names_from_text()}


@pytest.mark.parametrize("size", SIZES)
def test_every_setting_has_a_number_that_trains(bare, size):
    recipe = settings_of(bare(), size)
    assert 5 <= recipe.tokenizer.vocabulary_size <= max(32_000, 1.2 * 7919 + 20)
    assert recipe.tokenizer.vocabulary_size >= size.characters
    training = recipe.training
    assert training.max_length <= training.tokens_per_batch <= 16_384
    assert 1e-4 <= training.learning_rate <= 6e-3
    assert 0 <= training.cooldown_epochs < training.epochs <= 1000
    # Half of the steps, at least, are beyond the warm-up.
    tokens = 12 * size.pairs * training.epochs * training.passes_per_epoch
    assert training.warmup_steps <= max(1, tokens / training.tokens_per_batch / 2)


def test_more_text_means_more_of_everything_but_passes(bare):
    names = ["vocabulary_size", "tokens_per_batch", "warmup_steps"]
    small = None
    for pairs in (300, 2000, 20_000, 200_000, 2_000_000):
        found = found_in(settings_of(bare(), TextSize(pairs, 24 * pairs, 61)))
        large = {name.split(".")[1]: value for name, value in found.items()}
        large["passes"] = large["passes_per_epoch"] * large["epochs"]
        if small:
            assert all(large[name] >= small[name] for name in names)
            assert large["passes"] <= 1.1 * small["passes"]  # to rounding
            assert large["learning_rate"] <= small["learning_rate"]
        small = large


def test_the_length_of_an_epoch_may_be_a_number_of_steps(bare):
    size, every = TextSize(10**8, 24 * 10**8, 61), {"training.validate_every": 5000}
    epochs = settings_of(bare(**every), size).training.epochs
    assert epochs == 20  # of the 100,000 steps of the rule
    begun = settings_of(bare(**every, **{"training.steps": 30_000}), size)
    assert begun.training.steps is None
    assert begun.training.epochs == 6
    assert begun.training.cooldown_epochs == 2
    assert begun.training.warmup_steps == 3800  # an eighth, rounded
    # When a run goes on, its length may be named in steps or epochs.
    for named, epochs in (({}, 6), ({"epochs": 7}, 7), ({"steps": 40_000}, 8)):
        recipe = bare(**every, **{f"training.{x}": y for x, y in named.items()})
        assert settings_of(recipe, begun=begun).training.epochs == epochs


@pytest.mark.parametrize("name", NAMED)
def test_what_a_recipe_names_stays(bare, name):
    text = TextSize(2000, 13_046, 61)
    recipe = bare(**{name: NAMED[name]})
    assert set(names_from_text()) == NAMED.keys()
    assert None not in found_in(settings_of(bare(), text)).values()
    assert settings_of(recipe, text).get(name) == NAMED[name]


def test_other_settings_follow_from_those_that_are_named(bare):
    text = TextSize(2000, 13_046, 61)

    def found(name, **settings):
        return settings_of(bare(**settings), text).get(name)

    assert found("training.cooldown_epochs", **{"training.epochs": 9}) == 3
    assert found("training.passes_per_epoch", **{"training.epochs": 9}) == 1
    wide = {"model.hidden_dim": 512, "training.optimizer": "adam"}
    assert found("training.learning_rate", **wide) == 1e-3
    assert found("training.learning_rate", **{"model.preset": "base"}) == 1e-3
    assert found("training.tokens_per_batch", **{"training.max_length": 4099}) >= 4099
    batches = {"training.tokens_per_batch": 8192}
    steps = "training.passes_per_epoch"
    assert found(steps, **batches) > 2 * found(steps)
    apart = found("tokenizer.vocabulary_size", **{"tokenizer.shared": False})
    assert apart < found("tokenizer.vocabulary_size")


def test_a_pretrained_translator_keeps_its_sizes(bare):
    recipe = bare(**{"model.pretrained": "anywhere"})
    settings = settings_of(recipe, TextSize(2000, 13_046, 61))
    found = {name for name, value in found_in(settings).items() if value is not None}
    assert found == {name for name in NAMED if name.startswith("training.")}
    assert settings.training.learning_rate < 1e-4
    assert settings.model.num_layers is settings.decoding.beam_width is None


def test_a_model_has_the_sizes_of_its_preset_unless_they_are_named(bare):
    text = TextSize(2000, 13_046, 61)
    model = settings_of(bare(**{"model.num_heads": 2}), text).model
    assert (model.preset, model.hidden_dim, model.num_heads) == ("tiny", 128, 2)
    assert model.dropout == 0.2
    big = settings_of(bare(**{"model.preset": "big"}), text).model
    assert (big.hidden_dim, big.dropout) == (1024, 0.3)


def test_a_run_that_goes_on_keeps_what_followed_from_the_text(bare):
    begun = settings_of(bare(), TextSize(29_000, 29_000 * 24, 61))
    assert settings_of(bare(), begun=begun) == begun
    assert settings_of(begun, begun=begun) == begun
    wide = settings_of(bare(**{"model.hidden_dim": 512}), begun=begun)
    assert begun.differences(wide) == ["model.hidden_dim was 128 and is 512"]


def test_a_text_without_spaces_is_measured_by_its_characters(tmp_path):
    write_lines(tmp_path / "zh", ["我们明天早上在火车站前面见面"] * 3)
    write_lines(tmp_path / "en", ["we meet tomorrow"] * 3)
    size, *sides = survey([tmp_path / "zh"], [tmp_path / "en"])
    assert [len(side) for side in sides] == [3, 3]
    assert size.pairs == 3
    assert size.words > 3 * 3
    assert size.characters == len(set("我们明天早上在火车站前面见面 we meet tomorrow"))


def test_the_table_says_where_each_number_is_from(bare):
    text = TextSize(2000, 13_046, 61)
    named = bare(**{"training.epochs": 9})
    table = table_of(named, settings_of(named, text), text)
    rows = {line.split()[0]: line.split(None, 2)[1:] for line in table.splitlines()}
    assert rows["training.epochs"] == ["9", "recipe"]
    assert rows["training.cooldown_epochs"] == ["3", "chosen for 2,000 pairs"]
    assert rows.keys() == {"setting", *NAMED}


def test_guessing_by_frequency_has_the_perplexity_of_the_labels():
    batches = [[[5, 5, 0], [7, 0, 0]], [[9, 11, 0]]]
    # Entropy of the frequencies 2/5, 1/5, 1/5 and 1/5.
    expected = 5 / 2 ** (2 / 5)
    assert unigram_perplexity(batches, pad_id=0) == pytest.approx(expected)


# A run


@pytest.fixture
def phrases(tmp_path):
    """Function from a number of pairs to the recipe that names only its files."""

    def write(train):
        splits = locale_phrases("en", "de", train=train, validation=31, test=1)
        for name, text in (("train", splits.train), ("val", splits.validation)):
            for language, lines in zip(("aa", "bb"), text, strict=True):
                write_lines(tmp_path / f"{name}.{language}", lines)
        path = write_recipe(tmp_path / "bare.yaml", {"data": SETTINGS["data"]})
        return lambda **settings: Recipe.load(
            path, {"data.folder": str(tmp_path), **settings}
        )

    return write


@pytest.mark.parametrize(("pairs", "is_few"), [(299, True), (300, False)])
def test_too_little_text_is_told_before_the_training(
    phrases, tmp_path, capsys, pairs, is_few
):
    small = {"model.preset": "tiny", "tokenizer.vocabulary_size": 307}
    with begun(phrases(pairs)(**small), tmp_path / "run"):
        pass
    found = re.findall(
        "^A model learns little from only 299 pairs.*", capsys.readouterr().out, re.M
    )
    assert len(found) == is_few


@pytest.mark.slow
def test_a_run_prints_its_numbers_and_keeps_them(bare, text, tmp_path, capsys):
    def load(**settings):
        return bare(**{"data.folder": str(text), **settings})

    small = {f"model.{name}": SETTINGS["model"][name] for name in SETTINGS["model"]}
    with begun(load(**small, **{"training.epochs": 1}), tmp_path / "run"):
        wanted = settings_of(load(), TextSize(53, 424, 20)).tokenizer.vocabulary_size
    run = train(load(**small, **{"training.epochs": 1}), tmp_path / "run")
    printed = capsys.readouterr().out
    kept = Run(run.folder).settings
    # Ten words cannot fill the vocabulary that the rule allows.
    source, _ = run.tokenizers()
    assert kept.tokenizer.vocabulary_size == source.vocabulary_size < wanted
    for name in NAMED:
        value = kept.get(name)
        assert value is not None
        shown = f"{value:,}" if isinstance(value, int) else str(value)
        assert re.search(rf"^{name} +{shown}  ", printed, re.MULTILINE), name
    assert re.search(r"learning_rate: \d", printed)

    # What is not named is as it was when the run goes on, whatever the rule.
    again = load(**small, **{"training.epochs": 2})
    with begun(again, run.folder) as state:
        assert isinstance(state, Resumable)
        assert state.epoch == 1
        found, before = found_in(state.run.settings), found_in(kept)
        assert found == {**before, "training.epochs": 2}
    with begun(load(**small, **{"training.epochs": 1}), run.folder) as state:
        assert isinstance(state, Finished)
    other = load(**small, **{"training.tokens_per_batch": 1009})
    with (
        pytest.raises(ValueError, match="tokens_per_batch was .* and is 1009"),
        begun(other, run.folder),
    ):
        pass


def test_a_vocabulary_that_was_asked_for_is_not_made_smaller(bare, text, tmp_path):
    settings = {"data.folder": str(text), "tokenizer.vocabulary_size": 5003}
    recipe = bare(**settings)
    with pytest.raises(ValueError, match="`vocabulary_size` must be at most"):
        train(recipe, tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("learns", [False, True])
def test_a_training_says_whether_it_has_learned(phrases, tmp_path, capsys, learns):
    rate = 4e-3 if learns else 1e-9
    settings = {
        "model.num_layers": 1,
        "model.hidden_dim": 64,
        "training.learning_rate": rate,
        "training.epochs": 2 if learns else 1,
        "training.passes_per_epoch": 30 if learns else 1,
    }
    train(phrases(300)(**settings), tmp_path / "run")
    found = re.findall(
        "^This training has learned nothing.*", capsys.readouterr().out, re.M
    )
    assert len(found) == (0 if learns else 1)
    for line in found:
        assert '"It learns nothing" in docs/when_it_goes_wrong.md' in line
        # Only what the recipe named is to be left out of it.
        named = re.findall("`(training.[a-z_]+)`", line)
        names = "passes_per_epoch", "epochs", "learning_rate"
        assert sorted(named) == sorted(f"training.{x}" for x in names)


@pytest.mark.slow
def test_a_table_is_surveyed_and_read_as_two_files_are(bare, text, tmp_path):
    def sides(**settings):
        return bare(**settings).data.check_files("train")

    of_lines = sides(**{"data.folder": str(text)})
    for name in ("train", "val"):
        files = [(text / f"{name}.{x}").read_text().splitlines() for x in ("bb", "aa")]
        rows = [("bb", "aa"), *zip(*files, strict=True)]
        write_lines(tmp_path / f"{name}.tsv", map("\t".join, rows))
    tables = {"data.train": "train.tsv", "data.validation": "val.tsv"}
    of_table = sides(**tables, **{"data.folder": str(tmp_path)})
    assert survey(*of_table) == survey(*of_lines)
    tokenizer = SubwordTokenizer.train(of_table[0], vocabulary_size=29)
    epochs = [
        parallel_dataset(*each, tokenizer, tokenizer, 128, 16)
        for each in (of_table, of_lines)
    ]
    for found, expected in zip(*epochs, strict=True):
        for one, other in zip(
            tf.nest.flatten(found), tf.nest.flatten(expected), strict=True
        ):
            np.testing.assert_array_equal(one, other)
