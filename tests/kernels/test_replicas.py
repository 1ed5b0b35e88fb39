import json

import keras
import numpy as np
import pytest
from forked import run_program
from keras import ops

from keras_transformer.kernels import replicas

TWO_REPLICAS = """
import json
import tensorflow as tf
from keras_transformer.kernels import replicas

[cpu] = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(
    cpu, [tf.config.LogicalDeviceConfiguration()] * 2
)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

@tf.function
def step():
    context = tf.distribute.get_replica_context()
    own = tf.cast(context.replica_id_in_sync_group, "float32")
    sums = replicas.sum_over_replicas(own + 1.0, own * 10.0)
    return tf.stack([*sums, float(replicas.num_replicas())])

results = strategy.experimental_local_results(strategy.run(step))
with strategy.scope():
    outside = replicas.num_replicas()
print(json.dumps([[x.numpy().tolist() for x in results], outside]))
"""


def test_one_replica_has_its_own_sums():
    assert replicas.num_replicas() == 1
    sums = replicas.sum_over_replicas(ops.convert_to_tensor(3.0), ops.ones(()))
    assert [float(ops.convert_to_numpy(x)) for x in sums] == [3, 1]


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="strategies of TensorFlow"
)
def test_every_replica_has_the_sums_of_all():
    done = run_program(TWO_REPLICAS)
    assert done.returncode == 0, done.stderr
    of_replicas, outside = json.loads(done.stdout)
    np.testing.assert_array_equal(of_replicas, [[3, 10, 2]] * 2)
    assert outside == 1


@pytest.mark.parametrize("holds", [True, False])
def test_an_update_under_a_condition(holds):
    first, second = keras.Variable(np.zeros(3)), keras.Variable(np.ones(2))

    def update():
        first.assign(first + 2)
        second.assign(second * 5)

    replicas.update_if(ops.convert_to_tensor(holds), update, [first, second])
    expected = ([2] * 3, [5] * 2) if holds else ([0] * 3, [1] * 2)
    for variable, values in zip((first, second), expected, strict=True):
        np.testing.assert_array_equal(ops.convert_to_numpy(variable), values)
