"""Splits texts into sentences to translate.

A text is a list of parts, each a fragment. Parts with odd indices are sentences; parts
with even indices stay as they are: white space, codes around sentences, and anything
without letters. Joined, they are the text.
"""

import itertools
import math
import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from keras_transformer.checks import optional
from keras_transformer.documents.document import (
    NEVER_WRAPPED,
    Document,
    changed_in_place,
    decoded,
)
from keras_transformer.markup import Code, Fragment, merged, plain_text

# Text with shorter or longer lines has a paragraph in each of them.
MIN_WRAPPED_WIDTH, MAX_WRAPPED_WIDTH = 40, 120
FULL = 0.85  # the share of the width that a line has to reach, since some are ragged
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")
# A run of spaces is tried once.
_BREAK = re.compile(r"(?<![ \t])[ \t]*(?:\r\n|\n|\r)[ \t]*")
_BULLET = re.compile(  # of lists, dialogues and songs
    "\\s*(?:[-\u2013\u2014](?=\\s*[^\\W\\d])|[*\u2022\u266a](?=\\s))\\s*"
)
# A space of several bytes before a full stop makes sentencex panic.
_WIDE_SPACE = re.compile(r"[^\S\x00-\x7f]")
_SENTENCE_END = re.compile("[.!?:;\u2026][\"'\u201d\u2019\u00bb)\\]]*\\s*$")
# Where to cut a sentence that is too long; neither half is empty.
_CLAUSES = re.compile(
    "(?<=[,;:\u2026\u2013\u2014])\\s+(?=\\S)"  # ellipsis, dashes
    "|(?<=[\u3001\uff0c\uff1a\uff1b])\\s*(?=\\S)"  # Chinese commas and colons
)
_WORDS = re.compile(r"(?<=\S)\s+(?=\S)")


def read_text(data: bytes, **settings) -> Document:
    """Reads paragraphs of plain text."""
    source = decoded(data)
    span, text = (0, len(source.text)), merged([source.text])
    return changed_in_place(source, [span], [text], width=wrapped_width(source.text))


def split_sentences(text: Fragment, language: str, width: float) -> list[Fragment]:
    """Returns the parts of a text whose lines are wrapped to a width.

    A sentence holds both codes of a pair. The language decides about abbreviations.
    """
    language = re.split("[-_]", language)[0]
    lengths = [
        length
        for paragraph in _paragraphs(plain_text(text), width)
        for length in _sentence_lengths(language, paragraph)
    ]
    ends = {*itertools.accumulate(lengths), *_ends_at_codes(text)}
    parts: list[Fragment] = [[]]
    for sentence in _cut(text, sorted(ends), within_pairs=False):
        if bullet := _BULLET.match(plain_text(sentence)):
            first, *others = _cut(sentence, [bullet.end()])
            parts[-1] += first
            sentence = others[0] if others else []
        before, body, after = _without_ends(sentence)
        if not any(map(str.isalpha, plain_text(body))):
            parts[-1] += sentence
            continue
        parts[-1] += before
        parts += [body, after]
    return list(map(merged, parts))


def _sentence_lengths(language, paragraph) -> list[int]:
    with optional("sentencex", extra="documents", purpose="Splitting sentences"):
        from sentencex import segment
    # A lone surrogate, which UTF-8 cannot encode, becomes a question mark.
    read = _WIDE_SPACE.sub(" ", paragraph).encode("utf-8", "replace").decode()
    try:
        return list(map(len, segment(language, read)))
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # of Rust, and no `Exception`
            raise
        return [len(paragraph)]


def _ends_at_codes(text):
    """Yields where codes that separate words end a sentence, as `<br>` does."""
    position, line = 0, ""
    for item in text:
        if isinstance(item, str):
            position += len(item)
            line = item
        elif item.is_apart and _SENTENCE_END.search(line[-20:]):
            yield position


def _cut(
    text: Fragment, ends: Sequence[int], within_pairs: bool = True
) -> list[Fragment]:
    """Cuts a fragment at places of its plain text, in order.

    Between two pieces, closing codes belong to the first. Unless `within_pairs`, a
    piece goes on until it has both codes of each pair.
    """
    items: list[tuple[int, str | Code]] = []
    position = 0
    for item in text:
        if isinstance(item, str):
            first, position = position, position + len(item)
            inner = ends[bisect_right(ends, first) : bisect_left(ends, position)]
            for start, end in itertools.pairwise([first, *inner, position]):
                items.append((start, item[start - first : end - first]))
        else:
            items.append((position, item))
    limits = set(ends)
    pieces: list[Fragment] = [[]]
    last, num_open = 0, 0
    for start, item in items:
        code = item if isinstance(item, Code) else Code("")
        is_due = start in limits and start > last and code.kind != "close"
        if is_due and not num_open:
            pieces.append([])
            last = start
        pieces[-1].append(item)
        if code.pair is not None and not within_pairs:
            num_open += {"open": 1, "close": -1}[code.kind]
    return pieces


def _without_ends(text: Fragment) -> tuple[Fragment, Fragment, Fragment]:
    """Splits off white space, codes before and after all words, and pairs around them.

    Codes whose partner is between the words stay with them.
    """
    items: list[str | Code] = []
    for item in text:
        if isinstance(item, str) and item.strip():
            items += item.partition(item.strip())
        else:
            items.append(item)
    places = {(x.pair, x.kind): i for i, x in enumerate(items) if isinstance(x, Code)}
    first, last = 0, len(items)

    def partner(code):
        other = {"open": "close", "close": "open"}.get(code.kind)
        return -1 if code.pair is None else places.get((code.pair, other), -1)

    def is_outside(item):
        if isinstance(item, str):
            return not item.strip()
        return not first <= partner(item) < last

    while first < last:
        if is_outside(items[first]):
            first += 1
        elif is_outside(items[last - 1]):
            last -= 1
        elif isinstance(items[first], Code) and partner(items[first]) == last - 1:
            first, last = first + 1, last - 1
        else:
            break
    return items[:first], items[first:last], items[last:]


