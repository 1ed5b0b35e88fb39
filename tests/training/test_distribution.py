import functools
import json

import numpy as np
import pytest
import tensorflow as tf
from forked import run_program
from keras import ops

from keras_transformer.training import distribution, pick_strategy, split_evenly


@pytest.mark.parametrize("name", ["auto", "default"])
def test_one_device_needs_no_mirrors(name):
    if len(tf.config.list_logical_devices("GPU")) > 1:
        pytest.skip("There are several GPUs here.")
    strategy = pick_strategy(name)
    assert strategy is tf.distribute.get_strategy()
    assert strategy.num_replicas_in_sync == 1


def test_a_mirrored_strategy_is_picked_by_name():
    assert isinstance(pick_strategy("mirrored"), tf.distribute.MirroredStrategy)


def test_unknown_strategies_are_refused():
    with pytest.raises(
        ValueError, match='must be "auto", "default", "mirrored", .*tpu'
    ):
        pick_strategy("tpu")


@pytest.mark.parametrize(("name", "num_workers"), [("mirrored", 0), ("auto", 2)])
def test_replicas_and_workers_are_refused_on_other_backends(
    name, num_workers, monkeypatch
):
    monkeypatch.setattr(distribution.target, "BACKEND", "jax")
    cluster = {"worker": ["a:1", "b:1"][:num_workers]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster}))
    with pytest.raises(ValueError, match=f"on jax: .* and {num_workers} workers"):
        pick_strategy(name)
    assert pick_strategy("default") is tf.distribute.get_strategy()


# Two logical devices can only be set up before TensorFlow starts, so this runs in
# a process of its own; and under one strategy only, since TensorFlow mixes up the
# sums over replicas of a second one.
REPLICAS = """
import json
import sys

import keras
import numpy as np
import tensorflow as tf
from keras_transformer.models import Transformer
from keras_transformer.training import (
    Adam, Perplexity, TokenAccuracy, TokenCrossentropy, split_evenly,
)

cpu, = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(
    cpu, [tf.config.LogicalDeviceConfiguration()] * 2
)
two = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
one = tf.distribute.get_strategy()

# Adam divides by the size of a gradient, so where that is zero, in the biases of
# the keys, it makes a step of a rounding error unless epsilon is larger than that.
OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(1.0),
    "small steps": lambda: keras.optimizers.SGD(0.1),
    "adam": lambda: Adam(0.01, epsilon=1e-4),
    "accumulating": lambda: Adam(
        0.01, epsilon=1e-4, gradient_accumulation_steps=2
    ),
    "clipping": lambda: Adam(0.01, epsilon=1e-4, global_clipnorm=0.1),
    "accumulating options": lambda: Adam(
        0.01,
        epsilon=1e-4,
        gradient_accumulation_steps=2,
        clipnorm=0.05,
        weight_decay=0.1,
        use_ema=True,
        ema_momentum=0.7,
    ),
    # Above the rounding errors of float16.
    "accumulating half": lambda: Adam(
        0.1, epsilon=0.1, gradient_accumulation_steps=2
    ),
}


def dataset(rows):
    random = np.random.default_rng(7)
    count, length = 3 * rows - 3, 7
    lengths = random.integers(1, length + 1, (count, 1))
    # The first replica's sentences are long, the second's short; later, the
    # second replica has nothing but padding.
    lengths[: rows // 2] = length
    lengths[rows // 2 : rows] = 1
    lengths[rows + rows // 2 : 2 * rows] = 0
    ids = random.integers(4, 13, (count, length)).astype("int32")
    ids *= np.arange(length) < lengths
    inputs = {"source_ids": ids, "target_ids": np.roll(ids, 1, axis=1)}
    return tf.data.Dataset.from_tensor_slices((inputs, ids)).batch(rows)


def transformer():
    return Transformer(
        13, num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=11, dropout=0
    )


def bigrams(dtype="float32"):
    ids = keras.Input((None,), dtype="int32")
    logits = keras.layers.Embedding(13, 13, dtype=dtype)(ids)
    model = keras.Model({"target_ids": ids}, logits)
    model.dtype_policy = dtype  # read by `compile`
    return model


def half_bigrams():
    return bigrams("mixed_float16")


def half():
    return Transformer(
        13, num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=11, dropout=0,
        dtype="mixed_float16",
    )


MODELS = {
    "transformer": transformer,
    "bigrams": bigrams,
    "half": half,
    "half bigrams": half_bigrams,
}


def train(strategy, model, optimizer, rows):
    keras.utils.set_random_seed(7)
    with strategy.scope():
        model = MODELS[model]()
        model.compile(
            OPTIMIZERS[optimizer](),
            TokenCrossentropy(label_smoothing=0.1),
            metrics=[TokenAccuracy(), Perplexity()],
            jit_compile=False,
        )
    data = dataset(rows)
    if rows % 2:  # The last batch may be odd, but not the first.
        data = split_evenly(data, strategy.num_replicas_in_sync)
    history = model.fit(
        data, epochs=2, validation_data=data, shuffle=False, verbose=0
    ).history
    weights = np.concatenate([weight.ravel() for weight in model.get_weights()])
    return {"history": history, "weights": weights.tolist()}


case = json.loads(sys.argv[1])
print(json.dumps([train(strategy, *case) for strategy in (one, two)]))
"""
CASES = [
    ("transformer", "adam", 6),
    ("bigrams", "accumulating", 6),
    pytest.param(("bigrams", "sgd", 5), marks=pytest.mark.slow),
    pytest.param(("bigrams", "clipping", 6), marks=pytest.mark.slow),
    pytest.param(("bigrams", "accumulating options", 6), marks=pytest.mark.slow),
    pytest.param(("transformer", "accumulating", 6), marks=pytest.mark.slow),
]
# With Keras's scaling of the loss; sums over float16 are rounded as they are split.
HALF = [
    pytest.param(("half", "small steps", 6), marks=pytest.mark.slow),
    pytest.param(("half", "accumulating half", 6), marks=pytest.mark.slow),
    ("half bigrams", "accumulating half", 6),
]


