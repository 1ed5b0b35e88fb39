"""Texts as fragments: strings, and the codes between them that are not translated.

HTML is read as the WHATWG's standard says, in linear time, with the place of each tag.
The standard library's parser gives no end of a tag, and takes quadratic time for tags
that nothing ends.
"""

import html
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple


def _names(*lines: str) -> frozenset[str]:
    return frozenset(" ".join(lines).split())


_NAME = re.compile(r"</?([a-z][^\s/>]*)", re.ASCII | re.IGNORECASE)
_ATTRIBUTE = re.compile(
    r"[\s/]*([^\s/>][^\s/>=]*)"
    r"""(?:\s*=\s*(?:"([^"]*)(?:"|\Z)|'([^']*)(?:'|\Z)|([^\s>]*)))?""",
    re.ASCII,
)
_ENTITY = re.compile(r"&(?:#\d+|#[xX][\da-fA-F]+|[A-Za-z]\w*);")
_TAG_END = re.compile(r"[\s/]*>", re.ASCII)
_DECLARATION = re.compile(r"<!--(?:-?>|.*?(?:--!?>|\Z))|<[!?/][^>]*(?:>|\Z)", re.DOTALL)
_WITHOUT_TAGS = {
    name: re.compile(rf"</{name}(?=[\s/>])", re.ASCII | re.IGNORECASE)
    for name in _names("iframe noembed noframes script style textarea title xmp")
}

_VOID = _names("area base br col embed hr img input link meta source track wbr")
# Elements whose content is not for readers, and XLIFF's elements for native code.
_FOREIGN = _names(
    "iframe math noembed noframes script style svg template xmp bpt ept it ph"
)
# XLIFF's tags without text of their own that begin and end a part of a text.
_BEGIN_OF_END = {"ept": "bpt", "ex": "bx", "ec": "sc"}
_SHARED = ("i", "rid", "startRef", "startref", "id")  # of their attributes
# Tags that may occur within a sentence, and which of them separate words.
INLINE = _names(
    "a abbr acronym b bdi bdo big br cite code data del dfn em font i img ins kbd mark",
    "math q rp rt ruby s samp small span strong sub sup svg time tt u var wbr",
    "bpt bx c ec ept ex g hi it lang mrk pc ph sc v x",
)
_BETWEEN_WORDS = _names("br img it math ph svg x")
# Elements that the start of others ends.
_ENDED_BY = {
    "li": _names("li"),
    "option": _names("option"),
    **dict.fromkeys(["dd", "dt"], _names("dd dt")),
    **dict.fromkeys(["td", "th"], _names("td th")),
    "tr": _names("td th tr"),
    **dict.fromkeys(["tbody", "tfoot"], _names("td th tr tbody thead")),
}
_NOT_IN_PARAGRAPHS = _names(
    "address article aside blockquote center dd details dir div dl dt fieldset",
    "figcaption figure footer form h1 h2 h3 h4 h5 h6 header hgroup hr li main menu nav",
    "ol p pre section summary table ul",
)


class Code(NamedTuple):
    """A part of a text that is not translated, such as a tag.

    Attributes:
        text: What it says in the file.
        kind: `"open"`, `"close"` or `"alone"`.
        pair: A number that it shares with its partner; None without a partner.
        is_apart: Whether it separates the words around it, as `<br>` does.
    """

    text: str
    kind: str = "alone"
    pair: int | None = None
    is_apart: bool = False


Fragment = list[str | Code]
"""A text: what a reader sees of it, as strings, and codes."""


def plain_text(fragment: Fragment) -> str:
    """Returns the strings of a fragment as one."""
    return "".join(x for x in fragment if isinstance(x, str))


def shown(fragment: Fragment) -> str:
    """Returns a fragment with its codes as they are in the file."""
    return "".join(x if isinstance(x, str) else x.text for x in fragment)


