"""Documents as texts, and texts as sentences to translate.

A text is a list of parts. Those with odd indices are sentences; those with even indices
are kept as they are: white space, and what has no letters. Joined, they are the text.
"""

import html
import math
import re
import unicodedata
from collections.abc import Callable
from typing import NamedTuple

from keras_transformer.checks import optional

ALWAYS_WRAPPED, NEVER_WRAPPED = 0.0, math.inf
# Text with shorter or longer lines has a paragraph in each of them.
MIN_WRAPPED_WIDTH, MAX_WRAPPED_WIDTH = 40, 120
FULL = 0.85  # the share of the width that a line has to reach, since some are ragged
TAG = re.compile(r"<!--.*?-->|</?[A-Za-z][^<>]*>", re.DOTALL)
MARKUP = re.compile(rf"{TAG.pattern}|&(?:#\w+|[A-Za-z]\w*);", re.DOTALL)
_EMPTY_ELEMENT = re.compile(r"<(?:br|hr|img|input|wbr)\b|<[^>]*/>|<!", re.IGNORECASE)
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")
_BREAK = re.compile(  # A space is tried once, however many there are.
    r"(?<![^\S\r\n])[^\S\r\n]*(?:\r\n|\n|\r)[^\S\r\n]*"
)
_BULLET = re.compile(  # of lists, dialogues and songs
    "\\s*(?:[-\u2013\u2014](?=\\s*(?:<|[^\\W\\d]))|[*\u2022\u266a](?=\\s))\\s*"
)
# Where a sentence is cut that is too long; in either half there is something left.
_CLAUSES = re.compile(
    "(?<=[,;:\u2026\u2013\u2014])\\s+(?=\\S)"  # ellipsis, dashes
    "|(?<=[\u3001\uff0c\uff1a\uff1b])\\s*(?=\\S)"  # Chinese commas and colons
)
_WORDS = re.compile(r"(?<=\S)\s+(?=\S)")


class Document(NamedTuple):
    """What reading a document gives: its texts, and how to write their translations.

    Attributes:
        texts: What to translate.
        assemble: Function from their translations to the bytes of a document.
        width: The width that lines are wrapped to; see `wrapped_width`.
        has_tags: Whether the texts may hold inline tags, such as `<b>`.
    """

    texts: list[str]
    assemble: Callable[[list[str]], bytes]
    width: float = NEVER_WRAPPED
    has_tags: bool = True


def split_sentences(
    text: str, language: str, width: float, has_tags: bool = False
) -> list[str]:
    """Returns the parts of a text.

    Args:
        text: The text.
        language: ISO 639 code of its language, which decides about abbreviations.
        width: The width that its lines are wrapped to; see `wrapped_width`.
        has_tags: Whether `<...>` is a tag. A sentence then holds both tags of a pair.
    """
    with optional("sentencex", extra="documents", purpose="Splitting sentences"):
        from sentencex import segment
    language = re.split("[-_]", language)[0]
    parts = [""]
    for paragraph in _paragraphs(text, width):
        read = TAG.sub("", paragraph) if has_tags else paragraph
        sentences = segment(language, read)
        if read != paragraph:
            sentences = _with_tags(sentences, paragraph)
        for sentence in sentences:
            bullet = _BULLET.match(sentence)
            body = sentence[bullet.end() if bullet else 0 :].strip()
            shown = html.unescape(TAG.sub("", body)) if has_tags else body
            if not any(map(str.isalpha, shown)):
                parts[-1] += sentence
                continue
            before, _, after = sentence.partition(body)
            parts[-1] += before
            parts += [body, after]
    return parts


def wrapped_width(text: str) -> float:
    """Returns the width that a text's lines are wrapped to, infinity if they are not.

    19 of 20 lines are no longer than it: an address that cannot be wrapped is no
    measure.
    """
    lengths = sorted(len(line.rstrip()) for line in _LINE.findall(text) if line.strip())
    width = lengths[math.ceil((len(lengths) - 1) * 0.95)] if lengths else 0
    is_wrapped = MIN_WRAPPED_WIDTH <= width <= MAX_WRAPPED_WIDTH
    return width if is_wrapped else NEVER_WRAPPED


