"""Every layer with weights takes their initializers, regularizers and constraints."""

import json

import keras
import numpy as np
import pytest
from keras import ops
from layer_cases import CASES

from keras_transformer import layers
from keras_transformer.layers import Encoder, MultiHeadAttention
from keras_transformer.layers.weights import WeightOptionsLayer, sub_seed

OTHER_KINDS = {
    "AttentionPooling": {"query"},
    "ClassToken": {"token"},
    "LearnedPositionalEncoding": {"embeddings"},
    "TokenEmbedding": {"embeddings"},
}
WITHOUT_WEIGHTS = {
    "DotProductAttention",
    "LinearPositionBias",
    "RotaryEmbedding",
    "SinusoidalPositionalEncoding",
}
WITHOUT_BIAS = {"AdditiveAttention", "MultiplicativeAttention"}
NAMES = sorted(set(CASES) - WITHOUT_WEIGHTS)
QUERY, VALUE = np.ones((2, 5, 6), "float32"), np.ones((2, 7, 6), "float32")


@keras.saving.register_keras_serializable(package="keras_transformer_tests")
class Sum(keras.regularizers.Regularizer):
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, weights):
        return self.factor * ops.sum(weights)

    def get_config(self):
        return {"factor": self.factor}


@keras.saving.register_keras_serializable(package="keras_transformer_tests")
def halves(shape, dtype=None):
    return ops.full(shape, 0.5, dtype)


def kinds_of(name):
    both = {"kernel", "bias"} - ({"bias"} if name in WITHOUT_BIAS else set())
    return OTHER_KINDS.get(name, both)


def called(name, **options):
    layer_class, (settings, inputs, _) = getattr(layers, name), CASES[name]
    layer = layer_class(**settings, **options)
    layer(**inputs)
    return layer


def weights_of(layer):
    """The kind and the array of every weight but those of normalisations."""
    return [
        ("bias" if weight.name == "bias" else "kernel", ops.convert_to_numpy(weight))
        for weight in layer.weights
        if "norm" not in weight.path
    ]


@pytest.mark.quick("AdditiveAttention", "AttentionPooling", "CausalBlock")
@pytest.mark.parametrize("name", NAMES)
def test_an_initializer_reaches_every_weight(name):
    layer = called(name, **{f"{kind}_initializer": "ones" for kind in kinds_of(name)})
    assert weights_of(layer)
    assert all(np.all(array == 1) for _, array in weights_of(layer))


@pytest.mark.quick("AdditiveAttention", "AttentionPooling", "CausalBlock")
@pytest.mark.parametrize("name", NAMES)
def test_regularizers_add_the_loss_of_every_weight_once(name):
    factors = {kind: 3.0 if kind == "bias" else 2.0 for kind in kinds_of(name)}
    options = {f"{kind}_regularizer": Sum(factors[kind]) for kind in factors}
    layer = called(
        name, **options, **{f"{kind}_initializer": "ones" for kind in factors}
    )
    expected = [(3.0 if x == "bias" else 2.0) * a.size for x, a in weights_of(layer)]
    assert len(layer.losses) == len(expected)
    losses = [float(ops.convert_to_numpy(loss)) for loss in layer.losses]
    np.testing.assert_allclose(sum(losses), sum(expected))


@pytest.mark.quick("AdditiveAttention", "AttentionPooling", "ClassToken")
@pytest.mark.parametrize("name", NAMES)
def test_a_constraint_holds_after_an_update(name):
    layer = called(name, **{f"{kind}_constraint": "non_neg" for kind in kinds_of(name)})
    variables = layer.trainable_variables
    keras.optimizers.SGD(100.0).apply([ops.ones(x.shape) for x in variables], variables)
    assert all(np.all(array == 0) for _, array in weights_of(layer))