def has_codes(fragment: Fragment) -> bool:
    """Returns whether there is more than text in a fragment."""
    return any(isinstance(x, Code) for x in fragment)


def is_empty(fragment: Fragment) -> bool:
    """Returns whether a fragment has no text but white space."""
    return not plain_text(fragment).strip()


def merged(items: Iterable[str | Code]) -> Fragment:
    """Returns a fragment without empty strings and strings side by side."""
    fragment: Fragment = []
    for item in items:
        if isinstance(item, str) and fragment and isinstance(fragment[-1], str):
            fragment[-1] += item
        elif item != "":
            fragment.append(item)
    return fragment


class Tag(NamedTuple):
    """A tag, or other syntax that is not text, such as a comment."""

    start: int
    end: int
    kind: str = (
        "alone"  # as in `Code`, or "cdata"; raw text, such as a script, is alone
    )
    name: str = ""  # in small letters in HTML; "" if it is no tag
    attributes: dict[str, str] = {}


def html_tags(text: str) -> Iterator[Tag]:
    """Yields the tags of HTML, and what browsers do not show, such as comments."""
    is_xml = text.lstrip("\ufeff").startswith("<?xml")
    position = 0
    while (start := text.find("<", position)) >= 0:
        named = _NAME.match(text, start)
        if named is None:
            found = _DECLARATION.match(text, start)
            position = found.end() if found else start + 1
            if found:
                yield Tag(start, position)
            continue
        attributes: dict[str, str] = {}
        name, position = named[1].lower(), named.end()
        while found := _ATTRIBUTE.match(text, position):
            value = next((x for x in found.groups()[1:] if x is not None), "")
            attributes.setdefault(found[1].lower(), html.unescape(value))
            position = found.end()
        ending = _TAG_END.match(text, position)
        if ending is None:  # browsers show no more
            yield Tag(start, len(text))
            return
        position = ending.end()
        kind = "close" if text[start + 1] == "/" else "open"
        closing = _WITHOUT_TAGS.get(name)
        is_empty = "/" in ending[0] and (is_xml or closing is None)
        if kind == "open" and (name in _VOID or is_empty):
            kind = "alone"
        yield Tag(start, position, kind, name, attributes)
        if kind == "open" and closing is not None:
            found = closing.search(text, position)
            end = found.start() if found else len(text)
            if name not in ("title", "textarea") and end > position:
                yield Tag(position, end)
            position = end


def _with_foreign_elements(text) -> Iterator[Tag]:
    """Yields tags; an element whose content is not for readers is one, and alone."""
    first, depth = Tag(0, 0), 0
    for tag in html_tags(text):
        if not depth and tag.kind == "open" and tag.name in _FOREIGN:
            first, depth = tag, 1
        elif not depth:
            yield tag
        elif tag.name == first.name:
            depth += (tag.kind == "open") - (tag.kind == "close")
            if not depth:
                yield first._replace(end=tag.end, kind="alone")
    if depth:
        yield Tag(first.start, len(text), name=first.name)


