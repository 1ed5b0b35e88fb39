"""Catalogues of gettext: the messages of PO files that have no translation.

Reference:
    https://www.gnu.org/software/gettext/manual/html_node/PO-Files.html
"""

import re
from dataclasses import dataclass, field

from keras_transformer.documents.document import Document, decoded
from keras_transformer.markup import Fragment, plain_text
from keras_transformer.translation import PLACEHOLDER

_SINGULAR = re.compile(r"plural=[\s(]*n\s*(?:!=|==)\s*1\b")
_LINE = re.compile(
    r"[ \t]*(?:(?P<comment>#.?)(?P<flags>[^\r\n]*)"
    r'|(?P<field>msg\w+(?:\[\d+\])?)?[ \t]*(?P<text>"(?:[^"\\\r\n]|\\.)*")?[ \t]*)'
    r"(?P<end>\r\n|\n|\r|\Z)"
)
_ESCAPE = re.compile(r"\\([0-7]{1,3}|x[\da-fA-F]{2}|.)")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_WRITTEN = str.maketrans(
    {'"': '\\"', "\\": "\\\\", **{text: f"\\{x}" for x, text in _ESCAPED.items()}}
)
# Letters may follow at once, as in "%ss".
_PLACEHOLDER = re.compile(PLACEHOLDER.replace(r"\b", ""))


@dataclass
class _Message:
    """A message, with where its flags and its fields stand."""

    start: int  # where a line of flags would be added
    flags: list[str] = field(default_factory=list)
    flags_start: int | None = None
    is_guess: bool = False  # msgmerge's, of a similar message, if it is fuzzy
    fields: dict[str, str] = field(default_factory=dict)
    spans: dict[str, tuple[int, int]] = field(default_factory=dict)

    def sources(self) -> list[str]:
        """Returns the text, or the singular and the plural."""
        names = ("msgid", "msgid_plural")
        return [self.fields[name] for name in names if name in self.fields]

    def targets(self) -> list[str]:
        """Returns the names of the fields of translations."""
        return [name for name in self.fields if name.startswith("msgstr")]

    def needs_translation(self) -> bool:
        """Returns whether there is no translation, or only a guess."""
        is_guess = self.is_guess and "fuzzy" in self.flags
        is_open = is_guess or not any(self.fields[name] for name in self.targets())
        return is_open and bool(self.fields.get("msgid") and self.targets())


def read_po(data: bytes, mark_fuzzy: bool = False, **settings) -> Document:
    """Reads the messages without a translation, plurals among them.

    A translation is replaced only if msgmerge has guessed it, from a similar message.
    With `mark_fuzzy`, all new translations are marked for human review. Those without a
    placeholder of the source always are, so that programs do not use them.
    """
    source = decoded(data)
    every = _messages(source.text)
    messages = [one for one in every if one.needs_translation()]
    # Whether the first plural form is for 1 only, rather than also for 21.
    has_singular = any(_SINGULAR.search(one.fields.get("msgstr", "")) for one in every)
    line_end = "\r\n" if "\r\n" in source.text else "\n"

    def assemble(translations):
        remaining = map(plain_text, translations)
        edits = []
        for message in messages:
            sources, names = message.sources(), message.targets()
            forms = [next(remaining) for _ in sources]
            wanted, found = (list(map(_placeholders, x)) for x in (sources, forms))
            # Whether a program replaces the placeholders of the text.
            flags = [flag for flag in message.flags if not flag.startswith("no-")]
            has_format = any(flag.endswith("-format") for flag in flags)
            is_missing = has_format and wanted[0] != wanted[-1]
            for number, name in enumerate(names):
                # One form for all numbers, or several for the plural.
                is_singular = number == 0 and len(names) > 1
                is_singular &= has_singular or not is_missing
                text = _written(forms[0 if is_singular else -1], line_end)
                edits.append((*message.spans[name], text))
            is_fuzzy = mark_fuzzy or (has_format and wanted != found)
            if is_fuzzy and "fuzzy" not in message.flags:
                at, text = message.start, f"#, fuzzy{line_end}"
                if message.flags_start is not None:
                    at, text = message.flags_start, " fuzzy,"
                edits.append((at, at, text))
        return source.changed(edits)

    texts: list[Fragment] = [[text] for one in messages for text in one.sources()]
    return Document(texts, assemble, keeps_placeholders=True)


def _messages(text) -> list[_Message]:
    """Returns the messages of a catalogue; obsolete ones are comments."""
    messages = [_Message(0)]
    name, position = "", 0
    while position < len(text):
        line = _LINE.match(text, position)
        if line is None or (line["text"] and not line["field"] and not name):
            number = text.count("\n", 0, position) + 1
            raise ValueError(f"line {number} is neither a field nor text nor a comment")
        message = messages[-1]
        if message.targets() and (
            line["comment"] or line["field"] in ("msgctxt", "msgid")
        ):
            message = _Message(position)
            messages.append(message)
        if line["comment"]:
            name = ""
            if line["comment"] == "#~":
                messages[-1] = _Message(line.end())
            elif line["comment"] == "#|":
                message.is_guess = True
            else:
                message.start = line.end()
            if line["comment"] == "#,":
                message.flags += [x.strip() for x in line["flags"].split(",")]
                message.flags_start = line.start("flags")
        elif line["field"]:
            name = line["field"]
            message.fields[name] = ""
            message.spans[name] = (line.end("field"),) * 2
        elif not line["text"] and not message.fields:
            message.start = line.end()
        if line["text"]:
            start, end = message.spans[name]
            start = start if start < end else line.start("text")
            message.spans[name] = start, line.end("text")
            message.fields[name] += _ESCAPE.sub(_unescaped, line["text"][1:-1])
        position = line.end()
    return messages


def _unescaped(match):
    escaped = match[1]
    if escaped[0] in "01234567":
        return chr(int(escaped, 8))
    if len(escaped) == 3:
        return chr(int(escaped[1:], 16))
    return _ESCAPED.get(escaped, escaped)


def _written(text, line_end):
    """Returns a text as PO writes it: one with line ends inside in a line for each."""
    lines = [f'"{line.translate(_WRITTEN)}"' for line in text.splitlines(keepends=True)]
    return line_end.join(['""', *lines] if len(lines) > 1 else lines or ['""'])


def _placeholders(text) -> tuple[list[str], list[str]]:
    """Returns placeholders: named ones in any order, and unnamed ones."""
    found = [x for x in _PLACEHOLDER.findall(text) if x != "%%"]
    named = [x for x in found if re.search(r"\w[)}]|\d\$", x)]
    return sorted(named), [x for x in found if x not in named]