@pytest.mark.quick("AdditiveAttention", "AttentionPooling", "ClassToken")
@pytest.mark.parametrize("name", NAMES)
def test_the_config_holds_what_was_given_and_nothing_else(name):
    assert not [key for key in called(name).get_config() if key.endswith("izer")]
    [kind, *_] = sorted(kinds_of(name))
    options = {f"{kind}_initializer": halves, f"{kind}_regularizer": Sum(2.0)}
    layer = called(name, **options, **{f"{kind}_constraint": None})
    config = keras.saving.serialize_keras_object(layer)
    restored = keras.saving.deserialize_keras_object(json.loads(json.dumps(config)))
    assert restored.get_config() == layer.get_config()
    assert f"{kind}_constraint" in layer.get_config()
    restored(**CASES[name][1])
    assert len(restored.losses) == len(layer.losses) > 0
    arrays = [array for _, array in weights_of(restored)]
    assert any(np.all(array == 0.5) for array in arrays)


@pytest.mark.parametrize(
    "name", ["DotProductAttention", "AdditiveAttention", "Residual"]
)
def test_options_of_weights_that_a_layer_lacks_are_refused(name):
    settings, *_ = CASES.get(name, ({},))
    with pytest.raises(ValueError, match="bias_initializer"):
        getattr(layers, name)(**settings, bias_initializer="zeros")


def initial_kernels(layer, *shapes):
    layer.build(*shapes)
    return [array for kind, array in weights_of(layer) if kind == "kernel"]


SEEDED = keras.initializers.RandomNormal(seed=7)


@pytest.mark.quick("name", "object")
@pytest.mark.parametrize(
    "initializer",
    [
        "random_normal",
        keras.initializers.RandomNormal,
        keras.initializers.RandomNormal(),
        SEEDED,
        keras.initializers.RandomNormal(seed=keras.random.SeedGenerator(7)),
    ],
    ids=["name", "class", "object", "seed", "seed generator"],
)
def test_no_two_kernels_begin_with_the_same_numbers(initializer):
    encoder = Encoder(2, 2, 6, kernel_initializer=initializer)
    kernels = initial_kernels(encoder, (2, 5, 6))
    assert len({array.ravel()[0] for array in kernels}) == len(kernels) == 12
    other = MultiHeadAttention(2, 3, **encoder.weight_options.of("kernel", name="x"))
    kernels = initial_kernels(other, QUERY.shape, VALUE.shape)
    assert len({array.ravel()[0] for array in kernels}) == len(kernels) == 4


def test_a_kernel_and_its_bias_begin_with_different_numbers():
    options = {"kernel_initializer": SEEDED, "bias_initializer": SEEDED}
    layer = MultiHeadAttention(2, 3, **options)
    layer.build(QUERY.shape, VALUE.shape)
    firsts = {array.ravel()[0] for _, array in weights_of(layer)}
    assert len(firsts) == len(layer.weights) == 8


def test_a_seeded_initializer_repeats_all_weights():
    twins = [Encoder(2, 2, 6, kernel_initializer=SEEDED) for _ in range(2)]
    twins.append(Encoder.from_config(twins[0].get_config()))
    once, *others = [initial_kernels(twin, (2, 5, 6)) for twin in twins]
    for other in others:
        np.testing.assert_array_equal(np.hstack(other, dtype=None), np.hstack(once))


def test_a_layer_of_its_own_takes_options_of_its_own_weights():
    class Scale(WeightOptionsLayer):
        weight_kinds = ("scale",)

        def build(self, input_shape):
            shape = input_shape[-1:]
            self.scale = self.add_weight_with_options("scale", shape, "ones")

        def call(self, inputs):
            return inputs * self.scale

    plain, layer = Scale(), Scale(scale_initializer="zeros", scale_regularizer="l2")
    assert np.all(ops.convert_to_numpy(plain(QUERY)) == QUERY)
    assert np.all(ops.convert_to_numpy(layer(QUERY)) == 0)
    assert layer.scale.name == "scale"
    assert len(layer.losses) == 1


def test_seeds_of_sublayers_differ_and_fit_in_31_bits():
    seeds = {sub_seed(seed, f"block_{i}") for seed in range(5) for i in range(200)}
    assert len(seeds) == 1000
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert sub_seed(None, "block_0") is None
