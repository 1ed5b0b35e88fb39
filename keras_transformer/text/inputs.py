"""Texts and ids as tensors, from any form that they are passed in."""

import numpy as np
import tensorflow as tf


def check_tokenizer(name, tokenizer):
    """Raises `ValueError` unless this is a tokenizer, or looks like one."""
    if not hasattr(tokenizer, "pad_id"):
        raise ValueError(
            f"`{name}` must be a tokenizer, such as `SubwordTokenizer.load(path)` "
            f"returns. Received: {name}={tokenizer!r}."
        )


def _kind(values):
    """Returns the type of a value, or those in a list, for a message."""
    if not isinstance(values, (list, tuple)):
        return type(values).__name__
    kinds = dict.fromkeys(type(value).__name__ for value in values)
    return f"a {type(values).__name__} of {' and '.join(kinds)}"


def batch_of_texts(texts):
    """Texts as a string tensor of shape `(batch,)`."""
    given = texts
    try:
        texts = tf.convert_to_tensor(texts, dtype_hint=tf.string)
    except (TypeError, ValueError):  # of TensorFlow, on None or mixed types
        raise ValueError(
            "`texts` must be a list of str, or a string tensor of shape (batch,). "
            f"Received: {_kind(given)}."
        ) from None
    if texts.dtype != tf.string or texts.shape.rank != 1:
        raise ValueError(
            "`texts` must be a list of str, or a string tensor of shape (batch,). "
            f"Received: shape={texts.shape}, dtype={texts.dtype.name}."
        )
    return texts


def batch_of_ids(ids, pad_id):
    """Returns int32 ids of shape `(..., length)`; pads ragged rows."""
    try:
        tensor = _tensor_of_ids(ids, pad_id)
    except (TypeError, ValueError):  # of TensorFlow, on None, text or mixed types
        raise ValueError(
            f"`ids` must be integers of shape (..., length). Received: {_kind(ids)}."
        ) from None
    if not tensor.dtype.is_integer or tensor.shape.rank == 0:
        raise ValueError(
            "`ids` must be integers of shape (..., length). "
            f"Received: shape={tensor.shape}, dtype={tensor.dtype.name}."
        )
    return tf.cast(tensor, tf.int32)


def _tensor_of_ids(ids, pad_id):
    if isinstance(ids, (list, tuple)) and (not ids or np.ndim(ids[0])):
        is_empty = not any(np.size(row) for row in ids)
        ids = tf.ragged.constant(ids, tf.int32 if is_empty else None, ragged_rank=1)
    if isinstance(ids, tf.RaggedTensor) and ids.dtype.is_integer:
        ids = ids.to_tensor(pad_id)
    return tf.convert_to_tensor(ids)
