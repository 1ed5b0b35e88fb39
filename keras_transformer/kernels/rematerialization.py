"""Layers that may be called in a `keras.RematScope`."""

import contextlib
import contextvars
import itertools

from keras import ops, tree

from keras_transformer.keras_private import (
    inheriting_scope,
    uncast,
    was_made_in_full_remat_scope,
    without_inner_remat,
)
from keras_transformer.kernels.scopes import holding
from keras_transformer.kernels.target import BACKEND

_is_inside = contextvars.ContextVar("is_inside", default=False)


def is_rematerialized() -> bool:
    """Returns whether a layer is called whose gradient computes it again."""
    return _is_inside.get()


class RematerializedMixin:
    """Rematerialises layers whose calls take settings or draw random numbers.

    The plain form is Keras's own `rematerialized_call`. It treats all arguments as
    arrays, so it fails on JAX, and in graphs of TensorFlow, if `training` or another
    setting is passed. It draws different random numbers in the backward pass. It
    computes a layer inside of another layer three times; here the outer layer is
    computed again, as a whole.

    Attributes:
        is_remat_unit: Whether `keras.RematScope(mode="full")` computes the layer again
            as a whole. False for linear layers, which keep no activations, and for
            containers, whose layers are computed again one after the other.
    """

    is_remat_unit = True

    def rematerialized_call(self, layer_call, *args, **kwargs):
        if not self.is_remat_unit and was_made_in_full_remat_scope(self):
            return layer_call
        rematerialized_call = super().rematerialized_call

        def call(*args, **kwargs):
            leaves = tree.flatten((args, kwargs))
            # TensorFlow adds zero to all arguments, which masks do not allow.
            passed = [ops.is_tensor(x) and "bool" not in str(x.dtype) for x in leaves]
            seeds = seed_states(self)
            states = [(seed, ops.copy(seed)) for seed in seeds]
            scope_with = inheriting_scope()
            # TensorFlow may read a weight again only after the step's update of it.
            weights = self.trainable_variables if BACKEND == "tensorflow" else []

            def call_with(*tensors):
                tensors = iter(tensors)
                values = [*states, *zip(weights, tensors, strict=False)]
                if BACKEND == "jax":  # it repeats what it traced
                    scope = contextlib.nullcontext()
                else:
                    scope = scope_with(values)
                given = [
                    next(tensors) if is_passed else x
                    for x, is_passed in zip(leaves, passed, strict=True)
                ]
                args_, kwargs_ = tree.pack_sequence_as((args, kwargs), given)
                with scope, holding(_is_inside), without_inner_remat(self):
                    outputs = layer_call(*args_, **kwargs_)
                    return outputs, [seed.value for seed in seeds]

            tensors = [uncast(weight) for weight in weights]
            tensors += itertools.compress(leaves, passed)
            outputs, after = rematerialized_call(call_with, *tensors)(*tensors)
            for seed, value in zip(seeds, after, strict=True):
                seed.assign(value)
            return outputs

        is_chosen = rematerialized_call(layer_call, *args, **kwargs) is not layer_call
        return call if is_chosen else layer_call


def seed_states(layer):
    """The states of the random number generators in a layer."""
    weights = {id(weight) for weight in layer.weights}
    return [x for x in layer.non_trainable_variables if id(x) not in weights]
