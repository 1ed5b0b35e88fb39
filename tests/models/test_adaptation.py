"""Frozen and quantized layers at any depth come back so."""

import json

import keras
import numpy as np
import pytest
from keras import ops
from model_cases import every_model

from keras_transformer import layers
from keras_transformer.keras_private import all_layers
from keras_transformer.models import TextClassifier, TextEncoder, Transformer

pytestmark = pytest.mark.usefixtures("few_objects_to_collect")
STATES = np.random.default_rng(5).normal(size=(2, 5, 8)).astype("float32")


def loaded(model, folder):
    model.save(folder / "model.keras")
    return keras.models.load_model(folder / "model.keras")


def trainable(model):
    return [weight.path for weight in model.trainable_weights]


def quantized(model):
    return [x.path for x in all_layers(model) if x.quantization_mode is not None]


def outputs_of(model, inputs):
    return ops.convert_to_numpy(ops.cast(model(inputs), "float32"))


def blocks(model):
    return [x for x in all_layers(model) if isinstance(x, layers.EncoderBlock)]


@pytest.mark.quick("TextEncoder")
@every_model
def test_a_frozen_block_comes_back_frozen(model_class, settings, inputs, tmp_path):
    model = model_class(**settings)
    everything = trainable(model)
    blocks(model)[-1].trainable = False
    expected = trainable(model)
    assert 0 < len(expected) < len(everything)
    assert trainable(loaded(model, tmp_path)) == expected


def test_frozen_layers_are_named_once():
    model = Transformer(17, 17, 2, 8, 2, 16)
    inner = [x for x in all_layers(model) if x.path == "encoder/block_1/feed_forward"]
    for layer in (model.get_layer("decoder"), *inner):
        layer.trainable = False
    paths = json.loads(json.dumps(model.get_config()["frozen"]))
    assert len(paths) == 2
    assert [path[1:] for path in paths if len(path) > 1] == [
        ["encoder/block_1/feed_forward"]
    ]
    twin = Transformer.from_config(model.get_config())
    assert trainable(twin) == trainable(model)


def test_a_block_is_frozen_inside_of_a_model_of_another_name(tmp_path):
    encoder = TextEncoder(17, 2, 8, 2, 16, name="pretrained")
    blocks(encoder)[0].trainable = False
    model = TextClassifier.from_encoder(encoder, 3)
    found = trainable(loaded(model, tmp_path))
    assert len(found) == len(model.trainable_weights)


@pytest.mark.quick("LanguageModel-int8")
@pytest.mark.parametrize("mode", ["int8", "int4"])
@every_model
def test_a_quantised_model_comes_back(model_class, settings, inputs, mode, tmp_path):
    model = model_class(**settings)
    before = outputs_of(model, inputs)
    model.quantize(mode)
    expected = outputs_of(model, inputs)
    assert np.any(expected != before)
    twin = loaded(loaded(model, tmp_path), tmp_path)
    assert quantized(twin) == quantized(model)
    np.testing.assert_array_equal(outputs_of(twin, inputs), expected)


@pytest.mark.quick("rotary")
@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
@pytest.mark.parametrize("positions", [None, "rotary", "linear_bias", "sinusoidal"])
def test_a_layer_that_is_quantised_inside_comes_back(positions, tmp_path):
    inputs = keras.Input((5, 8))
    attended = layers.MultiHeadAttention(2, 4)(inputs, inputs)
    encoder = layers.Encoder(1, 2, 16, positions=positions)
    model = keras.Model(inputs, encoder(attended))
    model.quantize("int8")
    expected = outputs_of(model, STATES)
    twin = loaded(loaded(model, tmp_path), tmp_path)
    assert len(quantized(twin)) == len(quantized(model)) == 4 + 4 + 2
    np.testing.assert_array_equal(outputs_of(twin, STATES), expected)


@pytest.mark.quick("pooling")
@pytest.mark.parametrize("name", ["encoder/block_0", "query", "pooling"])
def test_what_is_frozen_inside_comes_back_in_a_model_of_keras(name, tmp_path):
    inputs = keras.Input((5, 8))
    states = layers.Encoder(2, 2, 16, name="encoder")(inputs)
    model = keras.Model(inputs, layers.AttentionPooling(name="pooling")(states))
    everything = trainable(model)
    for inner in all_layers(model):
        if inner.weights and (inner.path or "").endswith(name):
            inner.trainable = False
    expected = trainable(model)
    assert len(expected) < len(everything)
    twin = loaded(loaded(model, tmp_path), tmp_path)
    assert trainable(twin) == expected


def test_what_is_trainable_inside_of_a_frozen_block_comes_back(tmp_path):
    inputs = keras.Input((5, 8))
    model = keras.Model(inputs, layers.Encoder(2, 2, 16, name="encoder")(inputs))
    block = model.get_layer("encoder").blocks[0]
    block.trainable = False
    next(x for x in all_layers(block) if x.name == "widen").trainable = True
    twin = loaded(loaded(model, tmp_path), tmp_path)
    assert trainable(twin) == trainable(model)
    assert any("block_0" in path for path in trainable(twin))


@pytest.mark.quick("weights alone")
@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
@pytest.mark.parametrize(
    "config",
    [
        keras.quantizers.Int8QuantizationConfig(activation_quantizer=None),
        keras.quantizers.Int4QuantizationConfig(block_size=None),
    ],
    ids=["weights alone", "a scale for each channel"],
)
def test_how_a_layer_was_quantised_comes_back(config, tmp_path):
    inputs = keras.Input((5, 8))
    model = keras.Model(inputs, layers.Encoder(1, 2, 16)(inputs))
    model.quantize(config=config)
    expected = outputs_of(model, STATES)
    twin = loaded(loaded(model, tmp_path), tmp_path)
    np.testing.assert_array_equal(outputs_of(twin, STATES), expected)
