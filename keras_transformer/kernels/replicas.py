"""What a replica of a `tf.distribute` strategy knows of the others."""

from keras import ops

from keras_transformer.kernels import target


def num_replicas() -> int:
    """Returns the number of replicas that train together, 1 outside of replicas."""
    context = _replica_context()
    return 1 if context is None else context.num_replicas_in_sync


def sum_over_replicas(*values):
    """Sums float32 numbers over all replicas, in one exchange.

    Args:
        *values: Tensors of no dimensions, those of the calling replica.

    Returns:
        A list with the sum of each, without gradients.
    """
    values = ops.stop_gradient(ops.stack(values))
    if num_replicas() > 1:
        values = _replica_context().all_reduce("SUM", values)
    return ops.unstack(values)


def _replica_context():
    if not target.is_tensorflow():
        return None
    import tensorflow as tf

    return tf.distribute.get_replica_context()
