"""Graphs that TensorFlow traces: their shapes, and gradients that end with them."""

import contextlib
import contextvars
import weakref

import keras
from keras import ops

from keras_transformer.kernels import target
from keras_transformer.kernels.rematerialization import is_rematerialized
from keras_transformer.kernels.scopes import holding

_IS_TENSORFLOW = target.BACKEND == "tensorflow"
_is_inference = contextvars.ContextVar("is_inference", default=False)


def shape_of(tensor, for_reshape: bool = False) -> tuple:
    """Returns what `ops.shape` does, in two operations of a graph.

    On TensorFlow that takes four for every unknown length, and a training step asks for
    hundreds: a fifth of what is traced and optimized before the first step. With
    `for_reshape`, a single unknown size is -1, as in `ops.reshape`, and takes no
    operation: a quarter of a decoding step's operations computed shapes.
    """
    known = tuple(tensor.shape)
    # In a tensor without elements, -1 could be any size.
    if for_reshape and known.count(None) == 1 and 0 not in known:
        return tuple(-1 if size is None else size for size in known)
    if None not in known or not (_IS_TENSORFLOW and ops.is_tensor(tensor)):
        return ops.shape(tensor)
    import tensorflow as tf

    lengths = tf.unstack(tf.shape(tensor), len(known))
    return tuple(
        length if size is None else size
        for size, length in zip(known, lengths, strict=True)
    )


def as_rows(tensor):
    """Returns a tensor of shape `(rows,)` as `(rows, 1)`, and others as they are.

    TensorFlow traces a function that has been called with tensors of both kinds for
    tensors of any number of axes.
    """
    if not _IS_TENSORFLOW or tensor.shape.rank is not None:
        return tensor[:, None] if len(tensor.shape) == 1 else tensor
    import tensorflow as tf

    return tf.reshape(tensor, (tf.shape(tensor)[0], -1))


def with_gradient(function, *tensors):
    """Calls a function that brings its own gradient: `ops.custom_gradient`.

    The function returns a tensor, and the function from its gradient, which is dense,
    to the gradients of the arguments.

    TensorFlow keeps the gradient of each trace in a global registry, and with it the
    graph and all that the graph holds, for ever: a model that was used once would never
    be freed. Here the graph keeps the gradient, and the registry only refers to it.
    There is no public way to remove a gradient from the registry; `test_graphs.py`
    fails if TensorFlow changes it.
    """
    # TensorFlow would read a variable again for the gradient.
    tensors = [ops.copy(x) if isinstance(x, keras.Variable) else x for x in tensors]
    # JAX could not compute again what refers to other values, such as masks.
    if _is_inference.get() or (target.BACKEND == "jax" and is_rematerialized()):
        outputs, _ = function(*tensors)
        return outputs

    def function_for_keras(*tensors):
        outputs, gradient = function(*tensors)

        def gradient_for_keras(*args, upstream=None):
            return gradient(dense_gradient(args[0] if upstream is None else upstream))

        return outputs, gradient_for_keras

    outputs = ops.custom_gradient(function_for_keras)(*tensors)
    if not _IS_TENSORFLOW:
        return outputs
    import tensorflow as tf

    if tf.executing_eagerly():
        return outputs
    from tensorflow.python.framework.ops import gradient_registry

    registry = gradient_registry._registry
    name = outputs.op.get_attr("_gradient_op_type").decode()
    gradient = registry[name]["type"]
    reference = weakref.ref(gradient)

    @tf.autograph.experimental.do_not_convert
    def call_gradient(operation, *upstream):
        return reference()(operation, *upstream)

    registry[name]["type"] = call_gradient
    weakref.finalize(gradient, registry.pop, name, None).atexit = False
    graph = outputs.graph
    graph.kept_gradients = [*getattr(graph, "kept_gradients", ()), gradient]
    return outputs


def inference():
    """A scope for graphs that are never differentiated: without kernels' gradients."""
    return holding(_is_inference)


def dense_gradient(gradient):
    """Returns a gradient as a tensor, where it may be `tf.IndexedSlices` or None."""
    if _IS_TENSORFLOW:
        import tensorflow as tf

        if isinstance(gradient, tf.IndexedSlices):
            return tf.convert_to_tensor(gradient)
    return gradient


@contextlib.contextmanager
def without_gradients():
    """Lets TensorFlow forget the gradients of what is traced inside: a training step.

    Keras's optimizers sum over the replicas, of a single one too, by an operation with
    a gradient of its own, which would keep the graph of every training step alive; see
    `with_gradient`.
    """
    if not _IS_TENSORFLOW:
        yield
        return
    import tensorflow as tf
    from tensorflow.python.framework.ops import gradient_registry

    registry = gradient_registry._registry
    before = set(registry)
    yield
    if tf.executing_eagerly():  # what was traced may be differentiated again
        return
    for name in set(registry) - before:
        registry.pop(name, None)
