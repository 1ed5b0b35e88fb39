"""LibreTranslate's API, which Weblate and subtitle editors call.

Reference:
    https://docs.libretranslate.com
"""

import asyncio
import functools
import uuid
from collections.abc import Collection, Mapping
from pathlib import Path

from py3langid.langid import MODEL_FILE, LanguageIdentifier
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from keras_transformer.documents.document import Source
from keras_transformer.documents.html import html_document
from keras_transformer.documents.translation import format_of, read_document
from keras_transformer.service.directions import (
    Direction,
    language_name,
    plain_document,
)
from keras_transformer.service.requests import (
    Limits,
    check_key,
    json_response,
    quoted,
    read_fields,
)

MAX_KEPT_FILES = 32  # translations of files that wait to be fetched
DETECTED_CHARACTERS = 2000


def libretranslate_routes(
    directions: Mapping[str, Direction], limits: Limits, api_keys: Collection[str]
) -> list:
    """Returns the routes of the dialect."""
    pairs = {(x.source, x.target): x for x in directions.values()}
    codes = dict.fromkeys(code for pair in pairs for code in pair)
    files: dict[str, bytes] = {}  # translations, by their names

    def named(code):
        return {"code": code, "name": language_name(code)}

    async def languages(request):
        targets = {code: [y for x, y in pairs if x == code] for code in codes}
        return json_response([{**named(x), "targets": targets[x]} for x in codes])

    async def detect(request):
        asked = await _fields(request, "q")
        found = [_detected(text, (*codes,)) for text in asked["texts"]]
        return json_response(found if len(found) > 1 else found[0])

    async def translate(request):
        asked = await _fields(request, "q", "source", "target")
        texts, detected = asked["texts"], None
        if asked["source"] == "auto":
            sources = [source for source, other in pairs if other == asked["target"]]
            detected = _detected("\n".join(texts), tuple(sources or codes))[0]
            asked["source"] = detected["language"]
        direction = _direction(request, asked)
        try:
            count = int(str(asked.get("alternatives", 0)))
        except ValueError:
            raise _invalid("alternatives parameter is not a number") from None
        format = asked.get("format") or "text"
        if format not in ("text", "html"):
            raise HTTPException(400, f"{quoted(format)} format is not supported.")
        if format == "html":
            pages = [Source(text, "utf-8") for text in texts]
            documents = await asyncio.to_thread(lambda: list(map(html_document, pages)))
        else:
            documents = list(map(plain_document, texts))
        found = await direction.translate(documents, 400)
        results = [
            list(dict.fromkeys(document.assemble(x).decode() for x, *_ in ranked))
            for document, ranked in zip(documents, found, strict=True)
        ]
        answer = {"translatedText": [result[0] for result in results]}
        if count > 0:
            answer["alternatives"] = [result[1 : count + 1] for result in results]
        if detected:
            answer["detectedLanguage"] = [detected] * len(texts)
        if not isinstance(asked["q"], list):
            answer = {name: values[0] for name, values in answer.items()}
        return json_response(answer)

    async def translate_file(request):
        asked = await _fields(request, "file", "source", "target")
        file = asked["file"]
        if not isinstance(file, tuple):
            raise _invalid("file parameter is not a file")
        direction = _direction(request, asked)
        path = Path(Path(file[0]).name)
        sides = {f"{side}_language": asked[side] for side in ("source", "target")}
        try:
            format = {"lines": "text"}.get(format_of(path), format_of(path))
            given = file[1], format, path.name
            document = await asyncio.to_thread(read_document, *given, **sides)
        except ValueError as error:
            raise HTTPException(400, str(error)) from None
        size = min(limits.batch, limits.waiting)
        ((best, *_),) = await direction.translate([document], 400, size)
        key = f"{uuid.uuid4().hex}{path.suffix}"
        files[key] = document.assemble(best[0])
        while len(files) > MAX_KEPT_FILES:
            del files[next(iter(files))]
        url = request.url_for("download_file", name=key)
        return json_response({"translatedFileUrl": str(url)})

    async def download_file(request):
        data = files.get(request.path_params["name"])
        if data is None:
            raise HTTPException(404)
        return Response(data, media_type="application/octet-stream")

    async def _fields(request, *names):
        asked = await read_fields(request, limits)
        check_key(request, api_keys, asked.get("api_key"))
        for name in names:
            if not asked.get(name):
                raise _invalid(f"missing {name} parameter")
        if "q" in names:
            texts = asked["q"] if isinstance(asked["q"], list) else [asked["q"]]
            if not all(isinstance(text, str) for text in texts):
                raise _invalid("q parameter is neither a text nor a list of texts")
            # A lone surrogate becomes a question mark.
            asked["texts"] = [x.encode("utf-8", "replace").decode() for x in texts]
            limits.check_texts(texts, "q", 400)
        return asked

    def _direction(request, asked):
        source, target = asked["source"], asked["target"]
        for code in (source, target):
            if not isinstance(code, str) or code not in codes:
                known = f"The languages are {', '.join(codes)}."
                raise HTTPException(400, f"{quoted(code)} is not supported. {known}")
        if (source, target) not in pairs:
            raise HTTPException(
                400,
                f"{language_name(target)} ({target}) is not available as a target "
                f"language from {language_name(source)} ({source}).",
            )
        request.state.model = pairs[source, target].name
        return pairs[source, target]

    return [
        Route("/languages", languages),
        Route("/detect", detect, methods=["POST"]),
        Route("/translate", translate, methods=["POST"]),
        Route("/translate_file", translate_file, methods=["POST"]),
        Route("/download_file/{name}", download_file, name="download_file"),
    ]


def _invalid(reason):
    return HTTPException(400, f"Invalid request: {reason}.")


@functools.cache
def _identifier(languages: tuple[str, ...]) -> LanguageIdentifier:
    """Returns the language identifier, limited to the languages that it knows."""
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    known = {code.partition("-")[0] for code in languages} & {*identifier.labels}
    identifier.set_languages(known or None)
    return identifier


def _detected(text, languages) -> list[dict]:
    """Returns how likely a text is in each of some languages, best first."""
    codes = {code.partition("-")[0]: code for code in languages}
    ranked = _identifier(languages).rank(text[:DETECTED_CHARACTERS])
    return [
        {"confidence": round(100 * float(share), 1), "language": codes.get(code, code)}
        for code, share in ranked
        if code in codes
    ] or [{"confidence": 0.0, "language": languages[0]}]
