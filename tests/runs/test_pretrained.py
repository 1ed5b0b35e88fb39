"""Training that goes on from a translator."""

import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer.runs import Recipe, Run, train
from keras_transformer.runs.prepare import begin_run
from keras_transformer.runs.pretrained import copy_pretrained

ONE_EPOCH = {"training.epochs": 1}


@pytest.fixture
def tuned(trained, load, tmp_path):
    """Function from settings to a run of one epoch that goes on from `trained`."""

    def tune(where=trained.folder, **settings):
        recipe = load(**{"model.pretrained": str(where), **ONE_EPOCH, **settings})
        return train(recipe, tmp_path / "tuned")

    return tune


def weights_of(model):
    return {weight.path: np.asarray(weight) for weight in model.weights}


def test_training_goes_on_with_the_weights_and_tokenizers(trained, tuned):
    run = tuned(**{"training.learning_rate": 1e-12, "model.dropout": 0.0})
    before, after = trained.translator(), run.translator()
    assert after.source_tokenizer.equals(before.source_tokenizer)
    assert after.model.get_config()["dropout"] == 0
    found, expected = weights_of(after.model), weights_of(before.model)
    for path, weight in expected.items():
        np.testing.assert_allclose(found[path], weight, 0, 1e-9)


def test_frozen_layers_stay_as_they_were(trained, tuned):
    run = tuned(
        **{"model.frozen": ["embedding", "encoder", "decoder/block_0/self_attention"]}
    )
    before, after = (weights_of(x.translator().model) for x in (trained, run))
    for path, weight in before.items():
        is_frozen = path.startswith(
            ("embedding/", "encoder/", "decoder/block_0/self_attention/")
        )
        assert np.array_equal(weight, after[path]) == is_frozen, path


def test_an_adaptation_is_all_that_is_trained(trained, tuned, load):
    settings = {"model.lora_rank": 2, "training.learning_rate": 0.1}
    run = tuned(**settings)
    before, after = (weights_of(x.translator().model) for x in (trained, run))
    for path, weight in before.items():
        np.testing.assert_array_equal(after.pop(path), weight)
    assert after
    assert all("lora_kernel" in path for path in after)
    assert any(np.any(after[path]) for path in after if path.endswith("kernel_b"))
    settings |= {"model.pretrained": str(trained.folder), "training.epochs": 2}
    run = train(load(**settings), run.folder)
    found = weights_of(run.translator().model)
    assert found.keys() == before.keys() | after.keys()
    assert len(run.log.rows()) == 2


def test_only_what_is_pretrained_is_frozen_or_adapted(tuned, load, tmp_path):
    with pytest.raises(ValueError, match=r"such as .*encoder, decoder.*: 'incoder'"):
        tuned(**{"model.frozen": "incoder"})
    for settings in ({"model.lora_rank": 2}, {"model.frozen": "encoder"}):
        with pytest.raises(ValueError, match=r"must be left out without .*pretrained"):
            train(load(**settings), tmp_path / "run")
        assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_training_goes_on_to_learn(trained, tuned, load, tmp_path):
    (row,) = tuned().log.rows()
    (fresh,) = train(load(**ONE_EPOCH), tmp_path / "fresh").log.rows()
    assert float(row["val_loss"]) < float(fresh["val_loss"])
    assert float(row["val_loss"]) != float(trained.log.rows()[-1]["val_loss"])


@pytest.mark.slow
def test_an_interrupted_training_needs_no_pretrained_translator(copy, tuned, load):
    run = tuned(copy.folder)
    copy.folder.rename(copy.folder.with_name("moved"))
    settings = {"model.pretrained": str(copy.folder), "training.epochs": 2}
    assert len(train(load(**settings), run.folder).log.rows()) == 2


@pytest.mark.slow
def test_the_search_is_that_of_the_translator_unless_one_is_named(
    trained, load, tmp_path, text
):
    translator = trained.translator()
    penalty = kt.decoding.PowerLengthPenalty(0.7)
    forced = kt.decoding.ForcedPrefix([7], is_scored=False)
    translator.search = kt.decoding.BeamSearch(3, penalty, processors=[forced])
    translator.save(tmp_path / "saved")
    settings = Recipe.load(text / "small.yaml").to_dict()
    decoding = {f"decoding.{name}": None for name in settings["decoding"]}
    assert decoding.keys() == {
        "decoding.beam_width",
        "decoding.length_penalty",
        "decoding.average",
    }
    defaults = {"decoding.beam_width": 4, "decoding.length_penalty": 0.6}
    recipe = load(
        **{"model.pretrained": str(tmp_path / "saved"), **defaults, **ONE_EPOCH}
    )
    run = train(recipe, tmp_path / "run")
    assert repr(run.translator().search) == repr(translator.search)
    path = run.settings_path
    path.write_text(path.read_text().replace("beam_width: 4", "beam_width: 2"))
    search = Run(run.folder).translator().search
    assert search.beam_width == 2
    assert [repr(x) for x in search.processors] == [repr(forced)]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tokenizer.vocabulary_size", 31),
        ("tokenizer.shared", False),
        ("tokenizer.split_digits", True),
        ("model.num_layers", 3),
        ("model.activation", "gelu"),
    ],
)
def test_settings_that_do_not_agree_are_named(tuned, name, value, tmp_path):
    with pytest.raises(ValueError, match=f"`{name}` must be"):
        tuned(**{name: value})
    assert not (tmp_path / "tuned" / "pretrained").exists()


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
    begin_run(load(**{"model.pretrained": str(trained.folder)}), run)
    assert run.pretrained_path.is_dir()
    begin_run(load(), run)
    assert not run.pretrained_path.exists()


def test_a_translator_that_is_not_there_is_named(tuned, tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere is not a folder"):
        tuned(tmp_path / "nowhere")