def wrapped_width(text: str) -> float:
    """Returns the width that lines are wrapped to, infinity if they are not."""
    # One line of 20 may be longer, such as an address that cannot be wrapped.
    lengths = sorted(len(line.rstrip()) for line in _LINE.findall(text) if line.strip())
    width = lengths[math.ceil((len(lengths) - 1) * 0.95)] if lengths else 0
    is_wrapped = MIN_WRAPPED_WIDTH <= width <= MAX_WRAPPED_WIDTH
    return width if is_wrapped else NEVER_WRAPPED


def end_within_sentences(lines: Iterable[str]) -> bool:
    """Returns whether most lines clearly end within a sentence.

    Then the next one begins in lower case. What has no capital letters, such as
    captions, is no such text.
    """
    lines = [line.strip() for line in lines if line.strip()]
    num_cut = sum(
        following[0].islower() and not _SENTENCE_END.search(line[-20:])
        for line, following in itertools.pairwise(lines)
    )
    starts = re.findall(r"[.!?]\s+(\w)", "\n".join(lines))
    return 2 * num_cut > len(lines) and any(map(str.isupper, starts))


def _paragraphs(text, width):
    """Splits a text at the line ends that are not of its wrapping.

    A line end is of the wrapping if the line is full: the first word of the next line
    would not have fitted on it.
    """
    paragraph: list[str] = []
    line = ""
    for following in _LINE.findall(text):
        words = following.split(maxsplit=1)
        is_wrapped = line.strip() and words and not _BULLET.match(following)
        if not is_wrapped or len(f"{line.rstrip()} {words[0]}") <= FULL * width:
            yield "".join(paragraph)
            paragraph = []
        paragraph.append(following)
        line = following
    yield "".join(paragraph)


def split_long(translator, texts: list[list[Fragment]]) -> list[list[Fragment]]:
    """Returns the parts of texts, with sentences that a translator can read.

    Those that it would cut are halved: at the punctuation nearest to the middle, else
    between two words, else within a word.
    """
    read = [plain_text(unwrapped(one)) for text in texts for one in text[1::2]]
    is_long = iter(translator.are_cut(read) if read else ())
    found = []
    for text in texts:
        found.append(text[:1])
        for sentence, gap in zip(text[1::2], text[2::2], strict=True):
            found[-1] += [*(_halves(sentence) if next(is_long) else [sentence]), gap]
    is_done = list(map(len, found)) == list(map(len, texts))
    return found if is_done else split_long(translator, found)


def _halves(sentence: Fragment) -> list[Fragment]:
    """Cuts a sentence in two, with what is between; one character stays whole."""
    text = plain_text(sentence)
    middle = len(text) / 2
    for pattern, furthest in ((_CLAUSES, middle / 2), (_WORDS, middle)):
        gaps = [(abs(x.start() - middle), x.span()) for x in pattern.finditer(text)]
        distance, (start, end) = min(gaps, default=(math.inf, (0, 0)))
        if distance <= furthest:
            first, *gap, last = _cut(sentence, sorted({start, end}))
            return [first, gap[0] if gap else [], last]
    if len(text) < 2:
        return [sentence]
    first, last = _cut(sentence, [len(text) // 2])
    return [first, [], last]


def unwrapped(sentence: Fragment) -> Fragment:
    """Returns a sentence in one line."""
    return [_BREAK.sub(" ", x) if isinstance(x, str) else x for x in sentence]


def wrapped_like(sentence: Fragment, translation: Fragment) -> Fragment:
    """Breaks the lines of a translation about where its sentence has line breaks."""
    source, text = plain_text(sentence), plain_text(translation)
    breaks = list(_BREAK.finditer(source))
    spaces = [space.start() for space in re.finditer(" ", text)] if breaks else []
    ends = {}
    for one in breaks:
        wanted = one.start() / len(source) * len(text)
        if not spaces:
            break
        cut = min(spaces, key=lambda space: abs(space - wanted))
        spaces = [space for space in spaces if space > cut]
        ends[cut] = one[0]
    wrapped: list[str | Code] = []
    position = 0
    for item in translation:
        if isinstance(item, str):
            wrapped += [ends.get(i, x) for i, x in enumerate(item, start=position)]
            position += len(item)
        else:
            wrapped.append(item)
    return merged(wrapped)


def joined(parts: Sequence[Fragment], translations: Iterable[Fragment]) -> Fragment:
    """Returns a text's parts with translations, the next ones, in place of sentences.

    Where sentences follow each other without a space, as in Chinese, their
    translations get one unless their script has none either.
    """
    text = list(parts[0])
    pairs = zip(parts[1::2], parts[2::2], translations, strict=False)
    for number, (sentence, gap, translation) in enumerate(pairs, start=1):
        text += wrapped_like(sentence, translation)
        is_last = 2 * number + 1 == len(parts)
        if not is_last and not any(isinstance(x, str) or x.is_apart for x in gap):
            last, new = plain_text(sentence)[-1:], plain_text(translation)[-1:]
            text += [" "] if new and _is_wide(last) and not _is_wide(new) else []
        text += gap
    return merged(text)


def _is_wide(character):
    return unicodedata.east_asian_width(character) in "WF"
