"""Low-rank adaptation: what it trains, what it leaves, and how it is saved."""

import keras
import numpy as np
import pytest
from keras import ops
from model_cases import every_model

from keras_transformer import layers
from keras_transformer.keras_private import all_layers
from keras_transformer.layers.projection import Projection
from keras_transformer.models import (
    LanguageModel,
    TextClassifier,
    TextEncoder,
    Transformer,
)
from keras_transformer.training import Adam, TokenCrossentropy

SOURCE = np.array([[5, 6, 7, 2], [8, 9, 2, 0]])
TARGET = np.array([[1, 7, 6, 5], [1, 9, 8, 0]])
LABELS = np.array([[7, 6, 5, 2], [9, 8, 2, 0]])
STATES = np.random.default_rng(5).normal(size=(2, 5, 8)).astype("float32")


def transformer(**kwargs):
    keras.utils.set_random_seed(3)
    sizes = {"num_layers": 1, "hidden_dim": 8, "num_heads": 2, "intermediate_dim": 16}
    return Transformer(11, **sizes, dropout=0.0, **kwargs)


def adapted(rank=2, **kwargs):
    model = transformer()
    model.enable_lora(rank, **kwargs)
    return compiled(model)


def compiled(model):
    model.compile(Adam(0.05), TokenCrossentropy(), jit_compile=False)
    return model


def fit(model, steps=5):
    inputs = {"source_ids": SOURCE, "target_ids": TARGET}
    return [float(model.train_on_batch(inputs, LABELS)) for _ in range(steps)]


def outputs_of(model, inputs=None):
    if inputs is None:
        inputs = {"source_ids": SOURCE, "target_ids": TARGET}
    return ops.convert_to_numpy(ops.cast(model(inputs), "float32"))


def values(weights):
    return {x.path: ops.convert_to_numpy(x) for x in weights}


def is_factor(path):
    return "lora" in path


def test_a_kernel_is_the_old_one_and_a_scaled_product():
    layer = Projection(3, use_bias=False)
    layer.build((None, 4))
    kernel = ops.convert_to_numpy(layer.kernel)
    layer.enable_lora(2, lora_alpha=6)
    a, b = np.arange(8.0).reshape(4, 2), np.arange(6.0).reshape(2, 3)
    for factor, value in zip(layer.factors(), (a, b), strict=True):
        factor.assign(value)
    expected = STATES[..., :4] @ (kernel + 3 * a @ b)
    np.testing.assert_allclose(layer(STATES[..., :4]), expected, rtol=1e-4)
    store = {}
    layer.save_own_variables(store)
    plain = Projection(3, use_bias=False)
    plain.build((None, 4))
    plain.load_own_variables({k: ops.convert_to_numpy(v) for k, v in store.items()})
    np.testing.assert_allclose(plain(STATES[..., :4]), expected, rtol=1e-4)


def test_only_the_adaptation_learns():
    model = adapted()
    before = values(model.weights)
    losses = fit(model, steps=20)
    after = values(model.weights)
    assert losses[-1] < 0.9 * losses[0]
    assert before.keys() == after.keys()
    for path in before:
        changed = np.any(before[path] != after[path])
        assert changed == is_factor(path), path


def test_what_is_named_is_adapted_and_nothing_else():
    model = adapted(projections=("output", "widen"))
    found = [x.path for x in all_layers(model) if getattr(x, "lora_enabled", False)]
    # Two layers of feed-forward and three of attention.
    assert sorted(path.split("/")[-1] for path in found) == (
        ["output"] * 3 + ["widen"] * 2
    )
    assert all(is_factor(weight.path) for weight in model.trainable_weights)


def test_a_model_begins_as_it_was():
    expected = outputs_of(transformer())
    np.testing.assert_allclose(outputs_of(adapted()), expected, atol=1e-6)


@pytest.mark.slow
def test_training_goes_on_from_a_file_as_if_it_had_not_stopped(tmp_path):
    model = adapted(rank=3, alpha=8)
    fit(model)
    model.save(tmp_path / "model.keras")
    twin = keras.models.load_model(tmp_path / "model.keras")
    for path, value in values(model.weights).items():
        np.testing.assert_array_equal(values(twin.weights)[path], value)
    paths = [weight.path for weight in model.trainable_weights]
    assert [weight.path for weight in twin.trainable_weights] == paths
    np.testing.assert_array_equal(fit(twin), fit(model))
    np.testing.assert_array_equal(outputs_of(twin), outputs_of(model))


