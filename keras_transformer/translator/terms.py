"""Terms that a translation must contain, and texts that come through unchanged."""

import functools
import os
import re
import unicodedata
from collections.abc import Iterable, Mapping

import numpy as np
import tensorflow as tf

from keras_transformer.decoding import (
    BeamSearch,
    ConstrainedBeamSearch,
    GreedySearch,
    Search,
)
from keras_transformer.text_files import read_lines
from keras_transformer.translation import PLACEHOLDER, UNSPACED_LETTER
from keras_transformer.translator.alignment import alignment_weights

PATTERNS = {
    "url": r"(?i:\b(?:https?|ftp)://|\bwww\.)[^\s<>\"]*[^\s<>\".,;:!?()\[\]{}'\x{2019}\x{201D}\x{BB}]",
    "email": r"[\p{L}\p{N}._%+-]+@[\p{L}\p{N}-]+(?:\.[\p{L}\p{N}-]+)+",
    "number": r"\b\d+(?:[.,:/'\x{2019}]\d+)*\b",
    "placeholder": PLACEHOLDER,
    "emoji": r"[\p{So}\x{1F3FB}-\x{1F3FF}]"
    r"[\p{So}\x{1F3FB}-\x{1F3FF}\x{FE0F}\x{200D}\x{20E3}]*",
}
"""Patterns of text that translations often must copy unchanged, by name."""

# A phrase of more subwords, such as a long address, takes the place of one unknown
# token: it would be spelt, and there are few lengths to compile for.
MAX_PHRASE_LENGTH = 16
ROWS_PER_ALIGNMENT = 64

MAX_MATCHES = 1024  # considered in one text; no translation has more terms

# Characters around what `Terms.find` keeps, and around words and single characters.
_FROM, _TO, _MARK = "\x02", "\x03", "\x01"
_UNIT = rf"{_FROM}[^{_TO}]*{_TO}|[\p{{L}}\p{{M}}\p{{N}}_]+|[^\s\p{{Z}}]"


