"""What all models have in common: complete configs, half precision and exports."""

import functools
import inspect
import re

import keras
import numpy as np
import pytest
from model_cases import CASES, IDS, every_model

import keras_transformer as kt
from keras_transformer.models import TextEncoder, VisionTransformer

OTHER = {
    "dropout": 0.3,
    "normalize_first": True,
    "activation": "tanh",
    "pad_id": 4,
    "start_id": 5,
    "end_id": 6,
    "positions": "linear_bias",
    "attention_dropout": 0.2,
    "activation_dropout": 0.1,
    "seed": 7,
    "target_vocabulary_size": 19,
    "num_decoder_layers": 1,
    "epsilon": 1e-3,
    "scale_embeddings": False,
    "output_bias": True,
    "name": "mine",
}


def arguments_of(model_class):
    """The names of all arguments, those of an encoder inside too."""
    names = {"name", *inspect.signature(model_class).parameters}
    if "encoder" in names:
        names |= {*inspect.signature(TextEncoder).parameters}
    names |= {"positions", "attention_dropout", "activation_dropout", "seed", "epsilon"}
    return names - {"encoder", "dtype", "trainable", "kwargs", "settings", "pooling"}


@every_model
def test_a_misspelt_argument_is_named_with_the_model(model_class, settings, inputs):
    # Some make an encoder of the arguments that they do not have themselves.
    names = f"`({model_class.__name__}|TextEncoder)`"
    message = f"{names} has no argument `num_head`. .* num_head=3"
    with pytest.raises(TypeError, match=message):
        model_class(**settings, num_head=3)


@pytest.mark.quick(
    "False-MaskedLanguageModel", "False-TextClassifier", "False-VisionTransformer"
)
@every_model
@pytest.mark.parametrize("normalize_first", [True, False])
def test_the_config_names_every_argument(
    normalize_first, model_class, settings, inputs
):
    names = arguments_of(model_class)
    given = {name: OTHER[name] for name in OTHER if name in names}
    arguments = {**settings, **given, "normalize_first": normalize_first}
    assert arguments.keys() == names
    model = model_class(**arguments, dtype="mixed_bfloat16", trainable=False)
    config = model.get_config()
    found = {name: config[name] for name in names - {"image_shape"}}
    assert found == {name: arguments[name] for name in found}
    assert config["dtype"]["config"] == {"name": "mixed_bfloat16"}
    assert not config["trainable"]
    twin = model_class.from_config(config)
    assert twin.get_config() == config
    assert [x.path for x in twin.weights] == [x.path for x in model.weights]
    assert not twin.trainable_weights


@pytest.mark.quick("Transformer", "TextClassifier")
@every_model
def test_half_precision_training_scales_its_loss(model_class, settings, inputs):
    model = model_class(**settings, dtype="mixed_float16")
    model.compile("adam", loss="mse")
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)


@pytest.mark.slow  # as serving/ shows of translators
@every_model
@pytest.mark.needs_tensorflow
def test_a_saved_model_gives_the_live_numbers(model_class, settings, inputs, tmp_path):
    import tensorflow as tf

    model = model_class(**{**settings, "num_layers": 1})
    model.export(tmp_path / "served", verbose=False)
    served = tf.saved_model.load(tmp_path / "served")
    for rows in (slice(None), slice(1)):
        some = keras.tree.map_structure(lambda x, rows=rows: x[rows], inputs)
        np.testing.assert_allclose(served.serve(some), model(some), 1e-4, 1e-5)


@pytest.mark.quick("LanguageModel-fit", "TextClassifier-train_on_batch")
@pytest.mark.parametrize("method", ["fit", "train_on_batch"])
@every_model
def test_class_weights_weigh_classes_and_tokens_need_sample_weights(
    model_class, settings, inputs, method
):
    model = model_class(**settings)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    train = functools.partial(getattr(model, method), inputs, class_weight={1: 0, 2: 0})
    if len(model.outputs[0].shape) == 2:
        result = train(np.array([1, 2]))
        loss = result.history["loss"] if method == "fit" else result
        assert np.squeeze(loss) == 0
    else:
        with pytest.raises(ValueError, match="Weigh tokens by a `sample_weight` of"):
            train(IDS)


