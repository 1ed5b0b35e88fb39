"""Documents that translate-toolkit's stores read: PO, XLIFF and TMX.

Units that have a translation keep it, unless it is marked as fuzzy.
"""

import copy
import html

from keras_transformer.checks import optional
from keras_transformer.documents.sentences import Document

_PAIRED_TAGS = {"g", "mrk", "pc", "sub"}  # of XLIFF and TMX; others hold foreign code
_purpose = "Reading PO, XLIFF and TMX"
with optional("translate", extra="documents", purpose=_purpose):
    from lxml import etree
    from translate.storage.pypo import pofile
    from translate.storage.tmx import tmxfile
    from translate.storage.xliff import Xliff1File
    from translate.storage.xliff2 import Xliff2File


def read_po(data: bytes, **settings) -> Document:
    """Reads the messages of gettext, plurals among them."""
    store = pofile.parsestring(data)
    units = _unfinished(store)
    forms = [x.source.strings if x.hasplural() else [x.source] for x in units]

    def assemble(translations):
        remaining = iter(translations)
        for unit, sources in zip(units, forms, strict=True):
            found = [next(remaining) for _ in sources]
            *singular, plural = found
            if unit.hasplural():  # one form for all numbers, or several for the plural
                others = len(unit.target.strings) - 1
                unit.target = [*singular, *[plural] * others] if others else [plural]
            else:
                unit.target = plural
        return bytes(store)

    return Document([text for sources in forms for text in sources], assemble)


def read_xliff(data: bytes, target_language: str | None = None, **settings) -> Document:
    """Reads XLIFF 1.2 or 2, with its inline tags."""
    is_second = b"urn:oasis:names:tc:xliff:document:2" in data
    store = (Xliff2File if is_second else Xliff1File).parsestring(data)
    if target_language and not store.gettargetlanguage():
        store.settargetlanguage(target_language)
    return _with_inline_tags(store)


def read_tmx(data: bytes, target_language: str | None = None, **settings) -> Document:
    """Reads a translation memory, with its inline tags."""
    if target_language is None:
        raise ValueError(
            "the language that it is to be translated to is not known. Name it "
            "(--target-language)"
        )
    store = tmxfile.parsestring(data)
    store.settargetlanguage(target_language)
    return _with_inline_tags(store)


def _unfinished(store):
    """Returns the units of a store that need a translation."""
    return [
        unit
        for unit in store.units
        if unit.istranslatable() and unit.source and not unit.istranslated()
    ]


def _with_inline_tags(store):
    """Returns a document of an XML store, whose elements are tags in its texts."""
    units = _unfinished(store)
    texts, elements = [], []
    for unit in units:
        found: list = []
        texts.append(_as_markup(_text_node(unit, unit.source_dom), found))
        elements.append(found)

    def assemble(translations):
        for unit, found, text in zip(units, elements, translations, strict=True):
            attributes = dict(unit.xmlelement.attrib)
            if not found:
                unit.target = text
            else:
                unit.target = "..."
                node = _text_node(unit, unit.target_dom)
                node.text = None
                _fill(node, etree.fromstring(f"<t>{text}</t>"), found)
            # What a model wrote is not approved.
            unit.xmlelement.attrib.clear()
            unit.xmlelement.attrib.update(attributes)
        return bytes(store)

    return Document(texts, assemble)


def _text_node(unit, node):
    """Returns the element that has a text: `<seg>` in TMX, `<source>` in XLIFF."""
    return next(node.iter(unit.namespaced(unit.textNode))) if unit.textNode else node


def _as_markup(node, elements):
    """Returns the content of an element; its elements become numbered tags.

    Those of foreign code, such as `<ph>%s</ph>`, become empty.
    """
    if not len(node) and not elements:
        return node.text or ""
    parts = [html.escape(node.text or "", quote=False)]
    for child in node:
        number = len(elements)
        elements.append(child)
        is_pair = isinstance(child.tag, str)  # a comment has no name
        if is_pair and etree.QName(child).localname in _PAIRED_TAGS:
            parts.append(f'<g id="{number}">{_as_markup(child, elements)}</g>')
        else:
            parts.append(f'<x id="{number}"/>')
        parts.append(html.escape(child.tail or "", quote=False))
    return "".join(parts)


def _fill(node, markup, elements):
    """Gives an element the content that a parsed markup has."""
    node.text = markup.text
    for tag in markup:
        element = copy.copy(elements[int(tag.get("id"))])
        element.tail = tag.tail
        if tag.tag == "g":
            del element[:]
            _fill(element, tag, elements)
        node.append(element)