class Terms(tf.Module):
    """What translations must contain: terms of a glossary, and texts of their sources.

    Where a source has a term, its translation contains the target term, as it is
    written in the glossary. Where a source has a text that one of the patterns matches,
    its translation contains the same text. Each is there as often as in the source,
    with no letter or digit before or after it.

    Terms are found as whole words, the longest first. A term without capital letters is
    found in any case: "heater" is found in "Heater" and in "HEATER". Any other is found
    only as written: "US" is not found in "us". White space between words may be of any
    kind and length. Text that matches a pattern is not searched for terms; if several
    patterns match, the first one counts.

    A `ConstrainedBeamSearch` finds the translations. Texts that the target's vocabulary
    cannot express, such as many emoji, or only with more than 16 subwords, are
    represented by an unknown token, and written in its place. Unknown tokens that the
    model itself produces are replaced by the subword of the source with the largest
    attention weight.

    Args:
        glossary: Dictionary from source terms to target terms; or the path of a file
            with both on each line, separated by a tab.
        keep: Patterns of text to copy unchanged: names in `PATTERNS` (`"url"`,
            `"email"`, `"number"`, `"placeholder"`, `"emoji"`) and regular expressions
            in the syntax of RE2.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a line has no tab, a term is empty, or a pattern is not a regular
            expression or matches the empty text.

    Example:
        >>> terms = kt.translator.Terms({"heater": "Heizkörper"}, keep=["number"])
        >>> found = terms.find(["Heater 35 is below the heaters"])
        >>> [text.decode() for text in found.to_list()[0]]
        ['Heizkörper', '35']

    Reference:
        [RE2's syntax](https://github.com/google/re2/wiki/Syntax)
    """

    def __init__(
        self,
        glossary: Mapping[str, str] | str | os.PathLike | None = None,
        keep: Iterable[str] = (),
    ):
        super().__init__(name="terms")
        if isinstance(glossary, (str, os.PathLike)):
            glossary = read_glossary(glossary)
        self.glossary = dict(glossary or {})
        for term, target in self.glossary.items():
            if not term.strip() or not target.strip():
                raise ValueError(
                    "`glossary` must have no empty term. "
                    f"Received: {target!r} for {term!r}."
                )
        self.keep = (keep,) if isinstance(keep, str) else tuple(keep)
        patterns = [PATTERNS.get(x, x) for x in self.keep]
        for pattern in patterns:
            try:
                is_empty = tf.strings.regex_full_match("", pattern)
                problem = "and matches the empty text" if is_empty else ""
            except tf.errors.InvalidArgumentError as error:
                problem = error.message.split("}} ", 1)[-1]
            if problem:
                raise ValueError(
                    "`keep` must be names of patterns or regular expressions that "
                    f"match some text. Received: {pattern!r}, {problem}."
                )
        self._kept = "|".join(f"(?:{x})" for x in patterns)
        # An empty table gets a key that no text has.
        units = _units_of([*self.glossary, _FROM])
        self._longest = int(units.bounding_shape()[1])
        keys = tf.strings.reduce_join(units, axis=1, separator=" ").numpy()
        targets = [" ".join(target.split()) for target in self.glossary.values()]
        # Two terms may differ in their spaces only.
        table = dict(zip(keys, [*targets, ""], strict=True))
        rows = tf.lookup.KeyValueTensorInitializer([*table], [*table.values()])
        self._table = tf.lookup.StaticHashTable(rows, "")

    def __repr__(self):
        return f"Terms(glossary={dict(self.glossary)!r}, keep={self.keep!r})"

    def settings(self) -> dict:
        """Returns the arguments."""
        return {"glossary": dict(self.glossary), "keep": list(self.keep)}

    def find(self, texts):
        """Returns what the translations of texts must contain, with TensorFlow ops.

        Args:
            texts: A list of str, or a string tensor of shape `(batch,)`.

        Returns:
            Target terms and kept texts, in the order of the sources: a ragged string
            tensor of shape `(batch, None)`.
        """
        texts = tf.convert_to_tensor(texts, tf.string)
        texts = tf.strings.regex_replace(texts, "[\x01-\x03]", " ")
        if self._kept:
            texts = tf.strings.regex_replace(texts, self._kept, f"{_FROM}\\0{_TO}")
        units = _units_of(texts)
        lengths, targets = self._matches(units)
        starts = units.with_values(tf.range(tf.size(lengths)))
        is_match = units.with_values(lengths > 0)
        starts, lengths, targets = (
            tf.ragged.boolean_mask(x, is_match)[:, :MAX_MATCHES]
            for x in (starts, units.with_values(lengths), units.with_values(targets))
        )

        # From left to right; the longest of all that begin at one place.
        def choose(state, match):
            end, _ = state
            start, length = match
            is_free = start >= end
            return tf.where(is_free, start + length, end), is_free

        matches = tuple(
            tf.transpose(tf.pad(x.to_tensor(-1), [[0, 0], [0, 1]], constant_values=-1))
            for x in (starts, lengths)
        )
        nothing = tf.zeros_like(matches[0][0])
        _, is_chosen = tf.scan(choose, matches, (nothing, nothing > 0))
        targets = targets.to_tensor("")
        is_chosen = tf.transpose(is_chosen)[:, : tf.shape(targets)[1]]
        return tf.ragged.boolean_mask(targets, is_chosen)

    def _matches(self, units):
        """Returns how many units match from each on, and the target, of all texts."""
        words, rows = units.values, units.value_rowids()
        keys, lengths = words, tf.zeros_like(words, tf.int32)
        targets = tf.zeros_like(words)
        for length in range(1, self._longest + 1):
            if length > 1:
                following = tf.roll(words, 1 - length, axis=0)
                is_same_text = tf.range(tf.size(words)) + length <= tf.size(words)
                is_same_text &= tf.roll(rows, 1 - length, axis=0) == rows
                keys = tf.where(is_same_text, keys + " " + following, "")
            found = self._table.lookup(keys)
            lower = tf.strings.lower(keys, encoding="utf-8")
            found = tf.where(found == "", self._table.lookup(lower), found)
            lengths = tf.where(found == "", lengths, length)
            targets = tf.where(found == "", targets, found)
        is_kept = tf.strings.substr(words, 0, 1) == _FROM
        kept = tf.strings.regex_replace(words, f"[{_FROM}{_TO}]", "")
        return tf.where(is_kept, 1, lengths), tf.where(is_kept, kept, targets)


