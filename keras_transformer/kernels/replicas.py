"""Number, sums and conditions of the replicas of a `tf.distribute` strategy."""

from keras import ops

from keras_transformer.kernels import target


def num_replicas() -> int:
    """Returns the number of replicas that train together, 1 outside of replicas."""
    context = _replica_context()
    return 1 if context is None else context.num_replicas_in_sync


def num_replicas_of_strategy() -> int:
    """Returns the number of replicas of the strategy in scope, 1 without a strategy."""
    if not target.is_tensorflow():
        return 1
    import tensorflow as tf

    return tf.distribute.get_strategy().num_replicas_in_sync


def sum_gradients(gradients):
    """Sums gradients over all replicas, in one exchange.

    Args:
        gradients: Of the calling replica: tensors, `tf.IndexedSlices`, or None.

    Returns:
        A list with the sum of each, the same on every replica.
    """
    if num_replicas() == 1:
        return list(gradients)
    given = [gradient for gradient in gradients if gradient is not None]
    sums = iter(_replica_context().all_reduce("SUM", given))
    return [None if gradient is None else next(sums) for gradient in gradients]


def call_if(condition, function):
    """Calls a function if a condition holds, on every replica if there are several.

    This is `ops.cond(condition, function, lambda: None)`. Inside of that, the replicas
    of a `MirroredStrategy` could not wait for each other, so there the condition is
    evaluated outside of the replicas.

    Args:
        condition: Boolean tensor of no dimensions, the same on every replica.
        function: Function of no arguments and results.
    """
    if num_replicas() > 1:
        import tensorflow as tf

        distribute = tf.__internal__.distribute
        if not distribute.strategy_supports_no_merge_call():

            def on_all_replicas(strategy, conditions):
                first = strategy.experimental_local_results(conditions)[0]
                ops.cond(first, lambda: strategy.run(function), lambda: None)

            _replica_context().merge_call(on_all_replicas, args=(condition,))
            return
    ops.cond(condition, function, lambda: None)


def update_if(condition, update, variables):
    """Calls `update` if `condition` holds, inside of a graph too.

    This is `call_if`, except on JAX, where a condition cannot assign to
    variables: there `update` always runs, and is undone if the condition does not hold.

    Args:
        condition: Boolean tensor of no dimensions.
        update: Function of no arguments that assigns to `variables`.
        variables: All variables that `update` assigns to.
    """
    if not target.is_jax():
        call_if(condition, update)
        return
    before = [ops.convert_to_tensor(variable) for variable in variables]
    update()
    for variable, old in zip(variables, before, strict=True):
        variable.assign(ops.where(condition, ops.convert_to_tensor(variable), old))


def sum_over_replicas(*values):
    """Sums float32 numbers over all replicas, in one exchange.

    Args:
        *values: Tensors of no dimensions, of the calling replica.

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