def _paragraphs(text, width):
    """Splits a text at the line ends that are not of its wrapping.

    A line end is of the wrapping if the line is full: the first word of the next line
    would not have fitted on it.
    """
    paragraph, line = "", ""
    for following in _LINE.findall(text):
        words = following.split(maxsplit=1)
        is_wrapped = (
            line.strip()
            and words
            and len(line.rstrip()) + 1 + len(words[0]) > FULL * width
            and not _BULLET.match(following)
        )
        if not is_wrapped:
            yield paragraph
            paragraph = ""
        paragraph += following
        line = following
    yield paragraph


def _with_tags(sentences, text):
    """Returns the sentences of a text without tags as they are with its tags."""
    found, start, sentence = [], 0, ""
    for length in map(len, sentences):
        end = start
        while length:
            tag = TAG.match(text, end)
            end = tag.end() if tag else end + 1
            length -= not tag
        while (tag := TAG.match(text, end)) and tag[0].startswith("</"):
            end = tag.end()
        sentence += text[start:end]
        start = end
        if _is_balanced(sentence):
            found.append(sentence)
            sentence = ""
    if rest := sentence + text[start:]:
        found.append(rest)
    return found


def _is_balanced(text):
    """Returns whether a text has as many closing tags as it has opening ones."""
    tags = [tag for tag in TAG.findall(text) if not _EMPTY_ELEMENT.match(tag)]
    return 2 * sum(tag.startswith("</") for tag in tags) == len(tags)


def split_long(translator, sentences: list[str], has_tags: bool) -> list[list[str]]:
    """Halves sentences that a translator would cut, until it reads all of them.

    They are cut at the punctuation nearest to the middle, else between two words, else
    within a word. Returns the pieces of each sentence, with what stands between them at
    odd indices.
    """
    if not sentences:
        return []
    read = [unwrapped(TAG.sub("", one) if has_tags else one) for one in sentences]
    found = []
    for sentence, is_long in zip(sentences, translator.are_cut(read), strict=True):
        pieces = _halves(sentence, has_tags) if is_long else [sentence]
        if len(pieces) > 1:
            first, gap, last = pieces
            one, other = split_long(translator, [first, last], has_tags)
            pieces = [*one, gap, *other]
        found.append(pieces)
    return found


def _halves(text, has_tags):
    """Cuts a text in two, with what stands between; returns one part if that fails."""
    # Tags become something else, of the same length, in which nothing is cut.
    masked = TAG.sub(lambda tag: "\0" * len(tag[0]), text) if has_tags else text
    middle = len(text) / 2
    for pattern in (_CLAUSES, _WORDS):
        gaps = [gap.span() for gap in pattern.finditer(masked)]
        if pattern is _CLAUSES:
            gaps = [gap for gap in gaps if abs(gap[0] - middle) <= middle / 2]
        if gaps:
            start, end = min(gaps, key=lambda gap: abs(gap[0] - middle))
            return [text[:start], text[start:end], text[end:]]
    inside = (i for i in range(1, len(text)) if "\0" not in masked[i - 1 : i + 1])
    at = min(inside, key=lambda i: abs(i - middle), default=0)
    return [text[:at], "", text[at:]] if at else [text]


def unwrapped(sentence: str) -> str:
    """Returns a sentence in one line."""
    return _BREAK.sub(" ", sentence)


def wrapped_like(sentence: str, translation: str) -> str:
    """Breaks the lines of a translation about where those of its sentence break."""
    breaks = list(_BREAK.finditer(sentence))
    cuts, spaces = [], [space.start() for space in re.finditer(" ", translation)]
    for one in breaks:
        wanted = one.start() / len(sentence) * len(translation)
        if spaces:
            cuts.append(min(spaces, key=lambda space: abs(space - wanted)))
            spaces = [space for space in spaces if space > cuts[-1]]
    for cut, one in reversed(list(zip(cuts, breaks, strict=False))):
        translation = translation[:cut] + one[0] + translation[cut + 1 :]
    return translation


def joined(parts: list[str], translations: list[str]) -> str:
    """Returns a text's parts with a translation in place of each sentence.

    Where sentences follow each other without a space, as in Chinese, their
    translations get one unless their script has none either.
    """
    text = parts[0]
    pairs = zip(parts[1::2], translations, parts[2::2], strict=True)
    for number, (sentence, translation, gap) in enumerate(pairs, start=1):
        text += wrapped_like(sentence, translation)
        is_last = 2 * number + 1 == len(parts)
        if not gap and not is_last and text and not _is_wide(text[-1]):
            gap = " "
        text += gap
    return text


def _is_wide(character):
    return unicodedata.east_asian_width(character) in "WF"
