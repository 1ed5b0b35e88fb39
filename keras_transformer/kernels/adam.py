"""Adam updates in one pass over memory, and updates under a condition."""

import keras
from keras import ops

from keras_transformer.kernels import replicas, target
from keras_transformer.kernels.keras_private import adam_moments


def adam_update(optimizer, gradient, variable, learning_rate, numbers=None):
    """Updates a variable as `keras.optimizers.Adam.update_step` does.

    On TensorFlow one operation reads and writes the variable and its moments once,
    where Keras takes twelve operations. This saves time where XLA does not compile
    the training step. On other backends, for sparse gradients and with `amsgrad`,
    Keras updates the variable.

    Args:
        optimizer: A `keras.optimizers.Adam`.
        gradient: The gradient, a tensor or `tf.IndexedSlices`.
        variable: The variable to update, as `update_step` receives it.
        learning_rate: The learning rate, a tensor of no dimensions.
        numbers: The `StepNumbers` of this step, if other variables share them.
    """
    if target.is_tensorflow() and not (optimizer.amsgrad or _is_sparse(gradient)):
        numbers = numbers or StepNumbers(optimizer)
        _update_in_one_pass(optimizer, gradient, variable, learning_rate, numbers)
        return
    keras.optimizers.Adam.update_step(optimizer, gradient, variable, learning_rate)


class StepNumbers:
    """What the updates of all variables in one step have in common, on TensorFlow.

    Computed for each variable anew, they would be a sixth of the operations of a
    training step, and of the time that it takes to trace it.

    Args:
        optimizer: A `keras.optimizers.Adam`.
    """

    def __init__(self, optimizer):
        self._optimizer = optimizer
        self._by_dtype = {}

    def of(self, dtype):
        """The numbers as arguments of `tf.raw_ops.ResourceApplyAdam`."""
        if dtype not in self._by_dtype:
            self._by_dtype[dtype] = self._compute(dtype)
        return self._by_dtype[dtype]

    def _compute(self, dtype):
        import tensorflow as tf

        optimizer = self._optimizer
        beta_1 = tf.cast(optimizer.beta_1, dtype)
        beta_2 = tf.cast(optimizer.beta_2, dtype)
        step = tf.cast(optimizer.iterations + 1, dtype)
        return {
            "beta1_power": beta_1**step,
            "beta2_power": beta_2**step,
            "beta1": beta_1,
            "beta2": beta_2,
            "epsilon": tf.cast(optimizer.epsilon, dtype),
        }


def _update_in_one_pass(optimizer, gradient, variable, learning_rate, numbers):
    import tensorflow as tf

    momentum, velocity = adam_moments(optimizer, variable)
    tf.raw_ops.ResourceApplyAdam(
        var=variable.handle,
        m=momentum.value.handle,
        v=velocity.value.handle,
        lr=tf.cast(learning_rate, variable.dtype),
        grad=tf.cast(gradient, variable.dtype),
        **numbers.of(variable.dtype),
    )


def dense_gradient(gradient):
    """Returns a gradient as a tensor, where it may be `tf.IndexedSlices` or None."""
    if target.is_tensorflow() and _is_sparse(gradient):
        import tensorflow as tf

        return tf.convert_to_tensor(gradient)
    return gradient


def _is_sparse(gradient):
    import tensorflow as tf

    return isinstance(gradient, tf.IndexedSlices)


def update_if(condition, update, variables):
    """Calls `update` if `condition` holds, inside of a graph too.

    This is `replicas.call_if`, except on JAX, where a condition cannot assign to
    variables: there `update` always runs, and is undone if the condition does not hold.

    Args:
        condition: Boolean tensor of no dimensions.
        update: Function of no arguments that assigns to `variables`.
        variables: All variables that `update` assigns to.
    """
    if not target.is_jax():
        replicas.call_if(condition, update)
        return
    before = [ops.convert_to_tensor(variable) for variable in variables]
    update()
    for variable, old in zip(variables, before, strict=True):
        variable.assign(ops.where(condition, ops.convert_to_tensor(variable), old))
