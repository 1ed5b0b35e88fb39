"""XLIFF and TMX: units that have no translation, with their inline elements.

Reference:
    https://docs.oasis-open.org/xliff/v1.2/os/xliff-core.html,
    https://docs.oasis-open.org/xliff/xliff-core/v2.1/xliff-core-v2.1.html,
    https://www.gala-global.org/tmx-14b
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

from keras_transformer.documents.document import Document, Source, decoded, edited
from keras_transformer.markup import (
    Fragment,
    Tag,
    fragment_of_tags,
    is_empty,
    write_markup,
)

# Elements around translated text; all others hold native code.
_AROUND_TEXT = {"g", "hi", "mrk", "pc"}
_XML_ENCODING = re.compile(rb"""<\?xml[^>]*\sencoding\s*=\s*["']([\w.-]+)""")
# States of targets that are no translation yet.
_UNTRANSLATED = {"initial", "needs-translation", "new"}


@dataclass
class Element:
    """An element, with where it and its content stand in the text."""

    tag: str  # its name, with its prefix
    attributes: dict[str, str]
    start: int
    content_start: int = 0
    content_end: int = 0
    end: int = 0
    # All but text: elements, and others such as comments.
    children: list["Tag | Element"] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name without a prefix."""
        return self.tag.rpartition(":")[2]

    def elements(self, name: str) -> list["Element"]:
        """Returns the elements of a name among the children."""
        return [x for x in self.children if isinstance(x, Element) and x.name == name]


def opening_tag(tag: str, attributes: dict[str, str]) -> str:
    """Returns the opening tag of an element."""
    written = [f" {name}={quoteattr(value)}" for name, value in attributes.items()]
    return f"<{tag}{''.join(written)}>"


def read_xml(data: bytes, name: str) -> tuple[Source, Element]:
    """Returns the text of a file, and its outermost element, which must have a name."""
    declared = _XML_ENCODING.match(data)
    source = decoded(data, declared[1].decode() if declared else "utf-8")
    encoded = source.text.encode()
    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = False  # so that all that is read begins with an event
    events: list[tuple[str, int, tuple]] = []

    def note(kind):
        return lambda *values: events.append((kind, parser.CurrentByteIndex, values))

    def refuse(*values):
        raise ValueError("it defines entities, which are not supported")

    parser.StartElementHandler = note("open")
    parser.EndElementHandler = note("close")
    parser.CharacterDataHandler = note("text")
    parser.CommentHandler = parser.ProcessingInstructionHandler = note("other")
    parser.StartCdataSectionHandler = note("cdata")
    parser.EndCdataSectionHandler = note("end of cdata")
    parser.DefaultHandler = note("other")  # references to entities among them
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(encoded, True)
    except expat.ExpatError as error:
        raise ValueError(str(error)) from None
    bytes_of = [*(byte for _, byte, _ in events), len(encoded)]
    elements = [Element("", {}, 0)]
    end, cdata = len(encoded[: bytes_of[0]].decode()), 0
    for (kind, byte, values), next_byte in zip(events, bytes_of[1:], strict=True):
        start, end = end, end + len(encoded[byte:next_byte].decode())
        if kind == "open":
            tag, attributes = values
            elements.append(Element(tag, attributes, start, content_start=end))
        elif kind == "close":
            element = elements.pop()
            element.content_end, element.end = start, end
            elements[-1].children.append(element)
        elif kind == "cdata":
            cdata = start
        elif kind == "end of cdata":
            elements[-1].children.append(Tag(cdata, end, "cdata"))
        elif kind == "other":
            elements[-1].children.append(Tag(start, end))
    (outer,) = [x for x in elements[0].children if isinstance(x, Element)]
    if outer.name != name:
        raise ValueError(f"its outermost element is <{outer.tag}>, not <{name}>")
    return source, outer


class _Unit(NamedTuple):
    """A unit that is translated as a whole."""

    copied: Element  # whose content is written again, with translations in it
    place: tuple[int, int]  # where it is written
    before: str
    after: str
    edits: Sequence[tuple[int, int, str]] = ()  # other changes of the file


def read_xliff(data: bytes, target_language: str | None = None, **settings) -> Document:
    """Reads XLIFF 1.2 or 2, with its inline tags.

    A target with any content stays, unless its state says that it is not a translation.
    New translations get the state `translated`.
    """
    source, root = read_xml(data, "xliff")
    text, is_first = source.text, root.attributes.get("version", "1").startswith("1")
    language = "target-language" if is_first else "trgLang"
    edits = [
        _set(text, element, language, target_language)
        for element in (root.elements("file") if is_first else [root])
        if target_language and language not in element.attributes
    ]
    units = []
    name = "trans-unit" if is_first else "unit"
    for unit in (x for x in _translated(root) if x.name == name):
        for part in [unit] if is_first else unit.elements("segment"):
            sources = part.elements("source") + part.elements("seg-source")
            target = next(iter(part.elements("target")), None)
            attributes = dict(target.attributes) if target else {}
            state = (attributes if is_first else part.attributes).get("state")
            if not sources or unit.attributes.get("approved") == "yes":
                continue
            if target and state not in _UNTRANSLATED and _has_content(text, target):
                continue
            base, edit = sources[-1], []
            place = (max(x.end for x in sources),) * 2
            before = _space_before(text, base)
            tag = base.tag.removesuffix(base.name) + "target"
            if target:
                place, before = (target.start, target.end), ""
            if is_first:
                attributes["state"] = "translated"
            else:
                edit.append(_set(text, part, "state", "translated"))
            before += opening_tag(tag, attributes)
            units.append(_Unit(base, place, before, f"</{tag}>", edit))
    return _document(source, units, edits)


def read_tmx(
    data: bytes,
    source_language: str = "en",
    target_language: str | None = None,
    **settings,
) -> Document:
    """Reads a translation memory, with its inline tags."""
    if target_language is None:
        raise ValueError("its target language is unknown. Add --target-language")
    source, root = read_xml(data, "tmx")
    known = [x.attributes.get("srclang", "*all*") for x in root.elements("header")]
    units = []
    for tu in (x for x in _translated(root) if x.name == "tu"):
        language = tu.attributes.get("srclang", *known[:1])
        spoken = source_language if language in (None, "*all*") else language
        old, new = _variant(tu, spoken), _variant(tu, target_language)
        if old is None or (new is not None and _has_content(source.text, new)):
            continue
        before, after = "<seg>", "</seg>"
        if new is not None:
            place = (new.start, new.end)
        else:
            last = tu.elements("tuv")[-1]
            place = (last.end, last.end)
            opening = opening_tag("tuv", {"xml:lang": target_language})
            before = f"{_space_before(source.text, last)}{opening}{before}"
            after += "</tuv>"
        units.append(_Unit(old, place, before, after))
    return _document(source, units, [])


def _variant(tu, language) -> Element | None:
    """Returns the segment of a language, or of one of its regions."""
    for variant in tu.elements("tuv"):
        code = variant.attributes.get("xml:lang", variant.attributes.get("lang", ""))
        if f"{code}-".lower().startswith(f"{language}-".lower()):
            return next(iter(variant.elements("seg")), None)
    return None


def _translated(root) -> Iterator[Element]:
    """Yields an element and all in it, except what must not be translated."""
    waiting = [root]
    while waiting:
        element = waiting.pop()
        if element.attributes.get("translate") == "no":
            continue
        yield element
        waiting += [x for x in element.children[::-1] if isinstance(x, Element)]


def _has_content(text, element) -> bool:
    """Returns whether there is anything in an element but empty segments."""
    is_more = any(tag.name != "mrk" for tag in _tags(element) if tag.name)
    return is_more or not is_empty(_fragment(text, element))


def _set(text, element, name, value):
    """Returns the edit that gives an element an attribute."""
    place = element.start + 1 + len(element.tag)
    if name not in element.attributes:
        return place, place, f" {name}={quoteattr(value)}"
    tag = opening_tag(element.tag, {**element.attributes, name: value})
    return element.start, element.content_start, tag


def _space_before(text, element):
    start = element.start
    while start and text[start - 1].isspace():
        start -= 1
    return text[start : element.start]


def _document(source: Source, units: Iterable[_Unit], edits) -> Document:
    """Returns a document of the units that have a text."""
    found = []
    for unit in units:
        within = _translated(unit.copied)
        segments = [x for x in within if x.attributes.get("mtype") == "seg"]
        segments = segments or [unit.copied]
        texts = [_fragment(source.text, segment) for segment in segments]
        if not all(map(is_empty, texts)):
            found.append((unit, segments, texts))

    def assemble(translations):
        remaining = iter(translations)
        changes = list(edits)
        for unit, segments, _ in found:
            start, end = unit.copied.content_start, unit.copied.content_end
            old = source.text[start:end]
            inner = [
                (x.content_start - start, x.content_end - start, write_markup(new, old))
                for x, new in zip(segments, remaining, strict=False)
            ]
            new = edited(old, inner)
            changes += [(*unit.place, unit.before + new + unit.after), *unit.edits]
        return source.changed(changes)

    return Document([text for _, _, texts in found for text in texts], assemble)


def _fragment(text, element) -> Fragment:
    """Returns the content of an element."""
    tags = _tags(element)
    return fragment_of_tags(text, tags, element.content_start, element.content_end)


def _tags(element) -> list[Tag]:
    """Returns the tags in an element; native code is one, with its content."""
    tags: list[Tag] = []
    waiting = element.children[::-1]
    while waiting:
        child = waiting.pop()
        if isinstance(child, Tag):
            tags.append(child)
            continue
        attributes = child.attributes
        is_kept = attributes.get("translate") == "no"
        is_kept |= attributes.get("mtype") == "protected"
        is_kept |= child.name not in _AROUND_TEXT
        if is_kept or child.content_start == child.end:
            tags.append(Tag(child.start, child.end, "alone", child.name, attributes))
            continue
        tags.append(Tag(child.start, child.content_start, "open", child.name))
        waiting.append(Tag(child.content_end, child.end, "close", child.name))
        waiting += child.children[::-1]
    return tags
