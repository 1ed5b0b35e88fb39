"""Gradients on every Keras backend."""

import keras
import numpy as np
from keras import ops


def gradients(function, tensors):
    """Returns the gradients of a function's value with respect to its arguments.

    Args:
        function: A function of tensors that returns a scalar.
        tensors: The arguments: arrays or tensors of floats.

    Returns:
        A list of float64 arrays, of the shapes of `tensors`.
    """
    tensors = [ops.convert_to_tensor(x) for x in tensors]
    if not tensors:  # PyTorch would raise an error
        return []
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(tensors)
            number = function(*tensors)
        found = tape.gradient(number, tensors)
    elif keras.backend.backend() == "jax":
        import jax

        # Compiling the whole is faster than compiling each operation.
        found = jax.jit(jax.grad(lambda arguments: function(*arguments)))(tensors)
    else:
        import torch

        tensors = [x.detach().requires_grad_() for x in tensors]
        found = torch.autograd.grad(function(*tensors), tensors)
    return [np.asarray(ops.convert_to_numpy(x), "float64") for x in found]


def weight_gradients(function, layer, *args, **kwargs):
    """Returns the gradients of `function(layer(...))` with respect to the weights.

    Only trainable weights count; the other arguments are those of the layer's call.
    """
    fixed = [weight.value for weight in layer.non_trainable_variables]

    def call(*weights):
        return function(layer.stateless_call(weights, fixed, *args, **kwargs)[0])

    return gradients(call, [weight.value for weight in layer.trainable_variables])


def sum_of_squares(outputs):
    return ops.sum(ops.square(ops.cast(outputs, "float32")))
