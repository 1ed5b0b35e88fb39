"""Texts as model inputs: padded ids with start and end tokens."""

import tensorflow as tf

from keras_transformer.text.tokenizer import LEFT_OUT, Tokenizer, batch_of_texts, plain

# SentencePiece's subwords have at most 16 characters of at most 4 bytes.
_MAX_BYTES_PER_SUBWORD = 64
_INVISIBLE = (
    r"[\s\v\x1c-\x1f\x{85}\p{Z}\x{AD}\x{200B}\x{200E}\x{200F}\x{2060}\x{FEFF}\x{2581}]"
)
_BLANK = r"[\s\v\x1c-\x1f\x{85}\p{Z}]"  # as for `str.isspace`
WHITE_SPACE = f"{_BLANK}*"


def encode(texts, tokenizer: Tokenizer, max_length: int):
    """Returns texts as model inputs: subwords, an end token, padding.

    The tokenizer gets only the beginning of a long text.

    Args:
        texts: A list of str, or a string tensor of shape `(batch,)`.
        tokenizer: Tokenizer of the source language.
        max_length: Maximum number of ids, including the end token. Longer texts are
            truncated before their end token.

    Returns:
        Ids, int32 of shape `(batch, length)`, as long as the longest text needs, and a
        boolean tensor of shape `(batch,)`, True for truncated texts.
    """
    read, is_longer = beginning(plain(batch_of_texts(texts)), max_length)
    ids = tokenizer(read)
    is_cut = (ids.row_lengths() >= max_length) | is_longer
    ends = tf.fill([ids.nrows(), 1], tokenizer.end_id)
    ids = tf.concat([ids[:, : max_length - 1], ends], axis=1)
    return ids.to_tensor(tokenizer.pad_id), is_cut


def beginning(texts, max_length: int):
    """Returns the part of texts that their first `max_length` subwords can cover.

    SentencePiece takes quadratic time for a run of unknown characters: 36 seconds for a
    megabyte. White space takes no subwords. Also returns which texts continue, boolean
    `(batch,)`.
    """
    limit = _MAX_BYTES_PER_SUBWORD * max_length
    is_long = tf.strings.length(texts) > limit
    rows = tf.where(is_long)
    characters = tf.strings.unicode_split(tf.gather_nd(texts, rows), "UTF-8")
    is_blank = tf.strings.regex_full_match(characters.values, _BLANK)
    num_bytes = tf.where(is_blank, 0, tf.strings.length(characters.values))
    ends = tf.cumsum(num_bytes)
    before = tf.gather(tf.pad(ends, [[1, 0]]), characters.row_starts())
    fits = ends - tf.gather(before, characters.value_rowids()) <= limit
    read = tf.ragged.boolean_mask(characters, characters.with_values(fits))
    rest = characters.with_values(~fits & ~is_blank)
    some = tf.strings.reduce_join(read, axis=1)
    texts = tf.tensor_scatter_nd_update(texts, rows, some)
    goes_on = tf.reduce_any(rest, axis=1)
    return texts, tf.scatter_nd(rows, goes_on, tf.shape(texts, rows.dtype))


def encoded_spans(texts, tokenizer: Tokenizer, max_length: int):
    """Returns where the subwords that `encode` returns are in their texts.

    Positions count the characters of a text as it is given, before it is normalized.
    White space around a subword is left out. A subword without text of its own has an
    empty span: the end token, a language, the mark of a space, and all but the last of
    several subwords that one character was normalized to.

    Spans are the first character of each subword and the one after its last, int32 of
    shape `(batch, length, 2)`; empty spans, and spans of padding, are `(0, 0)`.
    """
    texts = batch_of_texts(texts)
    read, _ = beginning(plain(texts), max_length)
    starts, ends = tokenizer.byte_offsets(read)
    rows = starts.value_rowids()
    # All rows are searched at once, by indices into the characters of all of them.
    characters = tf.strings.unicode_split(texts, "UTF-8")
    firsts = characters.row_starts()
    kept = _indices(~tf.strings.regex_full_match(characters.values, LEFT_OUT))
    visible = _indices(~tf.strings.regex_full_match(characters.values, _INVISIBLE))
    byte_starts = tf.strings.unicode_decode_with_offsets(read, "UTF-8")[1]
    keys = _keys(byte_starts.value_rowids(), byte_starts.values)
    num_before = tf.searchsorted(kept, firsts, out_type=tf.int64)
    num_before -= byte_starts.row_starts()

    def character_at(offsets):
        number = tf.searchsorted(keys, _keys(rows, offsets), "right", tf.int64) - 1
        return _item(kept, number + tf.gather(num_before, rows))

    begin = tf.searchsorted(visible, character_at(starts.values))
    end = tf.searchsorted(visible, character_at(ends.values - 1), side="right")
    has_text = (starts.values < ends.values) & (begin < end)
    spans = tf.stack([_item(visible, begin), _item(visible, end - 1) + 1], axis=1)
    spans -= tf.gather(firsts, rows)[:, None]
    spans = tf.cast(tf.where(has_text[:, None], spans, 0), tf.int32)
    spans = starts.with_values(spans)[:, : max_length - 1]
    end = tf.zeros([spans.nrows(), 1, 2], tf.int32)
    return tf.concat([spans, end], axis=1).to_tensor()


def _indices(is_true):
    return tf.where(is_true)[:, 0]


def _keys(rows, offsets):
    """Returns integers that sort by row, then by offset."""
    return rows * 2**32 + offsets


def _item(values, indices):
    """`values[indices]`, or any integer where an index is out of range."""
    values = tf.concat([values, [0]], axis=0)
    last = tf.size(values, indices.dtype) - 1
    return tf.gather(values, tf.clip_by_value(indices, 0, last))


def add_start_and_end(ids: tf.RaggedTensor, tokenizer, start=False, end=False):
    """Adds a tokenizer's start token, end token or both to each row of ragged ids."""
    columns = [ids]
    if start:
        columns.insert(0, tf.fill([ids.nrows(), 1], tokenizer.start_id))
    if end:
        columns.append(tf.fill([ids.nrows(), 1], tokenizer.end_id))
    return tf.concat(columns, axis=1)
