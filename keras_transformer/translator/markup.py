"""Translates text with inline tags, which stay around what they enclosed."""

import html
import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from keras_transformer.decoding import Search
from keras_transformer.translation import UNSPACED_LETTER, Translation, as_bytes
from keras_transformer.translator.alignment import AlignedPair, words_in
from keras_transformer.translator.terms import Terms
from keras_transformer.translator.translator import Translator

_ATTRIBUTES = r"""(?:[\s/](?:"[^"]*"|'[^']*'|[^"'<>])*)?"""
# XLIFF's tags for foreign code have text that is not to be translated.
_CODE = (
    rf"<(?P<code>bpt|ept|it|ph|script|style)\b{_ATTRIBUTES}(?<!/)>.*?</(?P=code)\s*>"
)
_TAG = re.compile(
    rf"<!--.*?-->|<[!?][^<>]*>|{_CODE}"
    rf"|<(?P<end>/)?(?P<name>[^\W\d_][\w:.-]*){_ATTRIBUTES}>",
    re.DOTALL | re.IGNORECASE,
)
_ENTITY = re.compile(r"&(?:#\d+|#[xX][\da-fA-F]+|[A-Za-z]\w*);")
_VOID = re.compile("area|base|br|col|embed|hr|img|input|link|meta|source|track|wbr")
# XLIFF's tags without text of their own that begin and end a part of a text.
_BEGIN_OF_END = {"ept": "bpt", "ex": "bx", "ec": "sc"}
# Tags that may stand within a word.
_WITHIN_WORDS = re.compile(
    "a|abbr|b|bdi|bdo|big|cite|code|del|dfn|em|font|i|ins|kbd|mark|q|s|samp|small|span"
    "|strong|sub|sup|tt|u|var|wbr"
    "|bpt|bx|ec|ept|ex|g|it|mrk|pc|sc"
)


def translate_markup(
    translator: Translator,
    texts: Sequence[str],
    search: Search | None = None,
    batch_size: int | None = None,
    max_length: int | None = None,
    terms: Terms | None = None,
) -> list[Translation]:
    """Translates texts with tags, such as HTML's `<b>` and XLIFF's `<g>` and `<x/>`.

    The text without its tags is translated as `Translator.translate` does, so that no
    tag changes a translation. Then the tags are put back by `Translator.align`:

    - **Every tag of the source stands once in the result**, and tags that were nested
      properly still are. Comments and processing instructions count as tags.
    - **A pair of tags** encloses the part of the translation that renders what it
      enclosed in the source. It begins and ends between words. If that part is not in
      one piece, it encloses the piece with most of it; if nothing renders what
      it enclosed, it encloses nothing. A pair around the whole text, or around all that
      another pair encloses, stays around it.
    - **A tag without content**, such as `<br>`, `<x/>` or `<b></b>`, stands before the
      word that renders the one that it stood before, or at the end.
    - **An unbalanced tag** is placed alone: an opening one as `<br>` is, and a closing
      one after the word that it stood after.
    - **Native code in XLIFF**, such as `<ph>%s</ph>`, is one tag with its content, and
      so are scripts and styles. `<bpt>` and `<ept>`, `<bx/>` and `<ex/>`, `<sc/>` and
      `<ec/>` are pairs.
    - **Entities**, such as `&amp;`, are translated as the characters that they stand
      for. In the result `&`, `<` and `>` are entities wherever they are no part of a
      tag.

    A text of tags and white space alone stays as it is. The values of attributes are
    not translated. `<br>`, and other tags that do not stand within words, separate the
    words around them.

    Args:
        translator: A `Translator`.
        texts: What to translate, a list of str.
        search: As in `Translator.translate`.
        batch_size: As in `Translator.translate`.
        max_length: As in `Translator.translate`.
        terms: As in `Translator.translate`.

    Returns:
        The best `Translation` of each text; its flags tell of a source that was cut.

    Raises:
        ValueError: As in `Translator.translate`.

    Example:
        >>> lines = ["a man rides a bike", "a dog rides a man", "a bike"]
        >>> tokenizer = kt.text.SubwordTokenizer.train(lines, vocabulary_size=25)
        >>> model = kt.models.Transformer(
        ...     25, num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=16
        ... )
        >>> translator = kt.Translator(model, tokenizer)
        >>> (best,) = kt.translator.translate_markup(translator, ["<i>a man</i>"])
        >>> best.text.startswith("<i>"), best.text.endswith("</i>")
        (True, True)
    """
    as_bytes(texts)  # checks that they are texts
    sources = [_Source(text) for text in texts]
    plain = [source.plain for source in sources]
    settings = search, batch_size, max_length, terms
    found = [best for best, *_ in translator.translate_n_best(plain, *settings)]
    tagged = [index for index, source in enumerate(sources) if source.tags]
    pairs = translator.align(
        [plain[index] for index in tagged], [found[index].text for index in tagged]
    )
    pairs_of = dict(zip(tagged, pairs, strict=True))
    return [
        best._replace(text=source.write(best.text, pairs_of.get(index, [])))
        for index, (source, best) in enumerate(zip(sources, found, strict=True))
    ]


