"""Every public layer passes the checks that Keras puts its own layers to."""

import keras
import numpy as np
import pytest
from layer_cases import CASES, ELSEWHERE, PUBLIC, WITHOUT_MASKS
from layer_contract import check_layer

from keras_transformer import layers

try:
    from keras.src.testing import TestCase
except ImportError:  # It is not public: then the contract has to do.
    TestCase = None


def test_no_layer_is_left_out():
    assert set(CASES) | ELSEWHERE == PUBLIC
    assert not set(CASES) & ELSEWHERE


# Keras fits any layer on a generator, by its default to shuffle it.
@pytest.mark.quick(
    "AdditiveAttention", "DotProductAttention", "MultiplicativeAttention"
)
@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")
@pytest.mark.filterwarnings("ignore:The model does not have any trainable weights")
@pytest.mark.parametrize("name", CASES)
def test_a_layer_passes_the_checks_of_keras(name):
    layer_class = getattr(layers, name)
    settings, inputs, shape = CASES[name]
    supports_masking = name not in WITHOUT_MASKS
    if TestCase is None:
        check_layer(
            layer_class, settings, inputs, shape, supports_masking=supports_masking
        )
        return
    if len(inputs) == 1:
        [array] = inputs.values()
        how = {"input_data": array}
    else:
        shapes = {f"{key}_shape": array.shape for key, array in inputs.items()}
        # Keras trains on layers of one input only.
        how = {"input_shape": shapes, "run_training_check": False}
    TestCase().run_layer_test(
        layer_class,
        settings,
        expected_output_shape=shape,
        supports_masking=supports_masking,
        **how,
    )


@pytest.mark.parametrize("name", CASES)
def test_the_shape_of_the_outputs_is_known_without_a_call(name):
    settings, inputs, expected = CASES[name]
    layer = getattr(layers, name)(**settings)
    shapes = {f"{key}_shape": (None, *x.shape[1:]) for key, x in inputs.items()}
    if len(shapes) == 1:
        shape = layer.compute_output_shape(*shapes.values())
    else:
        shape = layer.compute_output_shape(**shapes)
    assert tuple(shape) == (None, *expected[1:])


def test_documents_are_read_sentence_by_sentence():
    """`TimeDistributed` asks for shapes, and passes masks on."""
    ids = keras.Input((None, None), dtype="int32")
    embedding = layers.TokenEmbedding(11, 8)
    encoder = layers.Encoder(1, 2, 16, positions="rotary")
    pooling = layers.AttentionPooling()
    states = keras.layers.TimeDistributed(encoder)(embedding(ids))
    sentences = keras.layers.TimeDistributed(pooling)(states)
    model = keras.Model(ids, sentences)
    assert model.output_shape == (None, None, 8)
    document = np.array([[[3, 5, 7, 2], [4, 6, 0, 0], [9, 0, 0, 0]]])
    found = keras.ops.convert_to_numpy(model(document))
    for sentence, vector in zip(document[0], found[0], strict=True):
        alone = pooling(encoder(embedding(sentence[None, sentence > 0])))
        alone = keras.ops.convert_to_numpy(alone)[0]
        np.testing.assert_allclose(vector, alone, 1e-5, 1e-6)


@pytest.mark.parametrize(
    ("name", "num_layers"),
    [
        ("EncoderBlock", []),
        ("DecoderBlock", []),
        ("CausalBlock", []),
        ("Encoder", [2]),
        ("Decoder", [2]),
        ("CausalDecoder", [2]),
    ],
)
def test_an_error_names_the_class_that_lacks_an_argument(name, num_layers):
    message = f"^{name}: missing a required argument: 'num_heads'. Received: .*_head=3"
    with pytest.raises(TypeError, match=message):
        getattr(layers, name)(*num_layers, num_head=3)
