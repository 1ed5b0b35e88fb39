import shutil
import subprocess

import pytest
from documents.formats import plain_texts_of, read

HEAD = r"""msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\n"

"""
PO = (
    HEAD
    + r"""# A person's.
#: a.c:3
msgid "done"
msgstr "fertig"

#, fuzzy
msgid "a draft"
msgstr "ein Entwurf"

#, fuzzy, c-format
#| msgid "%d old"
msgid "%d new"
msgstr "%d alt"
msgctxt "menu"
msgid "open"
msgstr ""


#. of the extractor
#, c-format
msgid ""
"one \"%s\"\t\\\n"
"two\n"
msgstr ""

#, python-format
msgid "%(n)d file"
msgid_plural "%(n)d files"
msgstr[0] ""
msgstr[1] ""

#, fuzzy
#~ msgid "gone"
#~ msgstr "weg"

msgid "after"
msgstr ""
"""
)
TEXTS = [
    "%d new",
    "open",
    'one "%s"\t\\\ntwo\n',
    "%(n)d file",
    "%(n)d files",
    "after",
]


def written(translations, **settings):
    document = read(PO, "po", **settings)
    return document.assemble([[text] for text in translations]).decode()


def test_what_a_person_has_written_stays_and_guesses_do_not():
    assert plain_texts_of(PO, "po") == TEXTS
    assert read(PO, "po").keeps_placeholders


def test_only_translations_are_written():
    new = ["%d neu", 'auf "x"', 'eins "%s"\t\\\nzwei\n', "%(n)d D", "%(n)d Ds", ""]
    expected = PO.replace('"%d alt"', '"%d neu"')
    expected = expected.replace('"open"\nmsgstr ""', '"open"\nmsgstr "auf \\"x\\""')
    old = '"two\\n"\nmsgstr ""'
    lines = '\n"eins \\"%s\\"\\t\\\\\\n"\n"zwei\\n"'
    expected = expected.replace(old, old + lines)
    expected = expected.replace('[0] ""', '[0] "%(n)d D"')
    expected = expected.replace('[1] ""', '[1] "%(n)d Ds"')
    assert written(new) == expected


def test_what_a_machine_wrote_is_marked_if_it_is_asked_for():
    marked = written(TEXTS, mark_fuzzy=True)
    assert marked.count("#, fuzzy") == PO.count("#, fuzzy") + 4
    assert '#, fuzzy\nmsgctxt "menu"\nmsgid "open"' in marked
    assert "#. of the extractor\n#, fuzzy, c-format\n" in marked
    assert '#, fuzzy\nmsgid "after"' in marked
    assert '"a draft"\nmsgstr "ein Entwurf"' in marked


@pytest.mark.parametrize(
    ("text", "translation", "is_kept"),
    [
        ("%s of %d", "%s von %d", True),
        ("%s of %d", "%d von %s", False),
        ("%(a)s %(b)s", "%(b)s %(a)s", True),
        ("%1$s %2$ld", "%2$ld %1$s", True),
        ("{name} {}", "{} {name}", True),
        ("%ss", "%ss", True),
        ("100%%", "100 %", True),
        ("%@", "x", False),
        ("a", "%s", False),
    ],
)
def test_a_message_that_lost_a_placeholder_is_not_used(text, translation, is_kept):
    po = f'{HEAD}#, c-format\nmsgid "{text}"\nmsgstr ""\n'
    found = read(po, "po").assemble([[translation]]).decode()
    assert ("fuzzy" in found) != is_kept
    plain = read(po.replace("c-format", "no-c-format"), "po")
    assert "fuzzy" not in plain.assemble([[translation]]).decode()


@pytest.mark.skipif(shutil.which("msgfmt") is None, reason="gettext is not installed")
def test_gettext_accepts_what_is_written(tmp_path):
    for texts in (TEXTS, ["x"] * 2 + ["x\n"] + ["x"] * 3):
        (tmp_path / "a.po").write_text(written(texts))
        command = ["msgfmt", "-c", "-o", tmp_path / "a.mo", tmp_path / "a.po"]
        subprocess.run(command, check=True, capture_output=True)


def test_a_form_for_21_things_has_their_number():
    text = (
        '#, python-format\nmsgid "one file"\nmsgid_plural "%d files"\n'
        'msgstr[0] ""\nmsgstr[1] ""\n'
    )
    translations = [["eine Datei"], ["%d Dateien"]]
    for plural, first in (("n != 1", "eine Datei"), ("n%10!=1", "%d Dateien")):
        document = read(HEAD.replace("n != 1", plural) + text, "po")
        found = document.assemble(translations).decode()
        assert f'msgstr[0] "{first}"\nmsgstr[1] "%d Dateien"' in found