@dataclass
class _Element:
    """A tag, or a pair of tags, and what it encloses.

    `start` and `end` are positions in the plain source; `first` and `last` are words of
    the translation, `last` excluded.
    """

    opening: str
    start: int
    end: int
    closing: str = ""
    is_lone_end: bool = False
    children: list["_Element"] = field(default_factory=list)
    first: int = 0
    last: int = 0

    def order(self):
        """Returns what siblings are sorted by: those without words before others."""
        return self.first, not self.is_lone_end, self.first < self.last


class _Source:
    """A text without its tags, and where they stood."""

    def __init__(self, text: str):
        self.text = text
        self.tags: list[_Tag] = []
        self.plain, end, is_apart = "", 0, False
        for match in [*_TAG.finditer(text), None]:
            part = _unescaped(text[end : match.start() if match else None])
            # "one<br>two" has two words.
            is_joined = is_apart and re.search(r"[\w.,;:!?)]$", self.plain)
            if is_joined and part[:1].isalnum():
                self.plain += " "
            self.plain += part
            is_apart = is_apart and not part
            if match:
                end = match.end()
                tag = _tag(match, len(self.plain))
                self.tags.append(tag)
                is_word = not tag.name or _WITHIN_WORDS.fullmatch(tag.name)
                is_apart = is_apart or not is_word
        self._num_visible = [
            0,
            *itertools.accumulate(not x.isspace() for x in self.plain),
        ]

    def write(self, translation: str, pairs: Sequence[AlignedPair]) -> str:
        """Returns a translation of the plain text with the tags."""
        if self.text.strip() and not self.plain.strip():
            return self.text
        words = _words(translation)
        ends = [end for _, end in words]
        # The part of the source that is rendered, the weight, and one of the words.
        links = [
            (pair.source, pair.weight, word)
            for pair in pairs
            for word in words_in(pair.target, ends)
        ]
        root = self._elements()
        root.last = len(words)
        unplaced = [root]
        for element in unplaced:  # It grows while it is read.
            self._place_children(element, links)
            unplaced += element.children
        return _written(root, translation, words)

    def _elements(self) -> _Element:
        """Returns the whole text as an element, with all others in it."""
        ends = _ends(self.tags)
        root = _Element("", 0, len(self.plain))
        open_elements = [root]
        closing = set(ends.values())
        for index, tag in enumerate(self.tags):
            if index in closing:
                element = open_elements.pop()
                element.end, element.closing = tag.position, tag.text
                continue
            element = _Element(tag.text, tag.position, tag.position)
            element.is_lone_end = tag.kind == "end"
            open_elements[-1].children.append(element)
            if index in ends:
                open_elements.append(element)
        return root

    def _place_children(self, parent, links):
        """Decides which words of the translation the children of an element enclose."""
        owner: dict[int, _Element | None]
        owner = dict.fromkeys(range(parent.first, parent.last))
        for child in parent.children:
            is_whole = self._is_blank(parent.start, child.start)
            is_whole = is_whole and self._is_blank(child.end, parent.end)
            if self._is_blank(child.start, child.end):
                continue
            if is_whole:
                child.first, child.last = parent.first, parent.last
            else:
                gains = {word: 0.0 for word in owner if owner[word] is None}
                for (start, end), weight, word in links:
                    if word in gains:
                        is_inside = start < child.end and end > child.start
                        gains[word] += weight if is_inside else -weight
                child.first, child.last = _best_range(gains)
            owner.update(dict.fromkeys(range(child.first, child.last), child))
        for child in parent.children:
            if child.first == child.last:
                place = self._place_of(child, parent, links)
                other = owner.get(place)
                if other and other is owner.get(place - 1):
                    place = other.last if child.is_lone_end else other.first
                child.first = child.last = place

    def _place_of(self, child, parent, links) -> int:
        """Returns the word before which an element without words stands."""
        is_first = self._is_blank(parent.start, child.start)
        is_last = self._is_blank(child.end, parent.end)
        near = [
            (span, word)
            for span, _, word in links
            if parent.first <= word < parent.last
            and parent.start <= span[0] < parent.end
        ]
        if child.is_lone_end:
            before = [(end, word + 1) for (_, end), word in near if end <= child.start]
            return max(before)[1] if before and not is_first else parent.first
        behind = [(start, word) for (start, _), word in near if start >= child.start]
        if is_first and not is_last:
            return parent.first
        return min(behind)[1] if behind and not is_last else parent.last

    def _is_blank(self, start, end) -> bool:
        return self._num_visible[start] == self._num_visible[end]


