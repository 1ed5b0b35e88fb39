"""Reading requests within their limits, and answering in JSON."""

import asyncio
import dataclasses
import hmac
import json
from collections.abc import Collection, Sequence
from typing import Any
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.responses import Response

from keras_transformer.checks import check_positive_integers, is_finite_number

MAX_QUOTED = 60  # characters of a request that an error quotes


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits on one request, and on waiting sentences.

    Attributes:
        texts: Maximum number of texts per request.
        characters: Maximum number of characters per text.
        body_bytes: Maximum number of bytes per request.
        seconds: Maximum time for a request, including waiting.
        batch: Maximum number of sentences translated together.
        waiting: Maximum number of sentences waiting for each direction, at least
            `texts`. Further requests are refused.
    """

    texts: int = 256
    characters: int = 5000
    body_bytes: int = 1 << 20
    seconds: float = 60
    batch: int = 32
    waiting: int = 1024

    def __post_init__(self):
        values = dataclasses.asdict(self)
        seconds = values.pop("seconds")
        check_positive_integers(**values)
        if not is_finite_number(seconds) or seconds <= 0:
            raise ValueError(
                f"`seconds` must be a positive number. Received: seconds={seconds!r}."
            )
        if self.waiting < self.texts:
            raise ValueError(
                "`waiting` must be at least `texts`, so that every allowed request can "
                f"wait. Received: waiting={self.waiting}, texts={self.texts}."
            )

    def check_texts(
        self, texts: Sequence[str | list[int]], name: str, status: int = 413
    ) -> None:
        """Refuses too many texts, and texts that are too long, by their `name`."""
        if len(texts) > self.texts:
            wanted = f"`{name}` must hold at most {self.texts} texts"
            raise refusal(wanted, len(texts), status)
        for index, text in enumerate(texts):
            if len(text) > self.characters:
                wanted = f"`{name}[{index}]` must have at most {self.characters}"
                unit = "characters" if isinstance(text, str) else "ids"
                raise refusal(f"{wanted} {unit}", len(text), status)


async def read_body(request: Request, limits: Limits) -> bytes:
    """Reads the body of a request, and no more of it than the limits allow."""
    body = bytearray()

    async def read():
        async for part in request.stream():
            body.extend(part)
            if len(body) > limits.body_bytes:
                reason = f"A request must have at most {limits.body_bytes} bytes."
                raise HTTPException(413, reason)

    try:
        await asyncio.wait_for(read(), limits.seconds)
    except asyncio.TimeoutError:
        reason = f"The request did not arrive in {limits.seconds:g} seconds."
        raise HTTPException(408, reason) from None
    return bytes(body)


def read_json(body: bytes) -> dict[str, Any]:
    """Returns the JSON object that a request is."""
    try:
        found = json.loads(body)
    except RecursionError:
        raise HTTPException(400, "The JSON is nested too deeply.") from None
    except ValueError as error:
        raise HTTPException(400, f"The request is not JSON: {error}.") from None
    if not isinstance(found, dict):
        raise refusal("The request must be a JSON object", found)
    return found


async def read_fields(request: Request, limits: Limits) -> dict[str, Any]:
    """Returns the fields of a request: of its address, and JSON or a form.

    A field that is there several times is a list; a file is its name and its content.
    """

    async def parts():
        yield body

    body = await read_body(request, limits)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    pairs: list[tuple[str, Any]] = [*request.query_params.multi_items()]
    fields: dict[str, Any] = {}
    try:
        if kind == "multipart/form-data":
            size = limits.body_bytes
            parser = MultiPartParser(request.headers, parts(), max_part_size=size)
            form: Any = await parser.parse()
            for name, value in form.multi_items():
                is_text = isinstance(value, str)
                file = value if is_text else (value.filename or "", await value.read())
                pairs.append((name, file))
            await form.close()
        # `curl -d` calls JSON a form, too.
        elif kind == "application/x-www-form-urlencoded" and body[:1] != b"{":
            text = body.decode()
            pairs += parse_qsl(text, keep_blank_values=True, max_num_fields=1000)
        elif body or not pairs:
            fields = read_json(body)
    except (KeyError, MultiPartException, ValueError) as error:
        raise HTTPException(400, f"The form cannot be read: {error}.") from None
    for name in dict.fromkeys(name for name, _ in pairs):
        values = [value for other, value in pairs if other == name]
        fields[name] = values if len(values) > 1 else values[0]
    return fields


def check_key(request: Request, keys: Collection[str], given: object = None) -> None:
    """Refuses a request without one of the keys, in its header or `given`."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    tried = [key] if scheme.lower() == "bearer" else []
    tried += [given] if isinstance(given, str) else []
    if keys and not any(
        hmac.compare_digest(one.encode("utf-8", "replace"), known.encode())
        for one in tried
        for known in keys
    ):
        wanted = "`api_key`, or the header `Authorization: Bearer KEY`"
        raise HTTPException(403, f"A key is needed: {wanted}.")


def refusal(wanted: str, received: object, status: int = 400) -> HTTPException:
    """Returns the error for a request with anything other than what is wanted."""
    return HTTPException(status, f"{wanted}. Received: {quoted(received)}.")


def quoted(value: object) -> str:
    """Returns the part of a request that a one-line error quotes."""
    if isinstance(value, (dict, list, tuple)):
        return "an object" if isinstance(value, dict) else "a list"
    text = json.dumps(value)
    return text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}..."


def json_response(content: Any, status: int = 200, headers=None) -> Response:
    """Returns an answer in JSON; a lone surrogate in it becomes a question mark."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False)
    body = text.encode("utf-8", "replace")
    return Response(body, status, headers, "application/json")
