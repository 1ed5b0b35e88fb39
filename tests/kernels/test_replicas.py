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
