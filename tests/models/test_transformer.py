import functools

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from keras_transformer.keras_private import all_layers
from keras_transformer.layers import (
    LearnedPositionalEncoding,
    SinusoidalPositionalEncoding,
)
from keras_transformer.models import Transformer

VOCABULARY, TARGET_VOCABULARY = 17, 19
SETTINGS = {
    "num_layers": 2,
    "hidden_dim": 8,
    "num_heads": 2,
    "intermediate_dim": 11,
    "dropout": 0.1,
}
SOURCE = np.array([[5, 7, 11, 13, 3, 0, 0], [4, 6, 3, 0, 0, 0, 0]], "int32")
TARGET = np.array([[2, 9, 8, 7, 0], [2, 4, 16, 12, 5]], "int32")


def transformer(**kwargs):
    """A small model in which every weight matters, biases too."""
    model = Transformer(VOCABULARY, **{**SETTINGS, **kwargs})
    random = np.random.default_rng(1)
    for weight in model.weights:
        mean = float(weight.path.endswith("gamma"))
        weight.assign(random.normal(mean, 0.3, weight.shape))
    return model


VARIANTS = {
    "post-norm": {},
    "pre-norm": {"normalize_first": True, "activation": "gelu"},
    "two vocabularies": {"target_vocabulary_size": TARGET_VOCABULARY},
    "other special ids": {"pad_id": 7, "start_id": 1, "end_id": 5},
    "mixed_float16": {"dtype": "mixed_float16"},
    "mixed_bfloat16": {"dtype": "mixed_bfloat16"},
    "rotary": {"positions": "rotary"},
    "linear bias": {"positions": "linear_bias"},
    "learned positions": {"positions": LearnedPositionalEncoding(13)},
    "concatenated positions": {
        "positions": SinusoidalPositionalEncoding(merge="concatenate", encoding_dim=2)
    },
}
AS_MARIAN = {
    "num_decoder_layers": 1,
    "epsilon": 1e-3,
    "output_bias": True,
    "scale_embeddings": False,
    "positions": SinusoidalPositionalEncoding(layout="halves", first_position=2),
}
VARIANTS["as Marian"] = AS_MARIAN
# What rounding may change, as a share of the largest logit.
TOLERANCES = {"mixed_float16": 0.01, "mixed_bfloat16": 0.1}


@functools.cache
def variant(name):
    return transformer(**VARIANTS[name])


def logits_of(model, source=SOURCE, target=TARGET, **kwargs):
    inputs = {"source_ids": source, "target_ids": target}
    return ops.convert_to_numpy(model(inputs, **kwargs))


def padded_with(model, ids):
    """`ids`, whose padding is 0, as `model` would be given them."""
    swapped = np.where(ids == model.pad_id, 14, ids)
    return np.where(ids == 0, model.pad_id, swapped)


def test_a_model_that_begins_with_padding_is_cloned():
    model = transformer(start_id=0, output_bias=True)
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    target = np.where(TARGET == 2, 0, TARGET)
    np.testing.assert_allclose(
        logits_of(clone, target=target), logits_of(model, target=target), atol=1e-5
    )


@pytest.mark.quick("post-norm", "other special ids", "mixed_bfloat16")
@pytest.mark.parametrize("name", VARIANTS)
def test_logits_are_float32_for_every_target_token(name):
    model = variant(name)
    vocabulary = TARGET_VOCABULARY if name == "two vocabularies" else VOCABULARY
    assert model.output_shape == (None, None, vocabulary)
    assert model.output.dtype == "float32"
    logits = logits_of(model)
    assert logits.shape == (2, 5, vocabulary)
    assert logits.dtype == "float32"
    assert np.all(np.isfinite(logits))


@pytest.mark.quick("as Marian")
@pytest.mark.parametrize("name", VARIANTS)
@settings(max_examples=5)
@given(
    source_padding=st.integers(0, 5),
    target_padding=st.integers(0, 5),
    position=st.integers(1, 4),
    seed=st.integers(0, 100),
)
def test_neither_padding_nor_the_future_changes_a_logit(
    name, source_padding, target_padding, position, seed
):
    model = variant(name)
    source, target = padded_with(model, SOURCE), padded_with(model, TARGET)
    before = logits_of(model, source, target)
    future = np.random.default_rng(seed).integers(0, VOCABULARY, (2, 5 - position))
    changed = np.concatenate([target[:, :position], future], axis=1)
    widths = ((0, 0), (0, source_padding)), ((0, 0), (0, target_padding))
    source, changed = (
        np.pad(ids, width, constant_values=model.pad_id)
        for ids, width in zip((source, changed), widths, strict=True)
    )
    after = logits_of(model, source, changed)[:, :position]
    real = target[:, :position] != model.pad_id
    # Another shape may be summed in another order.
    tolerance = TOLERANCES.get(name, 1e-5) * np.abs(before).max()
    np.testing.assert_allclose(after[real], before[:, :position][real], 0, tolerance)