def read_glossary(path: str | os.PathLike) -> dict[str, str]:
    """Reads a glossary, a file of lines with a source term, a tab and a target term."""
    glossary = {}
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        term, *targets = map(str.strip, line.split("\t"))
        if len(targets) != 1 or not term or not targets[0]:
            raise ValueError(
                f"{path}:{number} must have a source term, a tab and a target term. "
                f"Received: {line!r}."
            )
        glossary[term] = targets[0]
    return glossary


def _units_of(texts):
    """Splits texts into words, other characters, and what is kept, without spaces."""
    marked = tf.strings.regex_replace(texts, _UNIT, f"{_MARK}\\0{_MARK}")
    units = tf.strings.split(marked, _MARK)
    is_blank = tf.strings.regex_full_match(units.values, r"[\s\p{Z}]*")
    return tf.ragged.boolean_mask(units, units.with_values(~is_blank))


def required_phrases(terms: Terms, texts, translator, limits):
    """Returns what the translations of `(batch,)` texts must contain, with TensorFlow.

    First the ids, int32 of shape `(batch, phrases, length)`, padded with -1 to a power
    of four and to `MAX_PHRASE_LENGTH`; then the texts that unknown tokens represent, in
    their order, of shape `(batch, phrases)`, padded with empty ones. `limits` are the
    maximum numbers of subwords of each translation; phrases beyond them are left out.
    """
    tokenizer = translator.target_tokenizer
    for each in (translator.source_tokenizer, tokenizer):
        if not each.has_offsets:
            reason = "Terms are not possible with a tokenizer of KerasHub"
            raise ValueError(f"{reason}. Received: {type(each).__name__}.")
    found = terms.find(texts)
    ids = tokenizer(found.values)[:, translator.num_given_tokens() :]
    is_known = tokenizer.detokenize(ids) == found.values
    is_known &= tf.reduce_all(ids != tokenizer.unknown_id, axis=1)
    is_known &= ids.row_lengths() <= MAX_PHRASE_LENGTH
    unknown = tf.fill([tf.size(is_known), 1], tokenizer.unknown_id)
    unknown = tf.ragged.boolean_mask(unknown, ~is_known[:, None])
    is_written = ids.with_values(tf.repeat(is_known, ids.row_lengths()))
    ids = tf.concat([tf.ragged.boolean_mask(ids, is_written), unknown], axis=1)
    # An end token takes one place.
    lengths = found.with_values(tf.cast(ids.row_lengths(), tf.int32)).to_tensor()
    fits = tf.cumsum(lengths, axis=1) < limits[:, None]
    table = found.with_values(ids).to_tensor(-1)
    table = tf.where(fits[..., None], table, -1)[:, : tf.reduce_max(limits)]
    # Few shapes, for which XLA compiles on a server.
    sizes = 4 ** tf.range(1, 16)
    count, length = tf.shape(table)[1], tf.shape(table)[2]
    size = sizes[tf.math.count_nonzero(sizes < count)]
    padding = [[0, 0], [0, size - count], [0, MAX_PHRASE_LENGTH - length]]
    table = tf.pad(table, padding, constant_values=-1)
    is_stand_in = ~found.with_values(is_known).to_tensor(True) & fits
    stand_ins = tf.ragged.boolean_mask(found.to_tensor(), is_stand_in).to_tensor()
    return table, stand_ins


def constrained(search: Search, required_ids, tokenizer) -> ConstrainedBeamSearch:
    """Returns a search with the same settings that finds required phrases."""
    settings: dict = {"processors": search.processors, "end_ids": search.end_ids}
    if isinstance(search, BeamSearch):
        settings["length_penalty"] = search.length_penalty
        settings["num_hypotheses"] = search.num_hypotheses
    elif search.is_random or not isinstance(search, GreedySearch):
        raise ValueError(
            "`search` must be a beam search or greedy search if there are terms. "
            f"Received: search={search!r}."
        )
    else:
        settings["length_penalty"] = 0.0
    settings["continuation_ids"] = continuation_ids(tokenizer)
    return ConstrainedBeamSearch(search.num_slots, required_ids, **settings)