@pytest.mark.quick("evaluate")
@pytest.mark.parametrize("method", ["fit", "evaluate"])
def test_one_model_takes_weights_of_sentences_and_of_tokens(method):
    model_class, settings, inputs, _ = CASES[1]
    model = model_class(**{**settings, "num_layers": 1, "dropout": 0.0})
    metrics = [keras.metrics.SparseCategoricalCrossentropy(from_logits=True)]
    if keras.backend.backend() == "torch":  # Keras multiplies the mask in place
        metrics = None
    loss = kt.training.TokenCrossentropy()
    model.compile(keras.optimizers.SGD(0.0), loss, weighted_metrics=metrics)
    weights = np.array([0.5, 2.0])

    def results(weights):
        result = getattr(model, method)(inputs, IDS, sample_weight=weights, verbose=0)
        return np.squeeze(list(result.history.values()) if method == "fit" else result)

    of_sentences = results(weights)
    of_tokens = results(np.repeat(weights[:, None], IDS.shape[1], axis=1))
    np.testing.assert_allclose(of_tokens, of_sentences, 1e-5)
    np.testing.assert_allclose(results(weights), of_sentences, 1e-5)
    assert np.all(np.abs(results(weights[::-1]) - of_sentences) > 1e-4)


@pytest.mark.filterwarnings("ignore:Skipping nested container")  # Keras, of a block
@pytest.mark.quick("LanguageModel-model.weights.h5")
@pytest.mark.parametrize(
    "name", ["model.keras", "model.weights.h5", "model.weights.json"]
)
@every_model
def test_weights_of_another_size_are_refused_with_both_shapes(
    model_class, settings, inputs, name, tmp_path
):
    model = model_class(**settings)
    save = model.save if name.endswith(".keras") else model.save_weights
    save(tmp_path / name, **({"max_shard_size": 1e-6} if "json" in name else {}))
    for change in ({"hidden_dim": 8}, {"intermediate_dim": 7}):
        other = model_class(**{**settings, **change})
        with pytest.raises(ValueError, match="same settings.*of the shape") as raised:
            other.load_weights(tmp_path / name)
        assert "\n" not in str(raised.value)
        assert len(re.findall(r"\([0-9, ]+\)", str(raised.value))) == 2
    deeper = model_class(**{**settings, "num_layers": 3})
    with pytest.raises(ValueError, match="missing, where the model has"):
        deeper.load_weights(tmp_path / name)
    model.load_weights(tmp_path / name)


@pytest.mark.quick(
    "Transformer-__call__", "LanguageModel-evaluate", "TextClassifier-predict"
)
@pytest.mark.needs_tensorflow
@pytest.mark.parametrize("method", ["__call__", "evaluate", "predict"])
@every_model
def test_ids_out_of_the_vocabulary_are_named(model_class, settings, inputs, method):
    if model_class is VisionTransformer:
        pytest.skip("It has no vocabulary.")
    model = model_class(**settings)
    model.compile("sgd", "mse", jit_compile=False)
    labels = [np.zeros(model(inputs).shape)] if method == "evaluate" else []
    inputs = keras.tree.map_structure(lambda ids: np.where(ids == 5, 1009, ids), inputs)
    with pytest.raises(ValueError, match="vocabulary of 17 tokens. Received: 1009, in"):
        getattr(model, method)(inputs, *labels)


@pytest.mark.needs_tensorflow
def test_a_model_built_outside_of_the_scope_of_its_strategy_is_refused():
    import tensorflow as tf

    model_class, settings, inputs, _ = CASES[1]
    settings = {**settings, "num_layers": 1}
    model = model_class(**settings)
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        model.compile("sgd", "mse")
        with pytest.raises(ValueError, match="must be built within the strategy's sco"):
            model.fit(inputs, inputs, verbose=0)
        model = model_class(**settings)
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy())
        model.fit(inputs, inputs, verbose=0)