@pytest.mark.parametrize("name", ["post-norm", "mixed_float16", "mixed_bfloat16"])
def test_the_embedding_of_padding_changes_nothing_at_all(name):
    model = variant(name)
    target = np.array([[2, 9, 0, 7, 0], [2, 4, 16, 12, 5]])
    before = logits_of(model, target=target)
    table = model.source_embedding.embeddings
    old = ops.convert_to_numpy(table)
    changed = old.copy()
    changed[model.pad_id] *= -13
    table.assign(changed)
    after = logits_of(model, target=target)
    table.assign(old)
    # The row is also what the padding symbol is scored with.
    others = np.arange(VOCABULARY) != model.pad_id
    real = target != model.pad_id
    np.testing.assert_array_equal(after[real][:, others], before[real][:, others])
    assert np.any(after[real] != before[real])


@pytest.mark.quick("two vocabularies", "other special ids", "rotary", "as Marian")
@pytest.mark.parametrize("name", VARIANTS)
def test_the_source_and_the_past_do_matter(name):
    model = variant(name)
    source, target = padded_with(model, SOURCE), padded_with(model, TARGET)
    before = logits_of(model, source, target)
    source[0, 1] = 6
    target[1, 1] = 9
    changes = np.abs(logits_of(model, source, target) - before).max(axis=-1)
    assert np.all(changes[0, :4] > 0.005), "the source does not matter"
    assert np.all(changes[1, 1:] > 0.01), "the past does not matter"
    assert changes[1, 0] < 1e-5


@pytest.mark.quick("post-norm", "linear bias", "mixed_float16")
@pytest.mark.parametrize("name", VARIANTS)
def test_a_source_of_nothing_but_padding_gives_finite_logits(name):
    model = variant(name)
    source = np.full_like(SOURCE, model.pad_id)
    assert np.all(np.isfinite(logits_of(model, source)))


def test_a_shared_vocabulary_ties_the_embeddings():
    model = transformer()
    tables = [w for w in model.weights if "embedding" in w.path]
    assert [w.shape for w in tables] == [(VOCABULARY, 8)]
    before = logits_of(model)
    tables[0].assign(
        tables[0] * ops.where(np.arange(VOCABULARY) == 10, 2.0, 1.0)[:, None]
    )
    after = logits_of(model)
    # Token 10 is in neither sequence: only its own score changes.
    np.testing.assert_allclose(after[..., 10], 2 * before[..., 10], 1e-4, 1e-5)
    others = np.arange(VOCABULARY) != 10
    np.testing.assert_allclose(after[..., others], before[..., others], 1e-4, 1e-5)


def test_two_vocabularies_score_with_the_table_of_the_target():
    model = variant("two vocabularies")
    tables = {w.path: tuple(w.shape) for w in model.weights if "embedding" in w.path}
    assert tables == {
        "source_embedding/embeddings": (VOCABULARY, 8),
        "target_embedding/embeddings": (TARGET_VOCABULARY, 8),
    }
    assert model.output_shape[-1] == TARGET_VOCABULARY
    largest = np.full_like(TARGET, TARGET_VOCABULARY - 1)
    assert np.all(np.isfinite(logits_of(model, target=largest)))


def test_the_model_is_its_parts_in_the_order_of_the_paper():
    model = variant("pre-norm")
    embed = model.target_embedding
    memory = model.encoder(embed(SOURCE))
    states = model.decoder(embed(TARGET), memory)
    expected = embed(states, reverse=True)
    np.testing.assert_allclose(logits_of(model), expected, 1e-4, 1e-5)


def test_the_sums_of_embeddings_and_positions_are_dropped_out():
    model = transformer(dropout=1 - 1e-6, normalize_first=True)
    weights = {w.path: w for w in model.weights}
    for part in ("encoder", "decoder"):
        beta = weights[f"{part}/final_norm/beta"]
        beta.assign(np.zeros(beta.shape))
    inputs = {"source_ids": SOURCE, "target_ids": TARGET}
    # Nothing but what was dropped out could be told apart.
    memory = keras.Model(model.inputs, model.encoder.output)
    np.testing.assert_allclose(memory(inputs, training=True), 0, atol=1e-6)
    np.testing.assert_allclose(model(inputs, training=True), 0, atol=1e-6)
    without = transformer(dropout=0.0, normalize_first=True)
    without.set_weights(model.get_weights())
    np.testing.assert_array_equal(logits_of(model), logits_of(without))