def translated_tags(text: str) -> Iterator[Tag]:
    """Yields the tags of the parts of HTML to translate.

    Any other part, such as a script or an element with `translate="no"`, is one tag,
    which is alone and has the name of the element.
    """
    elements: list[tuple[str, bool]] = []  # open ones, and whether they are translated
    blocks: list[int] = []  # places of elements that are not inline
    num_open: Counter[str] = Counter()
    begin, outer = 0, ""

    def end_elements(size):
        while len(elements) > size:
            num_open[elements.pop()[0]] -= 1
        while blocks and blocks[-1] >= size:
            blocks.pop()

    def end_last(name):
        """Ends the last open element of a name, and returns whether it was kept."""
        size = len(elements)
        while elements[size - 1][0] != name:
            size -= 1
        is_kept = not elements[size - 1][1]
        end_elements(size - 1)
        return is_kept

    for tag in _with_foreign_elements(text):
        was_translated = not elements or elements[-1][1]
        has_ended = False  # whether this tag ends an untranslated part
        if tag.kind == "close":
            has_ended = num_open[tag.name] > 0 and end_last(tag.name)
        elif tag.name in _NOT_IN_PARAGRAPHS and num_open["p"]:
            end_last("p")
        if tag.kind == "open":
            ended = _ENDED_BY.get(tag.name, ())
            while blocks and elements[blocks[-1]][0] in ended:
                end_elements(blocks[-1])
            is_outer = not elements or elements[-1][1]
            if tag.name not in INLINE:
                blocks.append(len(elements))
            translate = tag.attributes.get("translate", "-").lower()
            is_kept = "notranslate" in tag.attributes.get("class", "").split()
            is_kept |= translate == "no" or not (is_outer or translate in ("", "yes"))
            elements.append((tag.name, not is_kept))
            num_open[tag.name] += 1
        is_translated = not elements or elements[-1][1]
        if was_translated and is_translated:
            yield tag
        elif was_translated and tag.kind == "open":
            begin, outer = tag.start, tag.name
        elif was_translated:
            yield tag
            begin, outer = tag.end, "div"
        elif is_translated:
            end = tag.end if has_ended else tag.start
            if end > begin:
                yield Tag(begin, end, name=outer)
            if not has_ended:
                yield tag
    if elements and not elements[-1][1]:
        yield Tag(begin, len(text), name=outer)


def read_markup(text: str) -> Fragment:
    """Returns a text with tags, such as HTML's `<b>` and XLIFF's `<x/>`, as a fragment.

    What `translated_tags` returns are its codes, and entities are characters.
    """
    return fragment_of_tags(text, translated_tags(text), 0, len(text))


def fragment_of_tags(
    text: str,
    tags: Iterable[Tag],
    start: int,
    end: int,
    unescape: Callable[[str], str] = html.unescape,
) -> Fragment:
    """Returns a text between two places as a fragment, with the tags there.

    Pairs of tags that overlap others stay apart.
    """
    items: list = []
    waiting: list[tuple[int, tuple]] = []  # codes without a partner yet
    num_waiting: Counter[tuple] = Counter()
    for tag in tags:
        items.append(unescape(text[start : tag.start]))
        start, kind, name = tag.end, tag.kind, tag.name
        written = text[tag.start : tag.end]
        if kind == "cdata":
            items.append(written.removeprefix("<![CDATA[").removesuffix("]]>"))
            continue
        shared = None
        if name in _BEGIN_OF_END or name in _BEGIN_OF_END.values():
            kind = "close" if name in _BEGIN_OF_END else "open"
            found = (tag.attributes.get(x) for x in _SHARED)
            shared = next((value for value in found if value), None)
        key, index = (_BEGIN_OF_END.get(name, name), shared), len(items)
        is_apart = name in _BETWEEN_WORDS or (name != "" and name not in INLINE)
        items.append(Code(written, kind, None, is_apart))
        if kind == "open":
            waiting.append((index, key))
            num_waiting[key] += 1
        elif kind == "close" and num_waiting[key]:
            other = None
            while other != key:
                opening, other = waiting.pop()
                num_waiting[other] -= 1
            for place in (opening, index):
                items[place] = items[place]._replace(pair=opening)
    return merged([*items, unescape(text[start:end])])


def write_markup(fragment: Fragment, old: str = "") -> str:
    """Returns the text with tags that a fragment is.

    Characters that another text, `old`, has as entities become the same entities.
    """
    entities = {"&": "&amp;", "<": "&lt;"}
    for entity in _ENTITY.findall(old):
        character = html.unescape(entity)
        if character in {*"&<>\"'"} or (len(character) == 1 and character > "\x7f"):
            entities[character] = entity
    table = str.maketrans(entities)
    return shown([x.translate(table) if isinstance(x, str) else x for x in fragment])