@functools.lru_cache(4)
def continuation_ids(tokenizer) -> tuple[int, ...]:
    """Returns the ids of subwords that continue a word."""
    pieces = tokenizer.pieces(range(tokenizer.vocabulary_size))
    return tuple(i for i, piece in enumerate(pieces) if _continues_word(piece))


def _continues_word(piece):
    first = piece[:1]
    is_letter = first.isalnum() or unicodedata.category(first or " ")[0] == "M"
    is_byte = re.fullmatch("<0x[0-9A-F]{2}>", piece) is not None
    return is_byte or (is_letter and not UNSPACED_LETTER.match(first))


def unknown_texts(translator, texts, source_ids, ids, stand_ins):
    """Returns what to write for the unknown tokens of translations, shaped as `ids`.

    `source_ids`, of shape `(batch, source_length)`, are the ids of texts; `ids` are of
    shape `(batch, hypotheses, length)`. The first unknown tokens that are whole words
    become the `stand_ins` that `required_phrases` returns.
    """
    tokenizer = translator.target_tokenizer
    is_unknown = ids == tokenizer.unknown_id
    # The search has not counted unknown tokens that a subword continues.
    continues = np.zeros(tokenizer.vocabulary_size, "bool")
    continues[list(continuation_ids(tokenizer))] = True
    is_continued = tf.gather(continues, ids[:, :, 1:])
    is_whole = is_unknown & ~tf.pad(is_continued, [[0, 0], [0, 0], [0, 1]])
    place = tf.cumsum(tf.cast(is_whole, tf.int32), axis=2, exclusive=True)
    num_stand_ins = tf.math.count_nonzero(stand_ins != "", axis=1, dtype=tf.int32)
    is_stand_in = is_whole & (place < num_stand_ins[:, None, None])
    padded = tf.pad(stand_ins, [[0, 0], [0, 1]])
    place = tf.where(is_stand_in, place, tf.shape(stand_ins)[1])
    written = _FROM + tf.gather(padded, place, batch_dims=1) + _TO

    def copy():
        pieces = translator.source_tokenizer.split(texts)
        length = tf.shape(source_ids)[1]
        pieces = pieces.to_tensor("")[:, :length]
        pieces = tf.pad(pieces, [[0, 0], [0, length - tf.shape(pieces)[1]]])
        copies = tf.strings.regex_replace(pieces, "^\u2581(.*)$", f"{_FROM}\\1{_TO}")
        shape = tf.shape(ids)
        has_text = tf.repeat((pieces != "") & (pieces != "\u2581"), shape[1], axis=0)
        sources = tf.repeat(source_ids, shape[1], axis=0)
        rows = tf.reshape(ids, [-1, shape[2]])
        weights = alignment_weights(translator.model, sources, rows)
        weights = tf.where(has_text[:, None], weights, -1.0)
        places = tf.reshape(tf.argmax(weights, axis=2), [shape[0], -1])
        copies = tf.reshape(tf.gather(copies, places, batch_dims=1), shape)
        # A letter must not continue a stand-in.
        apart = tf.strings.regex_replace(
            copies, r"^([\p{L}\p{M}\p{N}_].*)$", f"{_FROM}\\1{_TO}"
        )
        is_next = tf.pad(is_stand_in[:, :, :-1], [[0, 0], [0, 0], [1, 0]])
        return tf.where(is_stand_in, written, tf.where(is_next, apart, copies))

    is_copied = tf.reduce_any(is_unknown & ~is_stand_in)
    return tf.cond(is_copied, copy, lambda: written)


def with_spaces(texts):
    """Puts spaces before what `unknown_texts` returned, where they are missing."""
    before = r"([^\s\p{Ps}\p{Pi}\"'\x02])\x02"
    texts = tf.strings.regex_replace(texts, before, "\\1 \x02")
    return tf.strings.regex_replace(texts, f"[{_FROM}{_TO}]", "")