@pytest.mark.quick("pre-norm", "other special ids", "mixed_bfloat16", "linear bias")
@pytest.mark.parametrize("name", VARIANTS)
def test_attention_scores_say_what_was_looked_at(name):
    model = variant(name)
    source, target = padded_with(model, SOURCE), padded_with(model, TARGET)
    before = logits_of(model, source, target)
    scores = {
        kind: np.asarray(ops.convert_to_numpy(x), "float64")
        for kind, x in model.attention_scores(source, target).items()
    }
    np.testing.assert_array_equal(logits_of(model, source, target), before)
    real_source, real_target = source != model.pad_id, target != model.pad_id
    past = np.tri(5, dtype=bool)
    masks = {
        "encoder": (real_source, real_source[:, None, :]),
        "decoder": (real_target, real_target[:, None, :] & past),
        "cross": (real_target, real_source[:, None, :]),
    }
    assert set(scores) == set(masks)
    tolerance = {"mixed_float16": 2e-3, "mixed_bfloat16": 2e-2}.get(name, 1e-5)
    for kind, (real, mask) in masks.items():
        num_layers = len((model.encoder if kind == "encoder" else model.decoder).blocks)
        shape = (num_layers, 2, 2, real.shape[1], mask.shape[-1])
        assert scores[kind].shape == shape
        # (layers, batch, heads, query, key) -> (batch, query, key, layers, heads)
        rows = np.transpose(scores[kind], (1, 3, 4, 0, 2))
        np.testing.assert_allclose(rows[real].sum(axis=1), 1, 0, tolerance)
        mask = np.broadcast_to(mask, rows.shape[:3])
        assert np.all(rows[~mask] == 0), kind
        assert np.all(rows[mask & real[..., None]] > 0), kind


@pytest.mark.quick("as Marian")
@pytest.mark.parametrize("name", VARIANTS)
def test_a_reloaded_model_gives_the_live_logits(name, tmp_path):
    model = variant(name)
    model.save(tmp_path / "model.keras")
    reloaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(reloaded) is Transformer
    assert reloaded.get_config() == model.get_config()
    for before, after in zip(model.weights, reloaded.weights, strict=True):
        assert before.path == after.path
        np.testing.assert_array_equal(before, after)
    np.testing.assert_array_equal(logits_of(reloaded), logits_of(model))


def test_the_summary_names_the_parts():
    lines = []
    variant("two vocabularies").summary(print_fn=lines.append, line_length=100)
    summary = "\n".join(lines)
    names = [
        "source_ids",
        "target_ids",
        "source_embedding",
        "target_embedding",
        "encoder",
        "decoder",
    ]
    for name in names:
        assert f" {name} " in summary, f"{name} is not in the summary"
    assert 'Model: "transformer' in summary
    assert "(None, None, 19)" in summary
    layers = [layer.name for layer in variant("two vocabularies").layers]
    assert sorted(layers) == sorted(names)


def test_any_kind_of_integer_is_an_id():
    model = variant("two vocabularies")
    expected = logits_of(model)
    for dtype in ("int64", "uint8"):
        logits = logits_of(model, SOURCE.astype(dtype), TARGET.astype(dtype))
        np.testing.assert_array_equal(logits, expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"source_vocabulary_size": 0}, "`source_vocabulary_size` must be a positive"),
        ({"target_vocabulary_size": 0}, "`target_vocabulary_size` must be a positive"),
        ({"hidden_dim": 0}, "`hidden_dim` must be a positive .* hidden_dim=0"),
        ({"num_layers": 0}, "`num_layers` must be a positive .* num_layers=0"),
        ({"intermediate_dim": -1}, "`intermediate_dim` must be .* intermediate_dim=-1"),
        (
            {"num_heads": 0},
            "`num_heads` must be a positive integer. Received: num_heads=0",
        ),
        (
            {"num_decoder_layers": 0},
            "`num_decoder_layers` must be a positive .* num_decoder_layers=0",
        ),
        ({"num_heads": 3}, "`num_heads` must divide .* num_heads=3, hidden_dim=8"),
        ({"dropout": 1.5}, "`dropout` must be .* 0 to 1. Received: dropout=1.5"),
        ({"activation": "reluu"}, "activation function identifier: reluu"),
        ({"pad_id": 17}, "`pad_id` must lie in the vocabulary of 17 .*=17"),
        ({"positions": "rotari"}, "`positions` must be one of .* positions='rotari'"),
        (
            {
                "positions": SinusoidalPositionalEncoding(
                    merge="concatenate", encoding_dim=8
                )
            },
            "`hidden_dim` must be greater .* hidden_dim=8, encoding_dim=8",
        ),
        ({"start_id": -1}, "`start_id` must lie in .* Received: start_id=-1"),
        (
            {"target_vocabulary_size": 3},
            "`end_id` must lie in the vocabulary of 3 tokens. .* end_id=3",
        ),
    ],
    ids=lambda x: "+".join(x) if isinstance(x, dict) else "",
)
def test_bad_settings_are_refused_in_one_line(arguments, message):
    with pytest.raises(ValueError, match=message) as caught:
        Transformer(**{"source_vocabulary_size": VOCABULARY, **SETTINGS, **arguments})
    assert "\n" not in str(caught.value)


