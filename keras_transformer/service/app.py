"""The service as an ASGI application: both dialects, the page and the metrics."""

import contextlib
import json
import logging
import re
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from importlib import resources
from typing import TYPE_CHECKING

import prometheus_client
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Route

from keras_transformer.service.directions import (
    Direction,
    ServableTranslator,
    language_name,
)
from keras_transformer.service.libretranslate import libretranslate_routes
from keras_transformer.service.predict import predict_routes
from keras_transformer.service.requests import Limits, json_response, quoted

if TYPE_CHECKING:
    from keras_transformer.translator import Terms

BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)
_REQUEST_ID = re.compile(r"[\w.:-]{1,99}", re.ASCII)
_log = logging.getLogger(__name__)


def make_app(
    translators: Mapping[tuple[str, str], ServableTranslator],
    limits: Limits | None = None,
    terms: "Terms | None" = None,
    api_keys: Collection[str] = (),
    allowed_origins: Sequence[str] = (),
    allowed_hosts: Sequence[str] = ("*",),
) -> Starlette:
    """Creates a translation service, to run in an ASGI server such as uvicorn.

    It has the REST API of TensorFlow Serving and KServe (V1) under `/v1/models`, where
    the model from `en` to `de` is `en-de`, and the API of LibreTranslate (`/translate`,
    `/translate_file`, `/detect`, `/languages`). `/` is a page to translate on,
    `/healthz` says that the service is up, `/readyz` that it accepts requests, and
    `/metrics` has counts for Prometheus.

    A server that is about to stop sets `app.state.is_draining`. Requests are still
    answered, but `/readyz` refuses, and each answer closes its connection.

    Texts are split into sentences. Each translator runs in its own thread, which
    translates the sentences of many requests together. An answer has as many hypotheses
    as the `num_hypotheses` of the translator's search.

    Each answer has the header `X-Request-ID`, copied from the request if it has one.
    The logger `keras_transformer.service.app` logs each request at level `INFO`.

    Args:
        translators: Dictionary from pairs of languages, such as `("en", "de")`, to the
            translators from the first to the second.
        limits: Limits of requests. Default: `Limits()`.
        terms: What all translations must contain; not possible with CTranslate2.
        api_keys: Keys; each translation needs one of them. Default: none needed.
        allowed_origins: Other sites whose pages may call the service, such as
            `"https://example.com"`, or `"*"`.
        allowed_hosts: Host names of the service; requests to others are refused. A
            service for this machine alone allows `"localhost"` and its addresses, which
            prevents DNS rebinding.

    Returns:
        An application of Starlette.

    Raises:
        ValueError: If there is no translator.
        ImportError: If the extra `serve` is not installed.

    Example:
        >>> from keras_transformer.service import make_app
        >>> translator = kt.Translator.load("runs/en-de/translator")  # doctest: +SKIP
        >>> app = make_app({("en", "de"): translator})  # doctest: +SKIP
        >>> uvicorn.run(app)  # doctest: +SKIP
    """
    if not translators:
        raise ValueError("`translators` must hold at least one. Received: none.")
    limits = limits or Limits()
    registry = prometheus_client.CollectorRegistry()
    how: dict = {"namespace": "keras_transformer", "registry": registry}
    how["labelnames"] = ["model"]
    batches = prometheus_client.Histogram(
        "batch_texts", "Texts that were translated together", buckets=BATCH_SIZES, **how
    )
    waiting = prometheus_client.Gauge("waiting_texts", "Texts that wait", **how)
    characters = prometheus_client.Counter(
        "characters", "Characters received for translation", **how
    )
    how["labelnames"] = ["route", "model", "status"]
    seconds = prometheus_client.Histogram(
        "request_seconds",
        "Time from a request to its answer",
        buckets=[*(x for x in SECONDS if x < limits.seconds), limits.seconds],
        **how,
    )
    directions = {}
    for (source, target), translator in translators.items():
        name = f"{source}-{target}"
        observe = batches.labels(name).observe, characters.labels(name).inc
        direction = Direction(source, target, translator, limits, terms, *observe)
        directions[name] = direction
        waiting.labels(name).set_function(direction.thread.num_waiting)

    @contextlib.asynccontextmanager
    async def lifespan(app):
        yield
        for direction in directions.values():
            direction.thread.stop()

    async def page(request):
        """Answers the page, which translates through the routes of `predict`."""
        data = [
            {
                "name": x.name,
                "source": x.source,
                "target": x.target,
                "names": [language_name(x.source), language_name(x.target)],
                "aligns": x.can("align"),
                "needsKey": bool(api_keys),
            }
            for x in directions.values()
        ]
        # Escaped, so that no name can close the script element or open a comment.
        written = json.dumps(data).replace("<", "\\u003c")
        text = resources.files(__package__).joinpath("page.html").read_text("utf-8")
        return Response(text.replace("{{data}}", written), media_type="text/html")

    async def health(request):
        return json_response({"status": "ok"})

    async def ready(request):
        if request.app.state.is_draining:
            raise HTTPException(503, "The service is about to stop.")
        if dead := [x.name for x in directions.values() if x.thread.has_died()]:
            reason = f"The translator of {', '.join(dead)} has died, and is restarting."
            raise HTTPException(503, reason)
        return json_response({"status": "ok"})

    async def metrics(request):
        text = prometheus_client.generate_latest(registry)
        return Response(text, media_type=prometheus_client.CONTENT_TYPE_LATEST)

    app = Starlette(
        routes=[
            Route("/", page),
            Route("/healthz", health),
            Route("/readyz", ready),
            Route("/metrics", metrics),
            *predict_routes(directions, limits, api_keys),
            *libretranslate_routes(directions, limits, api_keys),
        ],
        middleware=[
            Middleware(BaseHTTPMiddleware, partial(_observed, seconds)),
            Middleware(TrustedHostMiddleware, allowed_hosts=allowed_hosts),
            Middleware(
                CORSMiddleware,
                allow_origins=allowed_origins,
                allow_methods=["GET", "POST"],
                allow_headers=["*"],
            ),
        ],
        exception_handlers={
            HTTPException: _answer_error,
            ClientDisconnect: lambda request, error: Response(status_code=400),
            Exception: _answer_fault,
        },
        lifespan=lifespan,
    )
    app.state.is_draining = False
    return app