@functools.cache
def trained(case):
    """What one and two replicas make of the same data: weights and history."""
    done = run_program(REPLICAS, json.dumps(case))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.quick("case1")
@pytest.mark.parametrize("case", CASES)
def test_two_replicas_learn_what_one_does(case):
    one, two = trained(case)
    np.testing.assert_allclose(two["weights"], one["weights"], rtol=0, atol=3e-6)


@pytest.mark.slow
@pytest.mark.parametrize("case", HALF)
def test_two_replicas_learn_what_one_does_in_half_precision(case):
    one, two = trained(case)
    np.testing.assert_allclose(two["weights"], one["weights"], rtol=0, atol=1e-3)
    for name, values in one["history"].items():
        # Of its 45 tokens, one whose largest logits round to the same may change.
        atol = 1.5 / 45 if "accuracy" in name else 0
        np.testing.assert_allclose(
            two["history"][name], values, 2e-3, atol, err_msg=name
        )


@pytest.mark.quick("case1")
@pytest.mark.parametrize("case", CASES[:2])
def test_two_replicas_show_what_one_does(case):
    one, two = (result["history"] for result in trained(case))
    assert one.keys() == two.keys()
    assert len(one) == 6
    for name, values in one.items():
        np.testing.assert_allclose(two[name], values, 1e-5, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["bigrams", "transformer"])
def test_rows_of_padding_count_for_nothing_in_what_is_shown(model):
    one, two = (result["history"] for result in trained((model, "sgd", 5)))
    # The model of Keras's own class weighs the losses of batches by their rows.
    rows = {"loss", "val_loss"} if model == "bigrams" else set()
    for name in set(one) - rows:
        np.testing.assert_allclose(two[name], one[name], 1e-5, err_msg=name)


