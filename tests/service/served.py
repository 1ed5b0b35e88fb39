"""The service in this process, and translators for its tests."""

import asyncio
import re
import threading
from typing import ClassVar, NamedTuple

import httpx2
from starlette.testclient import TestClient

from keras_transformer.service import make_app
from keras_transformer.translation import Translation


def client_of(engine, limits=None):
    """Returns a client of a service that translates from English to German and back."""
    app = make_app({("en", "de"): engine, ("de", "en"): engine}, limits)
    return TestClient(app, raise_server_exceptions=False)


def ask_together(engine, ask, limits=None):
    """Returns what an async function of a client returns."""

    async def main():
        transport = httpx2.ASGITransport(make_app({("en", "de"): engine}, limits))
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://service"
        ) as client:
            return await ask(client)

    return asyncio.run(main())


def assert_error(response, pattern):
    """Checks that an answer is an error of one line, in the form of both dialects."""
    assert response.headers["content-type"] == "application/json"
    assert list(response.json()) == ["error"]
    error = response.json()["error"]
    assert "\n" not in error
    assert "Traceback" not in error
    assert len(error) < 300
    assert re.search(pattern, error), error


class Gated:
    """A translator that begins to translate when its gate opens."""

    def __init__(self, engine):
        self.engine, self.are_cut = engine, engine.are_cut
        self.gate, self.has_begun = threading.Event(), threading.Event()
        self.batches = []

    def translate_n_best(self, texts):
        self.has_begun.set()
        assert self.gate.wait(60)
        self.batches.append(list(texts))
        return self.engine.translate_n_best(texts)


class Shouting:
    """A translator that says what it has read, in capitals."""

    read: ClassVar[list] = []

    def are_cut(self, texts):
        return [False] * len(texts)

    def translate_n_best(self, texts):
        self.read.append(texts)
        return [[Translation(text.upper(), 0.0)] for text in texts]


class Pair(NamedTuple):
    source: tuple[int, int]
    target: tuple[int, int]
    weight: float


class Aligning:
    """A translator that aligns words by their places."""

    def __init__(self, engine):
        self.are_cut = engine.are_cut
        self.translate_n_best = engine.translate_n_best

    def align(self, texts, translations):
        return [
            [
                Pair(source.span(), target.span(), 0.5)
                for source, target in zip(
                    re.finditer(r"\S+", text),
                    re.finditer(r"\S+", translation),
                    strict=False,
                )
            ]
            for text, translation in zip(texts, translations, strict=True)
        ]