async def _answer_error(request, error):
    """Answers in the form of both dialects, in one line."""
    reason = error.detail
    if error.status_code == 405:
        allowed = " or ".join(sorted(error.headers["Allow"].split(", ")))
        reason = f"{quoted(request.url.path)} takes {allowed}, not {request.method}."
    elif reason == "Not Found":
        reason = f"There is no {quoted(request.url.path)} here."
    return json_response({"error": reason}, error.status_code, error.headers)


async def _answer_fault(request, error):
    """Answers after a fault of this program; the server logs its traceback."""
    reason = "The translation failed; the log of the service says why."
    return json_response({"error": reason}, 500, {"X-Request-ID": request.state.id})


async def _observed(histogram, request, answer):
    """Counts, times and names a request; closes its connection once the app drains."""
    status, begin = 500, time.perf_counter()
    asked = request.headers.get("x-request-id", "")
    request.state.id = asked if _REQUEST_ID.fullmatch(asked) else uuid.uuid4().hex
    try:
        response = await answer(request)
        status = response.status_code
        response.headers["X-Request-ID"] = request.state.id
        if request.app.state.is_draining:
            response.headers["Connection"] = "close"
        return response
    except Exception:
        _log.error("Request %s failed, as the traceback shows.", request.state.id)
        raise
    finally:
        # The router has named the function; paths that nothing serves are one.
        route = getattr(request.scope.get("endpoint"), "__name__", "none")
        model = getattr(request.state, "model", "none")
        seconds = time.perf_counter() - begin
        histogram.labels(route, model, status).observe(seconds)
        client = request.client.host if request.client else "-"
        line = client, request.method, request.scope["path"], status, seconds
        _log.info("%s %s %r %s %.3f s %s", *line, request.state.id)
