"""Texts as a model reads them, however long they are."""

import tensorflow as tf

from keras_transformer.text.pipeline import encode
from keras_transformer.text.tokenizer import SubwordTokenizer

# SentencePiece's 16 characters of 4 bytes at most.
_BYTES_PER_SUBWORD = 64


def encode_head(texts, tokenizer: SubwordTokenizer, max_length: int):
    """Returns what `encode` does, in time that long texts do not add to.

    SentencePiece takes the square of the time for a run of unknown characters: 36
    seconds for a megabyte. So it gets no more than a subword can be made of, times
    `max_length`.
    """
    num_bytes = _BYTES_PER_SUBWORD * max_length
    head = tf.strings.substr(texts, 0, num_bytes)
    ids, is_cut = encode(head, tokenizer, max_length)
    return ids, is_cut | (tf.strings.length(texts) > num_bytes)