class _Tag(NamedTuple):
    """A tag: its text, its kind, "begin", "end" or "alone", its name, its place."""

    text: str
    kind: str
    name: str
    position: int


def _tag(match, position: int) -> _Tag:
    """Returns the tag of a match of `_TAG`."""
    text, name = match[0], (match["code"] or match["name"] or "").lower()
    kind = "end" if match["end"] else "begin"
    if name in _BEGIN_OF_END:
        kind, name = "end", _BEGIN_OF_END[name]
    elif name in _BEGIN_OF_END.values():
        kind = "begin"
    elif match["code"] or not name or _VOID.fullmatch(name) or text.endswith("/>"):
        kind = "alone"
    return _Tag(text, kind, name, position)


def _ends(tags) -> dict[int, int]:
    """Returns the index of the closing tag of each opening one that has one.

    Pairs that overlap others stay unbalanced.
    """
    ends: dict[int, int] = {}
    waiting: list[int] = []
    num_waiting: Counter[str] = Counter()
    for index, tag in enumerate(tags):
        if tag.kind == "begin":
            waiting.append(index)
            num_waiting[tag.name] += 1
        elif tag.kind == "end" and num_waiting[tag.name]:
            name = None
            while name != tag.name:
                begin = waiting.pop()
                name = tags[begin].name
                num_waiting[name] -= 1
            ends[begin] = index
    return ends


def _best_range(gains) -> tuple[int, int]:
    """Returns the range of consecutive words with the largest positive sum."""
    best, best_sum = (0, 0), 0.0
    first, total = 0, 0.0
    for word in sorted(gains):
        if total <= 0 or word - 1 not in gains:
            first, total = word, 0.0
        total += gains[word]
        if total > best_sum:
            best, best_sum = (first, word + 1), total
    return best


def _written(root, translation: str, words) -> str:
    """Writes a translation with the tags of elements that have their places."""
    starts = [*(start for start, _ in words), len(translation)]
    ends = [0, *(end for _, end in words)]  # of the word before
    written: list[str] = []
    cursor = 0
    todo = [(starts[0], root.opening, root)]
    while todo:
        position, tag, element = todo.pop()
        part = translation[cursor : max(cursor, position)]
        written += html.escape(part, quote=False), tag
        cursor = max(cursor, position)
        if element is None:
            continue
        last = element.last
        todo.append((ends[last], element.closing, None))
        for child in sorted(element.children, key=_Element.order, reverse=True):
            is_behind = child.is_lone_end or child.first == last
            is_behind = is_behind and child.first > element.first
            place = ends[child.first] if is_behind else starts[child.first]
            todo.append((place, child.opening, child))
    return "".join(written) + html.escape(translation[cursor:], quote=False)


def _words(text: str) -> list[tuple[int, int]]:
    """Splits a text where tags may stand: into words and punctuation marks.

    Where no space separates words, every character is one.
    """
    words: list[tuple[int, int]] = []
    is_open = False  # whether the next letter continues the last word
    for index, character in enumerate(text):
        kind = unicodedata.category(character)[0]
        if kind in "MC" and words and words[-1][1] == index:
            words[-1] = words[-1][0], index + 1
        elif character.isspace() or kind == "Z":
            is_open = False
        else:
            is_letter = kind in "LN"
            is_whole = bool(UNSPACED_LETTER.match(character))
            if is_letter and not is_whole and is_open:
                words[-1] = words[-1][0], index + 1
            else:
                words.append((index, index + 1))
            is_open = is_letter and not is_whole
    return words


def _unescaped(text: str) -> str:
    """Returns a text with the characters that its entities stand for."""
    return _ENTITY.sub(lambda match: html.unescape(match[0]), text)
