import re

import pytest
from documents.formats import changed, read, texts_of

UNIT = '<trans-unit id="1"{}>\n  <source>{}</source>{}\n</trans-unit>'
XLIFF = (
    '<?xml version="1.0"?>\n<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:'
    "document:1.2\">\n<file original='a' source-language=\"en\" target-language='de'>"
    "<body>{}</body></file></xliff>\n"
)
XLIFF_2 = (
    '<xliff version="2.1" srcLang="en"><file id="f"><unit id="u">'
    "<ignorable><source> </source></ignorable>{}</unit></file></xliff>"
)


def unit(source="a dog", target="", attributes=""):
    return XLIFF.format(UNIT.format(attributes, source, target))


@pytest.mark.parametrize(
    "target",
    [
        '<target state="final">MENSCH</target>',
        "<target>MENSCH</target>",
        '<target state="needs-review-translation">MENSCH</target>',
        '<target state="needs-adaptation">MENSCH</target>',
        '<target><x id="1"/></target>',
        '<target><mrk mtype="seg" mid="1">MENSCH</mrk></target>',
        '<target state="translated">&#65;</target>',
    ],
)
def test_what_a_person_has_translated_stays(target):
    assert texts_of(unit(target=target), "xliff") == []


@pytest.mark.parametrize(
    ("target", "kept"),
    [
        ("", ""),
        ("<target/>", ""),
        ("<target> </target>", ""),
        ('<target state="new">a dog</target>', ""),
        ('<target state="needs-translation" xml:lang="de">x<x id="1"/></target>', "de"),
        ('<target state="initial">x</target>', ""),
        ('<target><mrk mtype="seg" mid="1"></mrk></target>', ""),
    ],
)
def test_what_is_no_translation_yet_is_replaced_and_marked(target, kept):
    text = unit("a &lt; <x id='1'/>dog", target)
    found = changed(text, "xliff")
    (new,) = re.findall("<target.*</target>", found, re.DOTALL)
    opening, content = re.fullmatch(r"(<.*?>)(.*)</target>", new).groups()
    assert content == "A &lt; <x id='1'/>DOG"
    assert 'state="translated"' in opening
    assert opening.count("state=") == 1
    assert ('xml:lang="de"' in opening) == bool(kept)
    rest = found.replace(new, target) if target else found.replace(f"\n  {new}", "")
    assert rest == text


@pytest.mark.parametrize("attributes", [' translate="no"', ' approved="yes"'])
def test_units_that_are_locked_stay(attributes):
    assert texts_of(unit(attributes=attributes), "xliff") == []
    grouped = f'<group translate="no">{UNIT.format("", "a", "")}</group>'
    assert texts_of(XLIFF.format(grouped), "xliff") == []


def test_elements_are_codes_and_native_code_is_no_text():
    source = (
        '<g id="1">a <ph id="2">&lt;%s&gt;</ph></g><bpt id="3" rid="1">&lt;b></bpt>dog'
        '<ept id="4" rid="1">&lt;/b></ept><mrk mtype="protected">Foo</mrk><!-- c -->'
    )
    (text,) = read(unit(source), "xliff").texts
    assert [x for x in text if isinstance(x, str)] == ["a ", "dog"]
    codes = [x for x in text if not isinstance(x, str)]
    assert "".join(code.text for code in codes) == re.sub(">(a |dog)<", "><", source)
    assert [code.kind for code in codes if code.pair is not None] == [
        *("open", "close", "open", "close")
    ]
    expected = source.replace(">a <", ">A <").replace(">dog<", ">DOG<")
    assert f">{expected}</target>" in changed(unit(source), "xliff")


def test_segments_are_translated_one_by_one():
    seg = (
        '<seg-source><mrk mtype="seg" mid="1">A dog.</mrk> <g id="1">'
        '<mrk mtype="seg" mid="2">A <x id="2"/>man.</mrk></g></seg-source>'
    )
    text = unit("A dog. <g id='1'>A <x id='2'/>man.</g>").replace(
        "</source>", f"</source>\n  {seg}"
    )
    assert texts_of(text, "xliff") == ["A dog.", 'A <x id="2"/>man.']
    content = seg.removeprefix("<seg-source>").removesuffix("</seg-source>")
    content = content.replace("dog", "DOG").replace("man", "MAN")
    new = f'\n  <target state="translated">{content}</target>'
    assert changed(text, "xliff") == text.replace(
        "</seg-source>", f"</seg-source>{new}"
    )


