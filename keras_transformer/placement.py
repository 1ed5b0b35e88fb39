"""Places the codes of a text, such as tags, in its translation."""

import itertools
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from keras_transformer.markup import Code, Fragment, is_empty, merged
from keras_transformer.translation import UNSPACED_LETTER, Translation

Span = tuple[int, int]
Pair = tuple[Span, Span, float]
"""A part of a text, the part of its translation that renders it, and a weight."""


@dataclass
class _Element:
    """A code, or a pair of codes, and what it encloses."""

    start: int  # in the plain source
    end: int
    opening: Code | None = None
    closing: Code | None = None
    is_lone_end: bool = False
    children: list["_Element"] = field(default_factory=list)
    first: int = 0  # of the words of the translation; `last` is excluded
    last: int = 0

    def order(self):
        """Returns the sort key of siblings: elements without words come first."""
        return self.first, not self.is_lone_end, self.first < self.last


class CodedText:
    """A fragment: its plain text, and where its codes stand in it."""

    def __init__(self, fragment: Fragment):
        self.fragment = fragment
        self.codes: list[tuple[int, Code]] = []
        self.plain, is_apart = "", False
        for item in fragment:
            if isinstance(item, Code):
                self.codes.append((len(self.plain), item))
                is_apart |= item.is_apart
                continue
            # "one<br>two" has two words.
            last = self.plain[-1:]
            is_word = last.isalnum() or last in [*"_.,;:!?)"]
            self.plain += " " * (is_apart and is_word and item[0].isalnum()) + item
            is_apart = False
        visible = (not x.isspace() for x in self.plain)
        self._num_visible = [*itertools.accumulate(visible, initial=0)]

    def write(self, translation: str, pairs: Iterable[Pair]) -> Fragment:
        """Returns a translation of the plain text with the codes."""
        if self.codes and is_empty(self.fragment):
            return self.fragment
        words = _words(translation)
        ends = [end for _, end in words]
        # The part of the source that is rendered, the weight, and one of the words.
        links = [
            (source, weight, word)
            for source, target, weight in pairs
            for word in words_in(target, ends)
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
        root = _Element(0, len(self.plain))
        open_elements = [root]
        kinds = {(code.pair, code.kind) for _, code in self.codes}
        for position, code in self.codes:
            opening, closing = ((code.pair, kind) for kind in ("open", "close"))
            is_pair = code.pair is not None and {opening, closing} <= kinds
            if is_pair and code.kind == "close":
                element = open_elements.pop()
                element.end, element.closing = position, code
                continue
            element = _Element(position, position, code)
            element.is_lone_end = code.kind == "close"
            open_elements[-1].children.append(element)
            if is_pair:
                open_elements.append(element)
        return root

    def _place_children(self, parent, links):
        """Decides which words of the translation the children of an element enclose."""
        owner: dict[int, _Element | None]
        owner = dict.fromkeys(range(parent.first, parent.last))
        for child in parent.children:
            if self._is_blank(child.start, child.end):
                continue
            outside = (parent.start, child.start), (child.end, parent.end)
            if all(self._is_blank(*span) for span in outside):
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


def _written(root, translation: str, words) -> Fragment:
    """Writes a translation with the codes of elements that have their places."""
    starts = [*(start for start, _ in words), len(translation)]
    ends = [0, *(end for _, end in words)]  # of the word before
    written: list[str | Code] = []
    cursor = 0
    todo = [(starts[0], root.opening, root)]
    while todo:
        position, code, element = todo.pop()
        written += [translation[cursor : max(cursor, position)], code or ""]
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
    return merged([*written, translation[cursor:]])


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
            is_part = kind in "LN" and not UNSPACED_LETTER.match(character)
            if is_part and is_open:
                words[-1] = words[-1][0], index + 1
            else:
                words.append((index, index + 1))
            is_open = is_part
    return words


def words_in(span: Span, ends: list[int]) -> range:
    """Returns which words a span touches, by the ends of all words."""
    return range(bisect_right(ends, span[0]), bisect_right(ends, span[1] - 1) + 1)


def guessed_pairs(text: str, translation: str) -> list[Pair]:
    """Aligns words without a model: equal ones, and others by their place."""
    words, others = _words(text), _words(translation)
    count = Counter(text[start:end] for start, end in words)
    known = {text[x[0] : x[1]]: x for x in words if count[text[x[0] : x[1]]] == 1}
    return [
        (
            known.get(translation[start:end], words[len(words) * place // len(others)]),
            (start, end),
            1.0,
        )
        for place, (start, end) in enumerate(others)
        if words
    ]


def translate_coded(
    translator, fragments: Iterable[Fragment], **settings
) -> list[list[tuple[Fragment, Translation]]]:
    """Returns what each fragment becomes, with the `Translation` of its plain text.

    They are best first. Where the translator aligns, codes are placed by that, in the
    best one alone; else they are placed by guess.
    """
    coded = list(map(CodedText, fragments))
    found = translator.translate_n_best([x.plain for x in coded], **settings)
    align: Any = getattr(translator, "align", None)
    rows = list(zip(coded, found, strict=True))
    texts = [(x.plain, row[0].text) for x, row in rows if x.codes and align]
    pairs = iter(align(*map(list, zip(*texts, strict=True))) if texts else ())
    return [
        [(x.write(row[0].text, next(pairs)), row[0])]
        if x.codes and align
        else [(x.write(y.text, guessed_pairs(x.plain, y.text)), y) for y in row]
        for x, row in rows
    ]
