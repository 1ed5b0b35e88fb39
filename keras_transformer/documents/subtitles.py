"""Subtitles: the texts of the cues of SRT and WebVTT, with their tags.

Reference:
    https://www.w3.org/TR/webvtt1
"""

import html
import re

from keras_transformer.documents.document import (
    ALWAYS_WRAPPED,
    Document,
    changed_in_place,
    decoded,
)
from keras_transformer.markup import (
    Tag,
    fragment_of_tags,
    html_tags,
    is_empty,
    shown,
    write_markup,
)

_TIME = r"(?:\d+:)?\d+:\d+(?:[.,]\d+)?"
# A time, after the number of its cue if it has one.
_HEAD = re.compile(
    rf"^(?:[ \t]*\d+[ \t]*(?:\r\n|\n|\r))?[ \t]*{_TIME}[ \t]*-->[ \t]*{_TIME}[^\r\n]*",
    re.MULTILINE,
)
_BLANK_LINE = re.compile(r"(?:\r\n|\n|\r(?!\n))[ \t]*[\r\n]")
_SRT_TAGS = {"b", "font", "i", "s", "u"}
_VTT_TAGS = {"b", "c", "i", "lang", "rt", "ruby", "u", "v"}
# Styles and breaks of Advanced SubStation Alpha in SRT; times within a cue of WebVTT.
_SRT_CODE = re.compile(r"\{\\[^{}\r\n]*\}|\\[Nnh]")
_VTT_CODE = re.compile(r"<[\d:.]+>")


def read_srt(data: bytes, **settings) -> Document:
    """Reads SRT: a text extends to the next time, even over blank lines."""
    return _read(data, _SRT_TAGS, _SRT_CODE, str, lambda text, old: shown(text))


def read_vtt(data: bytes, **settings) -> Document:
    """Reads WebVTT: a text ends with a blank line, and may have entities."""
    how = _VTT_TAGS, _VTT_CODE, html.unescape, write_markup
    return _read(data, *how, end_of_text=_BLANK_LINE)


def _read(data, names, code, unescape, write, end_of_text=None):
    source = decoded(data)
    heads = [head.span() for head in _HEAD.finditer(source.text)]
    ends = [start for start, _ in heads[1:]] + [len(source.text)]
    spans, texts = [], []
    for (_, start), end in zip(heads, ends, strict=False):
        ending = end_of_text and end_of_text.search(source.text, start, end)
        end = ending.start() if ending else end
        text = source.text[start:end]
        tags = [
            tag._replace(name=tag.name.partition(".")[0]) for tag in html_tags(text)
        ]
        tags = [tag for tag in tags if tag.name in names and text[tag.end - 1] == ">"]
        for found in code.finditer(text):
            name = "br" if found[0].startswith("\\") else ""
            tags.append(Tag(found.start(), found.end(), name=name))
        apart: list[Tag] = []
        for tag in sorted(tags):
            if not apart or tag.start >= apart[-1].end:
                apart.append(tag)
        fragment = fragment_of_tags(text, apart, 0, len(text), unescape)
        if not is_empty(fragment):
            spans.append((start, end))
            texts.append(fragment)
    return changed_in_place(source, spans, texts, write, width=ALWAYS_WRAPPED)
