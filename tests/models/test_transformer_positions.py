"""Every scheme of positions: decoded with a cache, saved, and in its limits."""

import functools

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.decoding import BeamSearch, GreedySearch
from keras_transformer.layers import (
    LearnedPositionalEncoding,
)
from keras_transformer.models import Transformer

VOCABULARY, MAX_LENGTH = 17, 7
SETTINGS = {"num_layers": 2, "hidden_dim": 8, "num_heads": 2, "intermediate_dim": 11}
SCHEMES = {
    "none": None,
    "sinusoidal": "sinusoidal",
    "rotary": "rotary",
    "linear bias": "linear_bias",
    "learned": LearnedPositionalEncoding(MAX_LENGTH),
    "concatenated": LearnedPositionalEncoding(
        MAX_LENGTH, merge="concatenate", encoding_dim=2
    ),
}
SOURCE = np.array(
    [
        [5, 7, 11, 13, 3, 0, 0],
        [4, 6, 3, 0, 0, 0, 0],
        [16, 15, 14, 13, 12, 11, 3],
        [9, 3, 0, 0, 0, 0, 0],
    ],
    "int32",
)


@functools.cache
def transformer(name, dtype="float32"):
    model = Transformer(VOCABULARY, **SETTINGS, positions=SCHEMES[name], dtype=dtype)
    random = np.random.default_rng(7)
    for weight in model.weights:
        mean = float(weight.path.endswith("gamma"))
        scale = 0.8 if weight.path.endswith("embeddings") else 0.4
        weight.assign(random.normal(mean, scale, weight.shape))
    return model


def uncached_log_probabilities(model, ids):
    """(batch, length, vocabulary), of the tokens that follow `start_id`."""
    starts = np.full((len(ids), 1), model.start_id)
    target_ids = np.concatenate([starts, ids[:, :-1]], axis=1)
    logits = model({"source_ids": SOURCE, "target_ids": target_ids})
    logits = ops.convert_to_numpy(logits).astype("float64")
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


@pytest.mark.quick("rotary")
@pytest.mark.parametrize("name", SCHEMES)
def test_greedy_with_a_cache_is_greedy_without(name):
    model = transformer(name)
    ids, scores = model.generate(SOURCE, GreedySearch(), MAX_LENGTH)
    ids = ids[:, 0]
    table = uncached_log_probabilities(model, ids)
    real = ids != model.pad_id
    allowed = table.copy()
    allowed[..., model.pad_id] = -np.inf
    np.testing.assert_array_equal(allowed.argmax(axis=-1)[real], ids[real])
    chosen = np.take_along_axis(table, ids[..., None], axis=-1)[..., 0]
    np.testing.assert_allclose(scores[:, 0], (chosen * real).sum(axis=-1), 1e-4, 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "dtype",
    ["mixed_bfloat16", pytest.param("mixed_float16", marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("name", SCHEMES)
def test_beams_in_half_precision_are_scored_as_without_a_cache(name, dtype):
    model = transformer(name, dtype)
    search = BeamSearch(3, length_penalty=0.0, num_hypotheses=3)
    ids, scores = model.generate(SOURCE, search, MAX_LENGTH)
    tolerance = 0.05 if dtype == "mixed_float16" else 0.4
    for hypothesis, found in zip(ids.swapaxes(0, 1), scores.T, strict=True):
        table = uncached_log_probabilities(model, hypothesis)
        chosen = np.take_along_axis(table, hypothesis[..., None], axis=-1)[..., 0]
        expected = (chosen * (hypothesis != model.pad_id)).sum(axis=-1)
        np.testing.assert_allclose(found, expected, 0, tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEMES)
def test_a_reloaded_model_keeps_its_positions(name, tmp_path):
    model = transformer(name)
    model.save(tmp_path / "model.keras")
    reloaded = keras.models.load_model(tmp_path / "model.keras")
    assert reloaded.get_config() == model.get_config()
    before, after = (x.generate(SOURCE, None, MAX_LENGTH) for x in (model, reloaded))
    np.testing.assert_array_equal(after.ids, before.ids)
    np.testing.assert_array_equal(after.scores, before.scores)


@pytest.mark.quick("concatenated")
@pytest.mark.parametrize("name", SCHEMES)
def test_every_scheme_trains(name):
    settings = {**SETTINGS, "num_layers": 1}
    model = Transformer(VOCABULARY, **settings, positions=SCHEMES[name])
    inputs = {"source_ids": SOURCE, "target_ids": SOURCE}
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss=loss, run_eagerly=True)
    before = [np.array(w) for w in model.trainable_weights]
    model.fit(inputs, SOURCE, verbose=0)
    for old, weight in zip(before, model.trainable_weights, strict=True):
        # The bias of the keys cancels out of the softmax, but for the turns.
        if "key/bias" not in weight.path:
            assert np.any(old != weight), weight.path


def test_a_layer_of_positions_serves_any_number_of_models():
    positions = LearnedPositionalEncoding(MAX_LENGTH)
    first, second = (
        Transformer(VOCABULARY, **SETTINGS, positions=positions) for _ in range(2)
    )
    assert not positions.built
    assert first.encoder.positions.table is not second.encoder.positions.table


def test_a_concatenated_encoding_takes_its_width_out_of_the_embedding():
    model = transformer("concatenated")
    shapes = {w.path: tuple(w.shape) for w in model.weights}
    assert shapes["embedding/embeddings"] == (VOCABULARY, 6)
    # Each side learns its own positions.
    assert shapes["encoder/positions/table"] == (MAX_LENGTH, 2)
    assert shapes["decoder/positions/table"] == (MAX_LENGTH, 2)
    assert shapes["narrow/kernel"] == (8, 6)


@pytest.mark.slow  # as test_language_model.py shows
@pytest.mark.parametrize("name", ["learned", "concatenated"])
def test_learned_positions_end_where_they_say(name):
    model = transformer(name)
    message = "Positions end at `max_length`=7: shorten the inputs or build the layer"
    longer = np.pad(SOURCE, ((0, 0), (0, 1)))
    # Compiled before, for shorter ones: the graph may have left lengths open.
    for length in (3, MAX_LENGTH):
        model.generate(SOURCE[:, :length], max_length=3)
    with pytest.raises(ValueError, match=message):
        model.generate(longer, max_length=3)
    with pytest.raises(ValueError, match=message):
        model.generate(SOURCE, max_length=MAX_LENGTH + 1)
    for inputs in ((longer, SOURCE), (SOURCE, longer)):
        with pytest.raises(ValueError, match=message):
            model(dict(zip(("source_ids", "target_ids"), inputs, strict=True)))
