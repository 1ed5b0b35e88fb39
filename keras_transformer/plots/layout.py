"""What figures share: where axes stand, and labels that can be read in any script."""

import math
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from matplotlib import font_manager
from matplotlib.axis import Axis

SPACE = "\u2581"  # as SentencePiece writes it
SMALLEST_LABEL, LARGEST_LABEL = 5, 10  # points
LONGEST_LABEL = 20  # characters
# Fonts of nothing but placeholders, for every character.
PLACEHOLDERS = {"Last Resort", "Last Resort High-Efficiency"}


class Labels(NamedTuple):
    """Texts, and the font families that together hold their characters."""

    texts: list[str]
    families: list[str]


def grid(count: int, most_columns: int) -> tuple[int, int]:
    """Returns the rows and columns of as few rows as will do, about equally full."""
    rows = math.ceil(count / most_columns)
    return rows, math.ceil(count / rows)


def words(tokens: Sequence[str]) -> list[str]:
    """Returns tokens as a person likes to read them.

    Of subwords, those that begin a word lose their mark, those that continue one get
    a dot.

    Args:
        tokens: Subwords as SentencePiece writes them, or anything else.
    """
    texts = []
    are_subwords = any(token.startswith(SPACE) for token in tokens)
    for token in tokens:
        continues = are_subwords and token[:1].isalnum()
        text = f"\u00b7{token}" if continues else token.removeprefix(SPACE)
        texts.append(text.replace(SPACE, " ") or "\u2423")
    return texts


def direction(tokens: Sequence[str]) -> str:
    """Returns how tokens are read, `"ltr"` or `"rtl"`: as their first letter is.

    Symbols such as `<s>` and `</s>` do not count.
    """
    for character in "".join(each for each in tokens if not each.startswith("<")):
        kind = unicodedata.bidirectional(character)
        if kind in ("L", "R", "AL"):
            return "ltr" if kind == "L" else "rtl"
    return "ltr"


def readable(tokens: Sequence[str]) -> Labels:
    """Returns tokens as words, and fonts for them.

    A very long one is cut. A character that no font has, of which Matplotlib would
    warn, is a box.

    Args:
        tokens: Subwords as SentencePiece writes them, or anything else.
    """
    texts = [
        text if len(text) <= LONGEST_LABEL else text[: LONGEST_LABEL - 1] + "\u2026"
        for text in words(tokens)
    ]
    families, missing = _find_fonts(set("".join(texts)))
    boxes = dict.fromkeys(map(ord, missing), "\u25a1")
    return Labels([text.translate(boxes) for text in texts], families)


def label_axis(axis: Axis, labels: Labels, inches: float) -> None:
    """Labels an axis that long, or every nth place on it if not all labels fit."""
    size = 0.8 * 72 * inches / len(labels.texts)  # of the letters, in points
    every = math.ceil(SMALLEST_LABEL / size)
    axis.set_ticks(range(0, len(labels.texts), every), labels.texts[::every])
    for label in axis.get_ticklabels():
        label.set_fontfamily(labels.families)
        label.set_fontsize(min(LARGEST_LABEL, size * every))
        label.set_parse_math(False)  # a dollar sign is just that


def _find_fonts(characters):
    """Returns font families for the characters, and the characters that none has.

    No font has all scripts. Beside the usual ones only those are named that are
    needed, since Matplotlib reads whatever is named.
    """
    usual = font_manager.FontProperties().get_family()
    installed = {
        font.name
        for font in font_manager.fontManager.ttflist
        if (font.style, font.weight) == ("normal", 400)
    }
    families = []
    for family in [*usual, *sorted(installed - PLACEHOLDERS)]:
        path = font_manager.findfont(font_manager.FontProperties(family=[family]))
        glyphs = font_manager.get_font(path).get_charmap()
        found = {character for character in characters if ord(character) in glyphs}
        if found or family in usual:
            families.append(family)
        characters = characters - found
        if not characters:
            break
    return families, characters
