"""Gradients, whichever backend runs the tests."""

import keras
import numpy as np
from keras import ops


def gradients(function, tensors):
    """Returns how a number changes with the tensors that it is computed from.

    Args:
        function: A function of as many tensors, which returns one number.
        tensors: Where the slopes are taken: arrays or tensors of floats.

    Returns:
        A list of float64 arrays, of the shapes of `tensors`.
    """
    tensors = [ops.convert_to_tensor(x) for x in tensors]
    if not tensors:  # where PyTorch raises an error
        return []
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(tensors)
            number = function(*tensors)
        slopes = tape.gradient(number, tensors)
    elif keras.backend.backend() == "jax":
        import jax

        # Compiled as one, which takes less time than operation by operation.
        slopes = jax.jit(jax.grad(lambda every: function(*every)))(tensors)
    else:
        import torch

        tensors = [x.detach().requires_grad_() for x in tensors]
        slopes = torch.autograd.grad(function(*tensors), tensors)
    return [np.asarray(ops.convert_to_numpy(x), "float64") for x in slopes]


def weight_gradients(function, layer, *args, **kwargs):
    """The same for the trainable weights of a layer that is called so.

    `function` takes what the call returns.
    """
    fixed = [weight.value for weight in layer.non_trainable_variables]

    def call(*weights):
        return function(layer.stateless_call(weights, fixed, *args, **kwargs)[0])

    return gradients(call, [weight.value for weight in layer.trainable_variables])


def sum_of_squares(outputs):
    return ops.sum(ops.square(ops.cast(outputs, "float32")))
