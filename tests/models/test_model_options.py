"""Weight options, dropout and seeds that a model passes to all of its layers."""

import json

import keras
import numpy as np
import pytest
from keras import ops
from model_cases import CASES, every_model

from keras_transformer.models import (
    MaskedLanguageModel,
    TextClassifier,
    TextEncoder,
    VisionTransformer,
)

ALL = {"dropout": 0.3, "attention_dropout": 0.3, "activation_dropout": 0.3}


@keras.saving.register_keras_serializable(package="keras_transformer_tests")
class Total(keras.regularizers.Regularizer):
    """Adds the number of weights, if all of them are one."""

    def __call__(self, weights):
        return ops.sum(weights)

    def get_config(self):
        return {}


def options_of(model_class, option, value):
    kinds = ["kernel", "bias", "embeddings"]
    if model_class is VisionTransformer:
        kinds.remove("embeddings")
    return {f"{kind}_{option}": value for kind in kinds}


def optional_weights(model):
    """The trainable weights that options apply to, by path."""
    others = ("norm", "positions", "class_token", "pooling")
    return {
        weight.path: ops.convert_to_numpy(weight)
        for weight in model.trainable_weights
        if not any(name in weight.path for name in others)
    }


def training_outputs(model, inputs):
    return ops.convert_to_numpy(model(inputs, training=True))


def copies(model, folder):
    """The model from its config, from a file, and as Keras clones it."""
    model.save(folder / "model.keras")
    config = json.loads(json.dumps(model.get_config()))
    yield type(model).from_config(config)
    yield keras.saving.load_model(folder / "model.keras")
    if type(model) is not MaskedLanguageModel:
        yield keras.models.clone_model(model)


@pytest.mark.quick("TextClassifier")
@every_model
def test_weight_options_reach_every_layer(model_class, settings, inputs, tmp_path):
    options = options_of(model_class, "initializer", "ones")
    options |= options_of(model_class, "regularizer", Total())
    options |= options_of(model_class, "constraint", "non_neg")
    model = model_class(**settings, **options)
    for twin in (model, *copies(model, tmp_path)):
        arrays = optional_weights(twin)
        assert len(twin.losses) == len(arrays)
        assert all(np.all(array == 1) for array in arrays.values())
        sizes = sum(array.size for array in arrays.values())
        losses = [float(ops.convert_to_numpy(loss)) for loss in twin.losses]
        assert sum(losses) == sizes
    variables = model.trainable_variables
    keras.optimizers.SGD(100.0).apply([ops.ones(x.shape) for x in variables], variables)
    assert all(np.all(array == 0) for array in optional_weights(model).values())


@pytest.mark.quick("LanguageModel", "TextClassifier")
@every_model
def test_options_that_are_not_given_stay_out_of_the_config(
    model_class, settings, inputs
):
    model = model_class(**settings)
    assert not [name for name in model.get_config() if name.endswith("izer")]
    assert not model.losses


@pytest.mark.quick("TextEncoder", "MaskedLanguageModel", "TextClassifier")
@every_model
def test_no_two_kernels_of_a_model_begin_with_the_same_numbers(
    model_class, settings, inputs
):
    normal = keras.initializers.RandomNormal(seed=7)
    twins = [model_class(**settings, kernel_initializer=normal) for _ in range(2)]
    once, again = (
        {path: x for path, x in optional_weights(m).items() if path.endswith("kernel")}
        for m in twins
    )
    assert len(once) >= 2 * 6
    assert len({array.ravel()[0] for array in once.values()}) == len(once)
    for array, other in zip(once.values(), again.values(), strict=True):
        np.testing.assert_array_equal(array, other)


@pytest.mark.parametrize(
    ("model_class", "settings"),
    [(MaskedLanguageModel, {}), (TextClassifier, {"num_classes": 3})],
    ids=["MaskedLanguageModel", "TextClassifier"],
)
def test_a_seeded_initializer_repeats_the_head_of_every_model_of_one_encoder(
    model_class, settings
):
    normal = keras.initializers.RandomNormal(seed=7)
    sizes = {"num_layers": 1, "hidden_dim": 6, "num_heads": 2, "intermediate_dim": 5}
    encoder = TextEncoder(11, **sizes, kernel_initializer=normal)
    twins = [model_class.from_encoder(encoder, **settings) for _ in range(2)]
    twins.append(model_class.from_config(twins[0].get_config()))
    once, *others = map(optional_weights, twins)
    for other in others:
        for path, array in once.items():
            if path.endswith("kernel"):
                np.testing.assert_array_equal(other[path], array)