@pytest.mark.slow
def test_a_merged_model_gives_the_same_without_adaptations():
    model = adapted(projections=("query", "value", "narrow"))
    fit(model)
    before = values(model.weights)
    merged = model.merge_lora()
    np.testing.assert_allclose(outputs_of(merged), outputs_of(model), atol=1e-5)
    assert not any(is_factor(weight.path) for weight in merged.weights)
    assert len(merged.trainable_weights) == len(transformer().trainable_weights)
    assert merged.merge_lora() is merged
    for path, value in values(model.weights).items():
        np.testing.assert_array_equal(before[path], value)
    fit(compiled(merged))
    merged.enable_lora(1)


@pytest.mark.slow
def test_what_was_generated_before_is_not_generated_after():
    model = transformer()
    before = model.generate(SOURCE, max_length=4).ids
    model.enable_lora(2, projections=("query", "value", "output", "narrow"))
    for layer in all_layers(model):
        if getattr(layer, "lora_enabled", False):
            for factor in layer.factors():
                factor.assign(ops.ones(factor.shape))
    after = model.generate(SOURCE, max_length=4).ids
    assert np.any(before != after)
    np.testing.assert_array_equal(
        after, model.merge_lora().generate(SOURCE, max_length=4).ids
    )


@pytest.mark.quick("LanguageModel")
@every_model
def test_every_model_is_adapted_and_comes_back(model_class, settings, inputs, tmp_path):
    model = model_class(**settings)
    model.enable_lora(2)
    for layer in all_layers(model):
        if getattr(layer, "lora_enabled", False):
            layer.lora_kernel_b.assign(ops.ones(layer.lora_kernel_b.shape))
    model.save(tmp_path / "model.keras")
    twin = keras.models.load_model(tmp_path / "model.keras")
    assert all(is_factor(weight.path) for weight in twin.trainable_weights)
    assert len(twin.trainable_weights) == len(model.trainable_weights) > 0
    expected = outputs_of(model, inputs)
    np.testing.assert_array_equal(outputs_of(twin, inputs), expected)
    merged = outputs_of(model.merge_lora(), inputs)
    np.testing.assert_allclose(merged, expected, atol=1e-4)


def test_the_head_of_an_adapted_classifier_may_be_trained():
    model = TextClassifier.from_encoder(TextEncoder(17, 1, 8, 2, 16), 3)
    model.enable_lora(2)
    model.get_layer("logits").trainable = True
    found = [x.path for x in model.trainable_weights if not is_factor(x.path)]
    assert len(found) == 2, "kernel and bias"


def test_layers_in_a_model_of_ones_own_come_back_adapted(tmp_path):
    inputs = keras.Input((5, 8))
    model = keras.Model(inputs, layers.Encoder(1, 2, 16)(inputs))
    for layer in all_layers(model):
        if layer.name == "query":
            layer.enable_lora(2)
            layer.lora_kernel_b.assign(ops.ones(layer.lora_kernel_b.shape))
    expected = outputs_of(model, STATES)
    model.save(tmp_path / "model.keras")
    twin = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(outputs_of(twin, STATES), expected)
    assert values(twin.weights).keys() == values(model.weights).keys()


@pytest.mark.slow
def test_plain_weights_begin_an_adaptation_anew(tmp_path):
    plain, model = transformer(), transformer()
    plain.save_weights(tmp_path / "plain.weights.h5")
    model.enable_lora(2)
    for weight in model.weights:
        weight.assign(ops.ones(weight.shape))
    model.load_weights(tmp_path / "plain.weights.h5")
    np.testing.assert_allclose(outputs_of(model), outputs_of(plain), atol=1e-6)
    losses = fit(compiled(model), steps=20)
    assert losses[-1] < 0.9 * losses[0], "no gradient"


