"""Shapes of tensors whose lengths are known only when a graph runs."""

from keras import ops

from keras_transformer.kernels import target


def shape_of(tensor) -> tuple:
    """Returns what `ops.shape` does, in two operations of a graph.

    On TensorFlow that takes four for every unknown length, and a training step asks for
    hundreds: a fifth of what is traced and optimised before the first step.
    """
    known = tuple(tensor.shape)
    is_in_graph = target.is_tensorflow() and ops.is_tensor(tensor)
    if None not in known or not is_in_graph or target.traces_portable_graph():
        return ops.shape(tensor)
    import tensorflow as tf

    lengths = tf.unstack(tf.shape(tensor), len(known))
    return tuple(
        length if size is None else size
        for size, length in zip(known, lengths, strict=True)
    )