@pytest.mark.parametrize("settings", [{}, {"pad_id": 17}])
@pytest.mark.parametrize(("rows", "filled"), [(1, 3), (5, 6), (6, 6), (7, 9)])
def test_batches_are_filled_up_to_a_multiple_of_the_replicas(rows, filled, settings):
    source = np.arange(1, 2 * rows + 1, dtype="int32").reshape(rows, 2)
    label = np.arange(1, rows + 1, dtype="int64")
    dataset = tf.data.Dataset.from_tensors(({"source_ids": source}, label))
    [(inputs, labels)] = split_evenly(dataset, 3, **settings)
    for found, expected in ((inputs["source_ids"], source), (labels, label)):
        assert found.dtype == expected.dtype
        assert found.shape[0] == filled
        np.testing.assert_array_equal(found[:rows], expected)
        np.testing.assert_array_equal(found[rows:], settings.get("pad_id", 0))


def test_batches_for_one_replica_stay_as_they_are():
    dataset = tf.data.Dataset.from_tensors(np.ones((5, 3)))
    assert split_evenly(dataset, 1) is dataset


def test_a_worker_splits_its_own_batches_among_its_replicas():
    batches = [np.arange(2, 2 + rows)[:, None] for rows in (4, 3)]
    dataset = tf.data.Dataset.from_generator(
        lambda: (({"ids": x}, -x) for x in batches),
        output_signature=(
            {"ids": tf.TensorSpec((None, 1), "int32")},
            tf.TensorSpec((None, 1), "int32"),
        ),
    ).apply(tf.data.experimental.assert_cardinality(2))
    parts = distribution._parts(dataset, 2, pad_id=0)
    assert parts.cardinality() == 4
    found = [(x["ids"].numpy().ravel(), y.numpy().ravel()) for x, y in parts]
    assert [x.tolist() for x, _ in found] == [[2, 3], [4, 5], [2, 3], [4, 0]]
    assert all((x == -y).all() for x, y in found)
    endless = distribution._parts(dataset.repeat(), 2, pad_id=0)
    assert endless.cardinality() == tf.data.INFINITE_CARDINALITY


XLA_ON_TWO = """
import numpy as np
import tensorflow as tf
from keras_transformer.models import LanguageModel

[cpu] = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(
    cpu, [tf.config.LogicalDeviceConfiguration()] * 2
)
with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
    model = LanguageModel(
        13, num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=11
    )
    model.compile("sgd", "sparse_categorical_crossentropy", jit_compile=True)
ids = np.ones((4, 5), "int32")
model.fit(ids, ids, verbose=0)
"""


def test_xla_on_several_devices_is_refused():
    done = run_program(XLA_ON_TWO)
    assert done.returncode == 1
    message = "ValueError: `jit_compile` must be False under a strategy of several dev"
    assert message in done.stderr


# Sums

TWO_REPLICAS = """
import json
import tensorflow as tf
from keras_transformer.training import distribution

[cpu] = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(
    cpu, [tf.config.LogicalDeviceConfiguration()] * 2
)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

@tf.function
def step():
    context = tf.distribute.get_replica_context()
    own = tf.cast(context.replica_id_in_sync_group, "float32")
    sums = distribution.sum_over_replicas(own + 1.0, own * 10.0)
    return tf.stack([*sums, float(distribution.num_replicas())])

results = strategy.experimental_local_results(strategy.run(step))
with strategy.scope():
    outside = distribution.num_replicas()
print(json.dumps([[x.numpy().tolist() for x in results], outside]))
"""


def test_one_replica_has_its_own_sums():
    assert distribution.num_replicas() == 1
    sums = distribution.sum_over_replicas(ops.convert_to_tensor(3.0), ops.ones(()))
    assert [float(ops.convert_to_numpy(x)) for x in sums] == [3, 1]


def test_every_replica_has_the_sums_of_all():
    done = run_program(TWO_REPLICAS)
    assert done.returncode == 0, done.stderr
    of_replicas, outside = json.loads(done.stdout)
    np.testing.assert_array_equal(of_replicas, [[3, 10, 2]] * 2)
    assert outside == 1
