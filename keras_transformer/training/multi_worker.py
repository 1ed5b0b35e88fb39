"""A strategy for `model.fit` on several machines, until Keras supports it."""

import tensorflow as tf


class MultiWorkerStrategy(tf.distribute.MultiWorkerMirroredStrategy):
    """`tf.distribute.MultiWorkerMirroredStrategy` that Keras 3 can train under.

    Keras reduces nested values, where TensorFlow accepts only tensors, and reduces
    scalars along an axis that they do not have. This strategy accepts both. A test
    fails when Keras no longer needs it.

    Reference:
        [keras#20585](https://github.com/keras-team/keras/issues/20585)
    """

    def reduce(self, reduce_op, value, axis):
        """Reduces each value of a structure, scalars only over the replicas."""

        def reduce_one(value):
            is_scalar = self.experimental_local_results(value)[0].shape.rank == 0
            return reduce_value(reduce_op, value, None if is_scalar else axis)

        reduce_value = super().reduce
        return tf.nest.map_structure(reduce_one, value)