@pytest.mark.slow
@every_model
def test_a_seed_repeats_what_a_model_drops(model_class, settings, inputs, tmp_path):
    model = model_class(**settings, **ALL, seed=7)
    weights = model.get_weights()
    expected = training_outputs(model, inputs)
    for seed in (7, 11, None):
        twin = model_class(**settings, **ALL, seed=seed)
        twin.set_weights(weights)
        outputs = training_outputs(twin, inputs)
        assert np.array_equal(outputs, expected) == (seed == 7)
    for twin in copies(model, tmp_path):
        assert not hasattr(twin, "settings") or twin.settings["seed"] == 7
    twin = model_class.from_config(model.get_config())
    twin.set_weights(weights)
    np.testing.assert_array_equal(training_outputs(twin, inputs), expected)


@pytest.mark.quick(
    "LanguageModel-settings1-inputs1-9",
    "TextEncoder-settings2-inputs2-9",
    "VisionTransformer-settings5-inputs",
)
@pytest.mark.parametrize(("model_class", "settings", "inputs", "count"), CASES)
def test_every_dropout_of_a_model_has_a_seed_of_its_own(
    model_class, settings, inputs, count
):
    model = model_class(**settings, **ALL, seed=7)
    seeds = [
        int(ops.convert_to_numpy(variable)[0])
        for variable in model.variables
        if "seed_generator" in variable.path
    ]
    assert len(set(seeds)) == len(seeds) == count


@pytest.mark.quick(
    "attention_dropout-VisionTransforme",
    "activation_dropout-LanguageModel",
    "activation_dropout-TextEncoder",
)
@every_model
@pytest.mark.parametrize("name", ALL)
def test_a_model_drops_where_its_rates_say(name, model_class, settings, inputs):
    model = model_class(**settings, **{"dropout": 0.0, name: 0.5}, seed=7)
    dropped = training_outputs(model, inputs)
    assert np.any(dropped != ops.convert_to_numpy(model(inputs, training=False)))


@pytest.mark.slow
def test_a_model_with_all_options_trains():
    model_class, settings, inputs, _ = CASES[1]
    model = model_class(**settings, **ALL, seed=7, kernel_regularizer="l2")
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    with_penalty = model.evaluate(inputs, inputs, verbose=0)
    plain = model_class(**settings)
    plain.set_weights(model.get_weights())
    plain.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    kernels = [x for path, x in optional_weights(model).items() if "kernel" in path]
    penalty = 0.01 * sum(np.sum(kernel**2) for kernel in kernels)
    without = plain.evaluate(inputs, inputs, verbose=0)
    np.testing.assert_allclose(with_penalty, without + penalty, 1e-4)
    assert np.isfinite(model.train_on_batch(inputs, inputs))


@pytest.mark.quick("TextEncoder", "MaskedLanguageModel", "TextClassifier")
@every_model
def test_unknown_arguments_are_refused(model_class, settings, inputs):
    with pytest.raises(TypeError, match="attention_droput"):
        model_class(**settings, attention_droput=0.1)


def test_an_image_model_has_no_embeddings_to_initialize():
    model_class, settings, *_ = CASES[-1]
    with pytest.raises(TypeError, match="embeddings_initializer"):
        model_class(**settings, embeddings_initializer="zeros")


@pytest.mark.quick("TextEncoder", "TextClassifier", "VisionTransformer")
@every_model
def test_a_regularizer_without_a_config_can_be_trained_with(
    model_class, settings, inputs
):
    model = model_class(**settings, kernel_regularizer=lambda kernel: ops.sum(kernel))
    assert len(model.losses) == sum(
        path.endswith("kernel") for path in optional_weights(model)
    )
