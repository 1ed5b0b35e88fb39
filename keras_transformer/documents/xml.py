"""XML with the place of everything in it, as Expat reads it in linear time."""

import re
from dataclasses import dataclass, field
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

from keras_transformer.documents.document import Source, decoded
from keras_transformer.markup import Tag

_ENCODING = re.compile(rb"""<\?xml[^>]*\sencoding\s*=\s*["']([\w.-]+)""")


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
    declared = _ENCODING.match(data)
    source = decoded(data, declared[1].decode() if declared else "utf-8")
    encoded = source.text.encode()
    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = False  # so that all that is read begins with an event
    events: list[tuple[str, int, tuple]] = []

    def note(kind):
        return lambda *values: events.append((kind, parser.CurrentByteIndex, values))

    def refuse(*values):
        raise ValueError("it defines entities, which are not read")

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