def test_translations_of_other_tools_are_not_those_of_the_unit():
    other = "<alt-trans><source>x</source><target>y</target></alt-trans>"
    text = unit(target=f"\n  {other}")
    new = '\n  <target state="translated">A DOG</target>'
    assert changed(text, "xliff") == text.replace("</source>\n", f"</source>{new}\n", 1)


@pytest.mark.parametrize(
    ("segment", "expected"),
    [
        (
            '<segment id="1"><source>a <pc id="1">dog</pc></source></segment>',
            '<segment state="translated" id="1"><source>a <pc id="1">dog</pc></source>'
            '<target>A <pc id="1">DOG</pc></target></segment>',
        ),
        (
            '<segment state="initial"><source>a<sc id="1"/>b<ec startRef="1"/></source>'
            "<target>x</target></segment>",
            '<segment state="translated"><source>a<sc id="1"/>b<ec startRef="1"/>'
            '</source><target>A<sc id="1"/>B<ec startRef="1"/></target></segment>',
        ),
        ('<segment state="final"><source>a</source><target>b</target></segment>', None),
        ("<segment><source>a</source><target>b</target></segment>", None),
        (
            '<segment><source>a <mrk id="m" translate="no">b</mrk></source></segment>',
            '<segment state="translated"><source>a <mrk id="m" translate="no">b</mrk>'
            '</source><target>A <mrk id="m" translate="no">b</mrk></target></segment>',
        ),
    ],
)
def test_segments_of_xliff_2_have_states(segment, expected):
    text = XLIFF_2.format(segment)
    assert changed(text, "xliff") == XLIFF_2.format(expected or segment)


def test_the_target_language_is_named_if_it_is_not():
    text = XLIFF_2.format("<segment><source>1</source><target>1</target></segment>")
    found = changed(text, "xliff", target_language="de")
    assert found == text.replace("<xliff ", '<xliff trgLang="de" ')
    assert changed(
        unit(target="<target>x</target>"), "xliff", target_language="fr"
    ) == (unit(target="<target>x</target>"))


TMX = (
    '<?xml version="1.0"?><!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4">'
    '<header srclang="en-US"/><body>\n<tu>\n  <tuv xml:lang="en-US"><seg>a '
    '<bpt i="1">[</bpt>dog<ept i="1">]</ept></seg></tuv>\n  {}</tu></body></tmx>'
)
SEGMENT = '<seg>A <bpt i="1">[</bpt>DOG<ept i="1">]</ept></seg>'


@pytest.mark.parametrize(
    ("variant", "expected"),
    [
        ("", None),
        ('<tuv xml:lang="de"><seg/></tuv>', f'<tuv xml:lang="de">{SEGMENT}</tuv>'),
        ('<tuv lang="DE-at"><seg> </seg></tuv>', f'<tuv lang="DE-at">{SEGMENT}</tuv>'),
        ('<tuv xml:lang="de-DE"><seg>Hund</seg></tuv>', "stays"),
    ],
)
def test_units_of_tmx_are_translated_once(variant, expected):
    text = TMX.format(variant)
    new = TMX.format(variant if expected == "stays" else expected or "")
    if expected is None:
        added = f'</tuv>\n  <tuv xml:lang="de">{SEGMENT}</tuv>'
        new = new.replace("</tuv>", added)
    assert changed(text, "tmx", target_language="de") == new


def test_what_is_not_in_utf_8_is_written_so_that_it_can_be_read():
    text = unit("\u0159").replace("?>", ' encoding="iso-8859-2"?>')
    document = read(text.encode("iso-8859-2"), "xliff")
    assert document.texts == [["\u0159"]]
    assert "&#8364;" in document.assemble([["\u20ac"]]).decode("iso-8859-2")


def test_text_in_a_cdata_section_is_text():
    text = unit("<![CDATA[a &lt; <b>]]> &quot;c&quot; \u00e4")
    assert texts_of(text, "xliff") == ['a &amp;lt; &lt;b> "c" \u00e4']
    assert "A &amp;LT; &lt;B> &quot;C&quot; \u00c4</target>" in changed(text, "xliff")


def test_parts_that_overlap_have_no_partners_but_the_named_ones():
    source = (
        '<bpt i="1">[</bpt>a<bpt i="2">(</bpt>b<ept i="1">]</ept>c<ept i="2">)</ept>'
    )
    (text,) = read(unit(source), "xliff").texts
    codes = [x for x in text if not isinstance(x, str)]
    assert [code.pair is None for code in codes] == [False, True, False, True]
