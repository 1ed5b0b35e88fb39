import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import decoding, layers, training
from keras_transformer.models import Ensemble, LanguageModel, Transformer

SOURCE_IDS = np.array(
    [[5, 7, 11, 13, 3], [4, 16, 3, 0, 0], [9, 3, 0, 0, 0]] * 7, "int32"
)
SIZES = {"hidden_dim": 6, "num_heads": 2, "intermediate_dim": 11}


def make(seed, num_layers=1, **settings):
    keras.utils.set_random_seed(seed)
    model = Transformer(17, num_layers=num_layers, **{**SIZES, **settings})
    draw = np.random.default_rng(seed)
    for weight in model.weights:
        weight.assign(draw.normal(0, 0.7, weight.shape))
    return model


@pytest.fixture(scope="module")
def models():
    return [make(1), make(2, num_layers=2, hidden_dim=8, normalize_first=True)]


@pytest.fixture(scope="module")
def ensemble(models):
    return Ensemble(models)


def probabilities(model, inputs):
    return ops.convert_to_numpy(ops.softmax(model(inputs)))


def test_it_is_the_mean_of_the_probabilities(ensemble, models):
    inputs = {"source_ids": SOURCE_IDS, "target_ids": SOURCE_IDS[:, :3]}
    expected = np.mean([probabilities(model, inputs) for model in models], axis=0)
    found = np.exp(ops.convert_to_numpy(ensemble(inputs)))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.quick("beam")
@pytest.mark.parametrize("search", ["greedy", "beam"])
def test_steps_give_what_the_whole_network_gives(ensemble, search):
    beam = decoding.BeamSearch(3, length_penalty=0.0)
    search = beam if search == "beam" else decoding.GreedySearch()
    found = ensemble.generate(SOURCE_IDS, search, max_length=9, batch_size=4)
    ids = found.ids[:, 0]
    starts = np.full_like(ids[:, :1], ensemble.start_id)
    inputs = {"source_ids": SOURCE_IDS, "target_ids": np.hstack([starts, ids[:, :-1]])}
    logs = ops.convert_to_numpy(ensemble(inputs))
    of_ids = np.take_along_axis(logs, ids[..., None], axis=2)[..., 0]
    expected = np.sum(of_ids * (ids != ensemble.pad_id), axis=1)
    np.testing.assert_allclose(found.scores[:, 0], expected, rtol=1e-4)


@pytest.mark.slow
def test_an_ensemble_of_one_finds_what_its_model_finds(models):
    search = decoding.BeamSearch(3)
    alone = models[0].generate(SOURCE_IDS, search, max_length=9)
    found = Ensemble(models[:1]).generate(SOURCE_IDS, search, max_length=9)
    np.testing.assert_array_equal(found.ids, alone.ids)
    np.testing.assert_allclose(found.scores, alone.scores, rtol=1e-4)


def test_a_saved_ensemble_is_loaded_as_it_was(ensemble, tmp_path):
    ensemble.save(tmp_path / "ensemble.keras")
    loaded = keras.saving.load_model(tmp_path / "ensemble.keras")
    inputs = {"source_ids": SOURCE_IDS, "target_ids": SOURCE_IDS[:, :3]}
    np.testing.assert_array_equal(
        *(ops.convert_to_numpy(model(inputs)) for model in (loaded, ensemble))
    )


def test_adaptations_are_merged(models):
    adapted = make(3)
    adapted.enable_lora(rank=2)
    for weight in adapted.trainable_weights:
        weight.assign(np.ones(weight.shape))
    ensemble = Ensemble([models[0], adapted])
    merged = ensemble.merge_lora()
    assert merged.models[0] is models[0]
    inputs = {"source_ids": SOURCE_IDS, "target_ids": SOURCE_IDS[:, :3]}
    np.testing.assert_allclose(
        *(probabilities(model, inputs) for model in (merged, ensemble)), 1e-4, 1e-6
    )
    assert Ensemble(models).merge_lora().models == models


def test_more_positions_than_one_model_has_are_refused(models):
    positions = layers.LearnedPositionalEncoding(max_length=8)
    ensemble = Ensemble([models[0], make(3, positions=positions)])
    with pytest.raises(ValueError, match="`max_length`=8"):
        ensemble.generate(SOURCE_IDS, max_length=9)
    with pytest.raises(ValueError, match="`max_length`=8"):  # as an export asks
        decoding.GreedySearch()(ensemble, SOURCE_IDS, 9)


@pytest.mark.slow
@pytest.mark.usefixtures("few_objects_to_collect")
@pytest.mark.parametrize("change", ["adapt", "quantize"])
def test_a_model_that_changes_later_counts_as_it_is(change):
    unchanged, changed = make(1), make(3)
    ensemble = Ensemble([unchanged, changed])
    before = ensemble.generate(SOURCE_IDS, max_length=5).scores
    if change == "adapt":
        changed.enable_lora(rank=2)
        for weight in changed.trainable_weights:
            weight.assign(np.ones(weight.shape))
    else:
        ensemble.quantize("int8")
    expected = Ensemble([unchanged, changed]).generate(SOURCE_IDS, max_length=5)
    found = ensemble.generate(SOURCE_IDS, max_length=5)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5)
    assert not np.allclose(found.scores, before, rtol=1e-5)


@pytest.mark.slow
def test_optimizers_are_not_saved(tmp_path):
    model = make(3)
    model.compile("adam", training.TokenCrossentropy())
    inputs = {"source_ids": SOURCE_IDS, "target_ids": SOURCE_IDS}
    model.fit(inputs, SOURCE_IDS, verbose=0)
    Ensemble([model]).save(tmp_path / "ensemble.keras")
    loaded = keras.saving.load_model(tmp_path / "ensemble.keras")
    assert not loaded.models[0].compiled


def test_it_is_not_trained(ensemble):
    ensemble.compile("adam", training.TokenCrossentropy())
    inputs = {"source_ids": SOURCE_IDS, "target_ids": SOURCE_IDS}
    with pytest.raises(ValueError, match="train its models one by one"):
        ensemble.fit(inputs, SOURCE_IDS, verbose=0)
    with pytest.raises(ValueError, match="Adapt its models"):
        ensemble.enable_lora(rank=2)


def test_one_model_twice_is_refused(models):
    with pytest.raises(ValueError, match="one model twice"):
        Ensemble([*models, models[0]])


@pytest.mark.quick(
    "others0-one Transformer or more.*R",
    "others1-Received: Ensemble",
    "others2-Received: LanguageModel",
)
@pytest.mark.parametrize(
    ("others", "message"),
    [
        ([], "one Transformer or more.*Received: no model"),
        ([lambda: Ensemble([make(1)])], "Received: Ensemble"),
        ([lambda: LanguageModel(17, num_layers=1, **SIZES)], "Received: LanguageModel"),
        (
            [lambda: make(1), lambda: make(1, target_vocabulary_size=19)],
            r"same target_vocabulary_size.*=\[17, 19\]",
        ),
        ([lambda: make(1), lambda: make(1, end_id=7)], r"same end_id.*=\[3, 7\]"),
    ],
)
def test_models_that_do_not_fit_each_other_are_refused(others, message):
    with pytest.raises(ValueError, match=message):
        Ensemble([make_other() for make_other in others])
