"""The grid of axes in a figure, and token labels for any script."""

import math
import re
import unicodedata
from collections.abc import Sequence

from matplotlib import font_manager
from matplotlib.axis import Axis

WORD_START = "\u2581"  # SentencePiece's mark for a space
MIN_LABEL_SIZE, MAX_LABEL_SIZE = 5, 10  # points
MAX_LABEL_LENGTH = 20  # characters
# Such as `</s>`, and languages of OPUS-MT, of M2M100, and of mBART and NLLB.
_SYMBOL = re.compile(r"<[^<>]+>|>>.+<<|__\w+__|[a-z]{2,3}_[A-Z]\w+")
# These fonts have a placeholder for every character and nothing else.
PLACEHOLDER_FONTS = {"Last Resort", "Last Resort High-Efficiency"}


def grid(count: int, max_columns: int) -> tuple[int, int]:
    """Returns the smallest number of rows for `count` axes, and of columns for them."""
    rows = math.ceil(count / max_columns)
    return rows, math.ceil(count / rows)


def words(tokens: Sequence[str]) -> list[str]:
    """Returns tokens as people read them; a dot marks subwords that continue a word."""
    if any(token.startswith(WORD_START) for token in tokens):
        tokens = [f"\u00b7{x}" if x[:1].isalnum() else x for x in tokens]
    texts = (token.removeprefix(WORD_START) for token in tokens)
    return [text.replace(WORD_START, " ") or "\u2423" for text in texts]


def without_symbols(tokens: Sequence[str]) -> list[str]:
    """Returns tokens without symbols such as `</s>`, or `>>ara<<` for a language."""
    return [each for each in tokens if not _SYMBOL.fullmatch(each)]


def direction(tokens: Sequence[str]) -> str:
    """Returns the reading direction of the first letter, `"ltr"` or `"rtl"`."""
    for character in "".join(without_symbols(tokens)):
        kind = unicodedata.bidirectional(character)
        if kind in ("L", "R", "AL"):
            return "ltr" if kind == "L" else "rtl"
    return "ltr"


def readable(tokens: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns labels for tokens, and the font families that together have their glyphs.

    Very long tokens are cut. A character that no font has becomes a box, since
    Matplotlib would warn about it.
    """
    limit = MAX_LABEL_LENGTH
    texts = [
        text if len(text) <= limit else text[: limit - 1] + "\u2026"
        for text in words(tokens)
    ]
    families, missing = _find_fonts(set("".join(texts)))
    boxes = dict.fromkeys(map(ord, missing), "\u25a1")
    return [text.translate(boxes) for text in texts], families


def label_axis(axis: Axis, texts, families, inches: float) -> None:
    """Labels an axis `inches` long, only every nth tick if not all labels fit."""
    size = 0.8 * 72 * inches / len(texts)  # of the font, in points
    every = math.ceil(MIN_LABEL_SIZE / size)
    axis.set_ticks(range(0, len(texts), every), texts[::every])
    for label in axis.get_ticklabels():
        label.set_fontfamily(families)
        label.set_fontsize(min(MAX_LABEL_SIZE, size * every))
        label.set_parse_math(False)  # dollar signs start no formula


def _find_fonts(characters):
    """Returns font families for the characters, and the characters that none has."""
    # Matplotlib reads every font that is named: the default ones and what is needed.
    default = font_manager.FontProperties().get_family()
    fonts = font_manager.fontManager.ttflist
    plain = {one.name for one in fonts if (one.style, one.weight) == ("normal", 400)}
    families = []
    for family in [*default, *sorted(plain - PLACEHOLDER_FONTS)]:
        path = font_manager.findfont(font_manager.FontProperties(family=[family]))
        glyphs = font_manager.get_font(path).get_charmap()
        found = {character for character in characters if ord(character) in glyphs}
        if found or family in default:
            families.append(family)
        characters = characters - found
        if not characters:
            break
    return families, characters
