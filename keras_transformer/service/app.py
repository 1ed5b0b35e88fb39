"""The service as an ASGI application: both dialects, the page and the metrics."""

import contextlib
import json
import time
from collections.abc import Mapping
from importlib import resources

import prometheus_client
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
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

BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def make_app(
    translators: Mapping[tuple[str, str], ServableTranslator],
    limits: Limits | None = None,
) -> Starlette:
    """Makes a translation service, to be run by a server such as uvicorn.

    It speaks the REST dialect of TensorFlow Serving and KServe (V1) under `/v1/models`,
    where the model from `en` to `de` is `en-de`, and that of LibreTranslate
    (`/translate`, `/languages`, `/frontend/settings`). `/` is a page to translate on,
    `/healthz` says that the service is up, `/readyz` that it is to be sent requests,
    and `/metrics` has counts for Prometheus.

    A server that is about to end sets `app.state.is_draining`. Requests are still
    answered, but `/readyz` refuses, and each answer closes its connection.

    Each translator runs in a thread of its own, in which the texts of many requests are
    translated together. An answer has as many hypotheses as the translator's search
    has, `num_hypotheses`.

    Args:
        translators: A translator for each pair of the languages that it translates from
            and to, such as `("en", "de")`.
        limits: What a request may ask for. Default: `Limits()`.

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
        raise ValueError("`translators` must hold one or more. Received: none.")
    limits = limits or Limits()
    registry = prometheus_client.CollectorRegistry()
    batches = prometheus_client.Histogram(
        "keras_transformer_batch_texts",
        "Texts that were translated together",
        ["model"],
        buckets=BATCH_SIZES,
        registry=registry,
    )
    waiting = prometheus_client.Gauge(
        "keras_transformer_waiting_texts",
        "Texts that wait",
        ["model"],
        registry=registry,
    )
    directions = {}
    for (source, target), translator in translators.items():
        observe = batches.labels(f"{source}-{target}").observe
        direction = Direction(source, target, translator, limits, observe)
        directions[direction.name] = direction
        waiting.labels(direction.name).set_function(direction.thread.num_waiting)

    @contextlib.asynccontextmanager
    async def lifespan(app):
        yield
        for direction in directions.values():
            direction.thread.stop()

    async def page(request):
        return Response(_page(directions), media_type="text/html")

    async def health(request):
        return json_response({"status": "ok"})

    async def ready(request):
        if request.app.state.is_draining:
            return json_response({"error": "The service is about to end."}, 503)
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
            *predict_routes(directions, limits),
            *libretranslate_routes(directions, limits),
        ],
        middleware=[
            Middleware(_Measured, registry=registry),
            Middleware(_ClosesWhileDraining),
        ],
        exception_handlers={
            HTTPException: _answer_error,
            ClientDisconnect: _answer_nobody,
            Exception: _answer_fault,
        },
        lifespan=lifespan,
    )
    app.state.is_draining = False
    return app


def _page(directions):
    """Returns the page, which translates through the routes of `predict`."""
    data = [
        {
            "name": x.name,
            "source": x.source,
            "target": x.target,
            "names": [language_name(x.source), language_name(x.target)],
            "aligns": x.aligns,
        }
        for x in directions.values()
    ]
    # Escaped, so that no name can close the script element or open a comment in it.
    text = json.dumps(data).replace("<", "\\u003c")
    page = resources.files(__package__).joinpath("page.html").read_text("utf-8")
    return page.replace("{{data}}", text)


async def _answer_error(request, error):
    """Answers in the form of both dialects, in one line."""
    reason = error.detail
    if error.status_code == 405:
        allowed = " or ".join(sorted(error.headers["Allow"].split(", ")))
        reason = f"{quoted(request.url.path)} takes {allowed}, not {request.method}."
    elif reason == "Not Found":
        reason = f"There is no {quoted(request.url.path)} here."
    return json_response({"error": reason}, error.status_code, error.headers)


async def _answer_nobody(request, error):
    return Response(status_code=400)  # the client has gone


async def _answer_fault(request, error):
    """Answers after a fault of this program; the server logs its traceback."""
    reason = "The translation failed; the log of the service says why."
    return json_response({"error": reason}, 500)


class _Measured:
    """Counts the requests of an application, and how long they take."""

    def __init__(self, app, registry):
        self._app = app
        self._seconds = prometheus_client.Histogram(
            "keras_transformer_request_seconds",
            "Time from a request to its answer",
            ["route", "status"],
            registry=registry,
        )

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, begin = 500, time.perf_counter()

        async def note_status(message):
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self._app(scope, receive, note_status)
        finally:
            # The router has named the function; paths that nothing serves are one.
            route = getattr(scope.get("endpoint"), "__name__", "none")
            seconds = time.perf_counter() - begin
            self._seconds.labels(route, status).observe(seconds)


class _ClosesWhileDraining:
    """Closes connections after their answers, once the application drains."""

    def __init__(self, app):
        self._app = app

    async def __call__(self, scope, receive, send):
        async def send_and_close(message):
            is_start = message["type"] == "http.response.start"
            if is_start and scope["app"].state.is_draining:
                headers = [*message["headers"], (b"connection", b"close")]
                message = {**message, "headers": headers}
            await send(message)

        await self._app(scope, receive, send_and_close)
