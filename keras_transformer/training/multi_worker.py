"""`model.fit` on several machines, until Keras can do it by itself."""

import tensorflow as tf


class MultiWorkerStrategy(tf.distribute.MultiWorkerMirroredStrategy):
    """`tf.distribute.MultiWorkerMirroredStrategy` that Keras 3 can train under.

    Keras reduces whole batches where TensorFlow takes one value at a time, and
    the numbers that a step returns over an axis that they do not have. This
    strategy takes both; nothing else is changed. A test tells when Keras no longer
    needs it.

    Args:
        **kwargs: Those of the base class, such as `cluster_resolver`.

    Reference:
        [keras#20585](https://github.com/keras-team/keras/issues/20585)
    """

    def reduce(self, reduce_op, value, axis):
        """Reduces each value of a nest, scalars over the replicas alone."""

        def reduce_one(part):
            local = self.experimental_local_results(part)[0]
            is_scalar = local.shape.rank == 0
            return reduce_value(reduce_op, part, None if is_scalar else axis)

        reduce_value = super().reduce
        return tf.nest.map_structure(reduce_one, value)