def test_the_end_differs_from_the_padding():
    with pytest.raises(ValueError, match="`end_id` must .* `pad_id`"):
        Transformer(VOCABULARY, **SETTINGS, end_id=0)


def test_the_start_may_be_the_symbol_of_the_padding():
    model = transformer(**AS_MARIAN, pad_id=16, start_id=16, end_id=0)
    twin = transformer(**AS_MARIAN, pad_id=16, start_id=15, end_id=0)
    table = model.target_embedding.get_weights()[0]
    table[15] = table[16]
    for each in (model, twin):
        each.target_embedding.set_weights([table])
    source, target = padded_with(model, SOURCE), padded_with(model, TARGET)
    target[:, 0] = 16
    twin_target = target.copy()
    twin_target[:, 0] = 15
    real = twin_target != 16
    logits, twin_logits = (
        logits_of(each, source, ids)[real][:, :15]
        for each, ids in ((model, target), (twin, twin_target))
    )
    np.testing.assert_allclose(logits, twin_logits, 1e-5, 1e-6)
    found = model.generate(source, max_length=7)
    ids = found.ids[:, 0]
    inputs = np.insert(ids[:, :-1], 0, 16, axis=1)
    probabilities = keras.ops.log_softmax(logits_of(model, source, inputs))
    gains = np.take_along_axis(
        ops.convert_to_numpy(probabilities), ids[..., None], axis=-1
    )[..., 0]
    expected = np.sum(np.where(ids == 16, 0, gains), axis=1)
    np.testing.assert_allclose(found.scores[:, 0], expected, 1e-4)


def test_what_other_systems_have_is_computed_by_their_formulas():
    model = transformer(**AS_MARIAN)
    embedded = ops.convert_to_numpy(model.target_embedding(TARGET))
    table = model.target_embedding.get_weights()[0]
    np.testing.assert_allclose(embedded, table[TARGET], 1e-6)  # not scaled
    assert [len(x.blocks) for x in (model.encoder, model.decoder)] == [2, 1]
    logits = logits_of(model)
    (bias,) = model.output_bias.get_weights()
    model.output_bias.set_weights([bias + np.arange(17)])
    np.testing.assert_allclose(logits_of(model), logits + np.arange(17), 1e-4, 1e-5)
    norms = [
        layer.epsilon
        for layer in all_layers(model)
        if isinstance(layer, keras.layers.LayerNormalization)
    ]
    assert set(norms) == {1e-3}


@pytest.mark.parametrize("name", ["source_ids", "target_ids"])
def test_ids_that_are_not_integers_are_refused(name):
    inputs = {"source_ids": SOURCE, "target_ids": TARGET}
    inputs[name] = inputs[name].astype("float32")
    model = transformer()  # which `predict`, if it raises, leaves broken on JAX
    message = f"`{name}` must be integers.* Received: {name} of dtype float32"
    with pytest.raises(ValueError, match=message):
        model(inputs)
    with pytest.raises(ValueError, match=message):
        model.predict(inputs, verbose=0)


def test_ids_of_another_rank_are_refused():
    message = r"`source_ids` must have the shape \(batch, length\).* \(7,\)"
    with pytest.raises(ValueError, match=message):
        logits_of(variant("post-norm"), SOURCE[0])


def test_attention_scores_of_another_rank_are_refused():
    with pytest.raises(ValueError, match="`source_ids` must have the shape"):
        variant("post-norm").attention_scores(SOURCE[0], TARGET[0])


def test_a_missing_input_is_named():
    with pytest.raises(ValueError, match="target_ids"):
        variant("post-norm")({"source_ids": SOURCE})