@pytest.mark.slow
@pytest.mark.parametrize("rank", [None, 3])
def test_weights_of_another_adaptation_go_into_the_kernels(rank, tmp_path):
    adaptation, model = adapted(alpha=5), transformer()
    fit(adaptation)
    if rank:
        model.enable_lora(rank)
    compiled(adaptation).save_weights(tmp_path / "adapted.weights.h5")
    model.load_weights(tmp_path / "adapted.weights.h5")
    expected = outputs_of(adaptation)
    np.testing.assert_allclose(outputs_of(model), expected, atol=1e-5)
    assert np.any(abs(expected - outputs_of(transformer())) > 1e-2)
    if rank:
        losses = fit(compiled(model), steps=20)
        assert losses[-1] < 0.9 * losses[0], "no gradient"


def test_what_cannot_be_adapted_is_told():
    model = transformer()
    with pytest.raises(ValueError, match=r"`rank` must be a positive integer"):
        model.enable_lora(0)
    with pytest.raises(ValueError, match=r"must be among .*'query'.*Received.*'q_proj"):
        model.enable_lora(2, projections=("q_proj",))
    model.enable_lora(2)
    with pytest.raises(ValueError, match=r"call `model.merge_lora\(\)` first"):
        model.enable_lora(2)
    with pytest.raises(ValueError, match=r"Quantize `model.merge_lora\(\)`"):
        model.quantize("int8")


@pytest.mark.usefixtures("few_objects_to_collect")
@pytest.mark.parametrize("mode", ["int8", "int4"])
def test_a_quantised_layer_refuses_an_adaptation_that_it_would_lose(mode, tmp_path):
    adapted, plain = (keras.Sequential([Projection(4, name="p")]) for _ in "12")
    for model in (adapted, plain):
        model.build((None, 8))
        model.layers[0].quantize(mode)
    adapted.layers[0].enable_lora(2)
    adapted.save_weights(tmp_path / "adapted.weights.h5")
    with pytest.raises(ValueError, match=r"`enable_lora\(2, 2\)` on .*p first"):
        plain.load_weights(tmp_path / "adapted.weights.h5")
    plain.layers[0].enable_lora(2)
    plain.load_weights(tmp_path / "adapted.weights.h5")
    x = STATES[0]
    np.testing.assert_array_equal(outputs_of(plain, x), outputs_of(adapted, x))


@pytest.mark.usefixtures("few_objects_to_collect")
def test_adaptations_of_quantised_layers_are_not_merged():
    model = transformer()
    model.quantize("int8")
    layer = next(x for x in all_layers(model) if isinstance(x, Projection))
    layer.enable_lora(2)
    message = "must be merged before the model is quantized"
    with pytest.raises(ValueError, match=message):
        model.merge_lora()


@pytest.mark.quick("language model")
@pytest.mark.usefixtures("few_objects_to_collect")
@pytest.mark.parametrize("name", ["transformer", "language model"])
def test_a_model_in_float8_learns_and_comes_back(name, tmp_path):
    if name == "transformer":
        model, inputs = transformer(), {"source_ids": SOURCE, "target_ids": TARGET}
    else:
        keras.utils.set_random_seed(3)
        model, inputs = LanguageModel(11, 1, 8, 2, 16, dropout=0.0), TARGET
    model.quantize("float8")
    model.compile(Adam(1e-2), TokenCrossentropy())
    losses = model.fit(inputs, LABELS, epochs=7, verbose=0).history["loss"]
    assert losses[-1] < 0.9 * losses[0]
    model.save(tmp_path / "model.keras")
    twin = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(
        twin.predict(inputs, verbose=0), model.predict(inputs, verbose=0)
    )
    twin.fit(inputs, LABELS, verbose=0)


@pytest.mark.slow
@pytest.mark.usefixtures("few_objects_to_collect")
def test_a_quantised_model_is_not_trained():
    model = compiled(transformer())
    before = model.generate(SOURCE, max_length=4).scores
    model.quantize("int8")
    with pytest.raises(ValueError, match="quantized to integers cannot be .* int8"):
        model.fit({"source_ids": SOURCE, "target_ids": TARGET}, LABELS, verbose=0)
    with pytest.raises(ValueError, match="quantized to integers cannot be .* int8"):
        fit(model)
    with pytest.raises(
        ValueError, match="needs a model without earlier adaptation or quantization"
    ):
        model.enable_lora(2)
    # Its programs are those of the integers.
    assert np.any(model.generate(SOURCE, max_length=4).scores != before)
    model.evaluate({"source_ids": SOURCE, "target_ids": TARGET}, LABELS, verbose=0)
