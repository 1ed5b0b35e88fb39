"""Texts as a model reads them: ids with start and end tokens, padded."""

import tensorflow as tf

from keras_transformer.text.tokenizer import SubwordTokenizer, batch_of_texts, plain

# SentencePiece's subwords have at most 16 characters of at most 4 bytes.
_MAX_BYTES_PER_SUBWORD = 64
WHITE_SPACE = r"[\s\v\x1c-\x1f\x{85}\p{Z}]*"  # that of `str.isspace`


def encode(texts, tokenizer: SubwordTokenizer, max_length: int):
    """Returns texts as a model reads them: subwords, an end token, padding.

    SentencePiece takes quadratic time for a run of unknown characters: 36 seconds for
    a megabyte. Therefore it gets only as many bytes of a long text as `max_length`
    subwords can have, without the white space around it.

    Args:
        texts: A list of str, or a string tensor of shape `(batch,)`.
        tokenizer: Tokenizer of the source language.
        max_length: Maximum number of ids, the end token included. Longer texts are
            cut before their end token.

    Returns:
        Ids, int32 of shape `(batch, length)`, as long as the longest text needs, and
        a boolean tensor of shape `(batch,)`: which texts were cut.
    """
    texts, num_bytes = plain(batch_of_texts(texts)), _MAX_BYTES_PER_SUBWORD * max_length
    is_long = tf.strings.length(texts) > num_bytes
    stripped = tf.strings.regex_replace(texts, f"^{WHITE_SPACE}|{WHITE_SPACE}$", "")
    texts = tf.where(is_long, stripped, texts)
    ids = tokenizer(tf.strings.substr(texts, 0, num_bytes))
    is_cut = ids.row_lengths() >= max_length
    is_cut |= tf.strings.length(texts) > num_bytes
    ends = tf.fill([ids.nrows(), 1], tokenizer.end_id)
    ids = tf.concat([ids[:, : max_length - 1], ends], axis=1)
    return ids.to_tensor(tokenizer.pad_id), is_cut


def add_start_and_end(ids: tf.RaggedTensor, tokenizer, start=False, end=False):
    """Adds a tokenizer's start token, end token or both to each row of ragged ids."""
    columns = [ids]
    if start:
        columns.insert(0, tf.fill([ids.nrows(), 1], tokenizer.start_id))
    if end:
        columns.append(tf.fill([ids.nrows(), 1], tokenizer.end_id))
    return tf.concat(columns, axis=1)
