"""Texts and ids as tensors, from any form that they are passed in."""

import numpy as np
import tensorflow as tf


def batch_of_texts(texts):
    """Texts as a string tensor of shape `(batch,)`."""
    texts = tf.convert_to_tensor(texts, dtype_hint=tf.string)
    if texts.dtype != tf.string or texts.shape.rank != 1:
        raise ValueError(
            "`texts` must be a list of str, or a string tensor of shape (batch,). "
            f"Received: shape={texts.shape}, dtype={texts.dtype.name}."
        )
    return texts


def batch_of_ids(ids, pad_id):
    """Returns int32 ids of shape `(..., length)`; pads ragged rows."""
    if isinstance(ids, (list, tuple)):
        is_empty = not any(np.size(row) for row in ids)
        ids = tf.ragged.constant(ids, tf.int32 if is_empty else None, ragged_rank=1)
    if isinstance(ids, tf.RaggedTensor):
        ids = ids.to_tensor(pad_id)
    ids = tf.convert_to_tensor(ids)
    if not ids.dtype.is_integer or ids.shape.rank == 0:
        raise ValueError(
            "`ids` must be integers of shape (..., length). "
            f"Received: shape={ids.shape}, dtype={ids.dtype.name}."
        )
    return tf.cast(ids, tf.int32)
