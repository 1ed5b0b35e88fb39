"""`keras-transformer serve`."""

import logging
import re
import signal
import socket
from typing import Annotated

import typer

from keras_transformer.cli import loading, options

_NAMED = re.compile(r"([\w-]+):([\w-]+)=(.+)")
_LOCAL = ("127.0.0.1", "::1", "[::1]", "localhost")


@options.with_search_options(without="max_length")
def serve(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...",
            help="One model for each direction: a run, whose recipe names its "
            "languages, or FROM:TO=MODEL, such as en:de=opus-mt-en-de.",
        ),
    ],
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on; 0.0.0.0 lets other machines in. See --api-key."
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(help="Port to listen on; 0 picks a free one.", min=0, max=65535),
    ] = 8501,
    engine: options.Engine = "auto",
    max_texts: Annotated[
        int, typer.Option(help="Maximum number of texts per request.", min=1)
    ] = 256,
    max_characters: Annotated[
        int, typer.Option(help="Maximum number of characters per text.", min=1)
    ] = 5000,
    max_waiting: Annotated[
        int,
        typer.Option(
            help="Maximum number of sentences waiting for a model; then requests fail.",
            min=1,
        ),
    ] = 1024,
    max_seconds: Annotated[
        float, typer.Option(help="Seconds after which a request times out.", min=1)
    ] = 60,
    drain_seconds: Annotated[
        float,
        typer.Option(
            help="Seconds to keep answering after SIGTERM, while clients switch to "
            "another service.",
            min=0,
        ),
    ] = 0,
    api_key: Annotated[
        list[str] | None,
        typer.Option(
            help="Key that requests must have; repeat it for several keys.",
            envvar="KERAS_TRANSFORMER_API_KEY",
            metavar="KEY",
        ),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            help="Site that may call the service, such as https://example.com, or *.",
            metavar="ORIGIN",
        ),
    ] = None,
    access_log: Annotated[
        bool, typer.Option("--access-log", help="Log a line for each request.")
    ] = False,
    glossary: options.Glossary = None,
    keep: options.Keep = None,
    search_options: options.SearchOptions = options.UNCHANGED,
):
    """Serve translations over HTTP, with a page to try them on.

    It offers the REST APIs of TensorFlow Serving and KServe (V1), and of
    LibreTranslate, which Weblate and subtitle editors use. It is meant for trials and
    small teams; beyond that, `export` the translator for TensorFlow Serving.

    Examples: `keras-transformer serve runs/en-de runs/de-en`,
    `keras-transformer serve en:de=opus-mt-en-de --beam-width 5`
    """
    reason = options.why_tensorflow(engine, {"glossary": glossary, "keep": keep})
    paths: dict[tuple[str, str], str] = {}
    for model in models:
        named = _NAMED.fullmatch(model)
        path = named[3] if named else model
        loading.check_models(path)
        languages = (named[1], named[2]) if named else loading.languages_of_run(path)
        if languages is None:
            missing = f"{path} has no recipe that names its languages"
            raise ValueError(f"{missing}. Specify them: en:de={path}")
        if languages in paths:
            raise ValueError(
                f"{path} and {paths[languages]} both translate from {languages[0]} to "
                f"{languages[1]}. Pass one model for each direction."
            )
        paths[languages] = path
    from keras_transformer.service import Limits, make_app
    from keras_transformer.service.draining import DrainingServer

    sizes = {"texts": max_texts, "characters": max_characters, "waiting": max_waiting}
    limits = Limits(seconds=max_seconds, **sizes)
    listening = _bound_socket(host, port)
    terms = loading.given_terms(glossary, keep)
    translators = {}
    for languages, path in paths.items():
        how = search_options, reason, f"Engine of {'-'.join(languages)}"
        loaded = loading.load_engine(path, engine, *how, all_hypotheses=True)
        translator, search, _ = loaded
        if search is not None:
            translator.search = search
            _warm_up(translator)
        translators[languages] = translator
    # Another site's domain could resolve to an address of this machine.
    hosts = _LOCAL if host in _LOCAL else ("*",)
    app = make_app(translators, limits, terms, api_key or (), allow_origin or (), hosts)
    if access_log:
        logging.basicConfig(format="%(asctime)s %(message)s")
        logging.getLogger("keras_transformer.service").setLevel(logging.INFO)
    server = DrainingServer(app, drain_seconds, round(max_seconds) + 1)
    # Once it has stopped gracefully, uvicorn raises these signals again.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: setattr(server, "should_exit", True))
    listening.listen()
    address, free_port, *_ = listening.getsockname()
    address = f"[{address}]" if ":" in address else address
    typer.echo(
        f"Translating {', '.join('-'.join(each) for each in translators)} at "
        f"http://{address}:{free_port}/. Ctrl-C stops.",
        err=True,
    )
    server.run([listening])
    if server.force_exit:  # by Ctrl-C twice
        raise typer.Exit(130)


def _bound_socket(host, port):
    """Returns a socket with an address, which does not listen yet."""
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except (OSError, ValueError) as error:
        bound.close()
        raise ValueError(
            f"Cannot listen on --host {host} --port {port}: {error}. Choose another."
        ) from None
    return bound


def _warm_up(translator):
    """Compiles the programs that most requests need."""
    from keras_transformer.kernels import target

    if target.xla_would_compile_for_cpu():
        # Otherwise a request that is large enough would wait for XLA.
        translator.model.compile(jit_compile=False)
    for num_texts in (1, 4, 16):  # the sizes of batches on a CPU
        translator.translate_n_best(["a"] * num_texts)
