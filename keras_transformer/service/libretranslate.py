"""LibreTranslate's API, which Weblate and editors of subtitles call.

It has no `/detect`, no files, no suggestions and no keys.

Reference:
    https://docs.libretranslate.com
"""

import html
import re
from collections.abc import Mapping
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.routing import Route

from keras_transformer.documents.in_place import html_spans
from keras_transformer.service.directions import Direction, language_name
from keras_transformer.service.requests import (
    Limits,
    json_response,
    quoted,
    read_body,
    read_json,
)

# Odd parts of what they split are to be translated.
_LINE = re.compile(r"(\S(?:.*\S)?)")


def libretranslate_routes(directions: Mapping[str, Direction], limits: Limits) -> list:
    """Returns the routes of the dialect."""
    pairs = {(x.source, x.target): x for x in directions.values()}
    codes = dict.fromkeys(code for pair in pairs for code in pair)

    async def languages(request):
        return json_response(
            [
                {
                    "code": code,
                    "name": language_name(code),
                    "targets": [target for source, target in pairs if source == code],
                }
                for code in codes
            ]
        )

    async def settings(request):
        sides = zip(("source", "target"), next(iter(pairs)), strict=True)
        return json_response(
            {
                "apiKeys": False,
                "charLimit": limits.characters,
                "filesTranslation": False,
                "frontendTimeout": 500,  # milliseconds from a key to a request
                "keyRequired": False,
                "language": {
                    side: {"code": code, "name": language_name(code)}
                    for side, code in sides
                },
                "suggestions": False,
                "supportedFilesFormat": [],
            }
        )

    async def translate(request):
        body = await read_body(request, limits)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        # `curl -d` calls JSON a form, too.
        is_form = kind == "application/x-www-form-urlencoded" and body[:1] != b"{"
        asked = _read_form(body) if is_form else read_json(body)
        for name in ("q", "source", "target"):
            if not asked.get(name):
                raise _invalid(f"missing {name} parameter")
        q = asked["q"]
        texts = q if isinstance(q, list) else [q]
        if not all(isinstance(text, str) for text in texts):
            raise _invalid("q parameter is neither a text nor a list of texts")
        direction = _direction(asked["source"], asked["target"])
        count = _number_of_alternatives(asked.get("alternatives", 0))
        format = asked.get("format") or "text"
        if format not in ("text", "html"):
            raise HTTPException(400, f"{quoted(format)} format is not supported.")
        is_html = format == "html"
        limits.check_texts(texts, "q", 400)
        has_tags = is_html and direction.aligns
        if is_html:
            parts = [_split_html(text, has_tags) for text in texts]
        else:
            parts = [_LINE.split(text) for text in texts]
        lines = [line for each in parts for line in each[1::2]]
        if is_html and not has_tags:
            lines = list(map(html.unescape, lines))
        found = iter(await direction.translate(lines, "lines", 400, has_tags))
        results = []
        for each in parts:
            rows = [[x.text for x in next(found)] for _ in each[1::2]]
            if is_html and not has_tags:
                rows = [[html.escape(x, quote=False) for x in row] for row in rows]
            results.append(_assembled(each, rows, count))
        best, others = ([x[0] for x in results], [x[1:] for x in results])
        answer = {"translatedText": best if isinstance(q, list) else best[0]}
        if count:
            answer["alternatives"] = others if isinstance(q, list) else others[0]
        return json_response(answer)

    def _direction(source, target):
        for code in (source, target):
            if not isinstance(code, str) or code not in codes:
                raise HTTPException(
                    400,
                    f"{quoted(code)} is not supported. The languages are "
                    f"{', '.join(codes)}.",
                )
        if (source, target) not in pairs:
            raise HTTPException(
                400,
                f"{language_name(target)} ({target}) is not available as a target "
                f"language from {language_name(source)} ({source}).",
            )
        return pairs[source, target]

    return [
        Route("/languages", languages),
        Route("/frontend/settings", settings),
        Route("/translate", translate, methods=["POST"]),
    ]


def _invalid(reason):
    return HTTPException(400, f"Invalid request: {reason}.")


def _read_form(body):
    """Returns the fields of a form."""
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=100)
    except ValueError as error:
        raise HTTPException(400, f"The form cannot be read: {error}.") from None
    return dict(pairs)


def _number_of_alternatives(value):
    try:
        if isinstance(value, (int, str)):
            return max(0, int(value))
    except ValueError:
        pass
    raise _invalid("alternatives parameter is not a number")


def _split_html(text, has_tags):
    """Splits HTML into what is kept, and text, which has odd indices.

    With `has_tags`, text includes the tags that may stand within a sentence.
    """
    parts, end = [], 0
    for start, stop in html_spans(text, has_tags):
        parts += [text[end:start], text[start:stop]]
        end = stop
    return [*parts, text[end:]]


def _assembled(parts, rows, count):
    """Returns different translations of a text, at most `count` and one, best first."""
    found = {}
    for rank in range(min(count + 1, max(map(len, rows), default=1))):
        lines = [row[min(rank, len(row) - 1)] for row in rows]
        whole = list(parts)
        whole[1::2] = lines
        found["".join(whole)] = None
    return list(found)
