"""Every use of a private interface of Keras, in one place.

Each says what it needs and why no public interface gives it;
`tests/test_keras_private.py` fails when Keras changes.
"""

import contextlib

import keras
from keras import ops
from keras.src.backend.common.masking import get_keras_mask, set_keras_mask
from keras.src.backend.common.stateless_scope import get_stateless_scope
from keras.src.backend.common.symbolic_scope import in_symbolic_scope
from keras.src.backend.common.variables import AutocastScope
from keras.src.utils.tracking import DotNotTrackScope

# Gives a tensor, the first argument, its Keras mask. Publicly only `compute_mask` does
# so, which does not know the arguments of `call`.
set_mask = set_keras_mask

# Returns the Keras mask of a tensor, or None. Keras passes it to `mask`, an argument of
# `call`, only if no other argument is a tensor.
get_mask = get_keras_mask


def variable_index(optimizer, variable) -> int:
    """Returns the place of a model's variable among the variables of its optimizer.

    Keras passes `update_step` a `keras.Variable` or, on TensorFlow, the copy of it
    that one replica holds. Only the optimizer can tell which variable that is, by
    `_get_variable_index`, which the update steps of Keras's own optimizers call.
    """
    try:
        return optimizer._get_variable_index(variable)
    except KeyError:
        raise ValueError(
            "The optimizer was built for other variables; compile the model again with "
            f"a new one. Received: variable={variable.name}."
        ) from None


def trainable_variables(optimizer):
    """Returns the model's variables that an optimizer was built with, in their order.

    `Optimizer.apply` may be called with gradients alone, as `stateless_apply` does, and
    then updates these. Publicly an optimizer has only `variables`, which are its own.
    """
    return optimizer._trainable_variables


def asks_for_shapes() -> bool:
    """Tells whether `call` is traced only to learn shapes, as when Keras builds models.

    The inputs are float32 then, even if they will be integers. The scope is public, but
    not whether it is entered.
    """
    return in_symbolic_scope()


def after_the_batch(data):
    """Returns a scope in which TensorFlow runs nothing before a batch has been read.

    For a dataset of unknown length, Keras 3.15 runs one step too many, which fails as
    it reads the batch. Until then it runs what needs no number of the batch: it counts
    a step and, if shapes are fixed, rows. keras#23179 mends it.
    """
    if keras.backend.backend() != "tensorflow":
        return contextlib.nullcontext()
    import tensorflow as tf

    tensors = [tensor for tensor in tf.nest.flatten(data) if tensor is not None]
    return tf.control_dependencies(tensors)


def set_loss_tracker(model, metric):
    """Sets the metric to which a compiled model gives the loss of each batch.

    It is logged as `loss`. Keras's own weighs a batch by its rows, padding included,
    and is set by nothing public.
    """
    with DotNotTrackScope():  # as Keras does: `metrics` names it already
        model._loss_tracker = metric


def begin_at_epoch(model, epoch: int | None):
    """Makes `fit`, which calls `on_train_begin`, begin at an epoch, counted from 0.

    Keras's `BackupAndRestore` does so. In Keras 3.15 it counts the epochs of resumed
    trainings from 0, if it saves within epochs. None leaves it to `initial_epoch`.
    """
    model._initial_epoch = epoch


def inheriting_scope():
    """Returns a function that makes a `keras.StatelessScope` with values.

    They are pairs of a `keras.Variable` and its value; other variables have the values
    that they have now. Keras has no public way to make a scope that inherits the values
    of the scope around it.
    """
    outer = get_stateless_scope()
    inherited = dict(outer.state_mapping) if outer else {}

    def scope_with(values):
        inner = keras.StatelessScope(values)
        inner.state_mapping = {**inherited, **inner.state_mapping}
        return inner

    return scope_with


def was_made_in_full_remat_scope(layer) -> bool:
    """Tells whether a layer was made within `keras.RematScope(mode="full")`.

    Publicly, a layer does not tell the scope that it was made in.
    """
    scope = layer._remat_mode
    return scope is not None and scope.mode == "full"


@contextlib.contextmanager
def without_inner_remat(layer):
    """Lets the layers inside of a layer forget their `keras.RematScope`.

    Keras would compute each of them once more as the outer layer is computed again.
    """
    scopes = {x: x._remat_mode for x in all_layers(layer) if x is not layer}
    for inner in scopes:
        inner._remat_mode = None
    try:
        yield
    finally:
        for inner, scope in scopes.items():
            inner._remat_mode = scope


def uncast(variable):
    """Returns the value of a variable, in its own dtype even while a layer is called.

    `keras.Variable.value` has the layer's compute dtype then.
    """
    with AutocastScope(None):
        return ops.copy(variable)


def layout_rules():
    """Returns the `LayoutMap` of the `ModelParallel` that is set, {} without one.

    Publicly, it gives only the layout of one weight, and not the rules.
    """
    distribution = keras.distribution.distribution()
    if isinstance(distribution, keras.distribution.ModelParallel):
        return distribution._layout_map
    return {}


def all_layers(layer):
    """Returns a layer and all layers inside of it, at any depth.

    `keras.Model.layers` has only the first level, and layers have no such list.
    """
    return list(layer._flatten_layers())
