"""Every scheme of positions, wherever one can be chosen."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import (
    AttentionPooling,
    CausalDecoder,
    Decoder,
    Encoder,
    LearnedPositionalEncoding,
    SinusoidalPositionalEncoding,
)
from keras_transformer.models import (
    LanguageModel,
    MaskedLanguageModel,
    TextClassifier,
    TextEncoder,
    Transformer,
    VisionTransformer,
)

VOCABULARY, LENGTH, WIDTH = 17, 7, 8
SIZES = {"num_layers": 1, "num_heads": 2, "intermediate_dim": 11}
SCHEMES = {
    "none": None,
    "sinusoidal": "sinusoidal",
    "rotary": "rotary",
    "linear bias": "linear_bias",
    "learned": LearnedPositionalEncoding(LENGTH),
    "concatenated": SinusoidalPositionalEncoding(100, "concatenate", encoding_dim=2),
}
IDS = np.array([[5, 11, 7, 13, 6]], "int32")
TURNED = np.array([[13, 7, 11, 5, 6]], "int32")
VECTORS = np.random.default_rng(0).normal(size=(VOCABULARY, WIDTH)).astype("float32")


def stack(layer_class, *others):
    """A stack of layers, and how to call it with ids."""
    return lambda positions: (
        layer_class(**SIZES, positions=positions),
        lambda ids: (VECTORS[ids], *others),
    )


def model(model_class, inputs_of=lambda ids: (ids,), **arguments):
    """A ready model, and how to call it with ids."""
    arguments = {"hidden_dim": WIDTH, **SIZES, **arguments}
    return lambda positions: (
        model_class(**arguments, positions=positions),
        inputs_of,
    )


def image(ids):
    """An image of a row of pixels, each a patch."""
    return (VECTORS[ids][:, None],)


IMAGES = {"image_shape": (1, 5, WIDTH), "patch_size": 1, "num_classes": 3}
MODELS = {
    "source of a transformer": model(
        Transformer,
        lambda ids: ({"source_ids": ids, "target_ids": IDS[:, :3]},),
        source_vocabulary_size=VOCABULARY,
    ),
    "target of a transformer": model(
        Transformer,
        lambda ids: ({"source_ids": IDS[:, :3], "target_ids": ids},),
        source_vocabulary_size=VOCABULARY,
    ),
    "language model": model(LanguageModel, vocabulary_size=VOCABULARY),
    "text encoder": model(TextEncoder, vocabulary_size=VOCABULARY),
    "masked language model": model(MaskedLanguageModel, vocabulary_size=VOCABULARY),
    "text classifier": model(TextClassifier, vocabulary_size=VOCABULARY, num_classes=3),
    "vision transformer": model(VisionTransformer, image, **IMAGES),
    "pooled vision transformer": model(
        VisionTransformer, image, **IMAGES, pooling=AttentionPooling()
    ),
}
PLACES = {
    "encoder": stack(Encoder),
    "decoder": stack(Decoder, VECTORS[None, 3:6]),
    "causal decoder": stack(CausalDecoder),
    **MODELS,
}


def fill(layer):
    """Gives a layer weights that all matter."""
    draw = np.random.default_rng(1)
    for weight in layer.weights:
        if "seed" not in weight.path:
            mean = float(weight.path.endswith("gamma"))
            weight.assign(draw.normal(mean, 0.3, weight.shape))


def last(layer, inputs):
    """What stands last in the outputs: it has seen all of the inputs."""
    outputs = ops.convert_to_numpy(layer(*inputs))
    return outputs[:, -1] if outputs.ndim == 3 else outputs


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("place", PLACES)
def test_the_order_of_what_came_before_counts_where_there_are_positions(place, scheme):
    layer, inputs_of = PLACES[place](SCHEMES[scheme])
    layer(*inputs_of(IDS))
    fill(layer)
    one, other = (last(layer, inputs_of(ids)) for ids in (IDS, TURNED))
    difference = np.abs(one - other).max() / np.abs(one).max()
    assert (difference < 1e-5) if scheme == "none" else (difference > 1e-3)


@pytest.mark.quick("text encoder-concatenated")
@pytest.mark.parametrize("scheme", ["none", "rotary", "concatenated"])
@pytest.mark.parametrize("name", sorted(set(MODELS) - {"target of a transformer"}))
def test_a_reloaded_model_keeps_its_positions(name, scheme, tmp_path):
    model, inputs_of = MODELS[name](SCHEMES[scheme])
    fill(model)
    model.save(tmp_path / "model.keras")
    reloaded = keras.models.load_model(tmp_path / "model.keras")
    assert reloaded.get_config() == model.get_config()
    one, other = (last(each, inputs_of(IDS)) for each in (model, reloaded))
    np.testing.assert_array_equal(one, other)


@pytest.mark.slow
@pytest.mark.needs_tensorflow
@pytest.mark.parametrize("name", ["source of a transformer", "text encoder"])
def test_an_exported_model_keeps_its_positions(name, tmp_path):
    import tensorflow as tf

    model, inputs_of = MODELS[name](SCHEMES["concatenated"])
    fill(model)
    model.export(tmp_path / "served", verbose=False)
    served = tf.saved_model.load(tmp_path / "served")
    one, other = (last(each, inputs_of(IDS)) for each in (model, served.serve))
    np.testing.assert_allclose(one, other, 1e-4, 1e-5)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_schemes_of_no_such_name_are_refused_in_one_line(name):
    message = "`positions` must be one of .*'linear_bias'.* Received: positions='alibi'"
    with pytest.raises(ValueError, match=message) as caught:
        MODELS[name]("alibi")
    assert "\n" not in str(caught.value)


def test_a_vision_transformer_learns_its_positions_unless_told_otherwise():
    arguments = {"hidden_dim": WIDTH, **SIZES, **IMAGES}
    shapes = {w.path: w.shape for w in VisionTransformer(**arguments).weights}
    assert shapes["encoder/positions/table"] == (6, WIDTH)
