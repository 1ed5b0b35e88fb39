"""The directions that a service translates in."""

import asyncio
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import babel
from starlette.exceptions import HTTPException

from keras_transformer.documents.document import Document
from keras_transformer.documents.sentences import joined, split_long
from keras_transformer.documents.translation import (
    sentences_of,
    split,
    translate_sentences,
)
from keras_transformer.markup import Fragment, merged, plain_text
from keras_transformer.service.batching import BatchingThread, QueueFull
from keras_transformer.service.requests import Limits, refusal
from keras_transformer.translation import Translation

if TYPE_CHECKING:
    from keras_transformer.translator import Terms


class ServableTranslator(Protocol):
    """What the service needs from a translator of any kind.

    If it also has `align`, `score` and `translate_ids`, as `Translator` does, the
    service offers them.
    """

    def translate_n_best(self, texts: Sequence[str]) -> list[list[Translation]]:
        """Returns the translations of each text, best first."""

    def are_cut(self, texts: Sequence[str]) -> list[bool]:
        """Returns which texts are too long to be read completely."""


@dataclasses.dataclass(eq=False)
class Direction:
    """A translator from one language to another, and the thread that it runs in."""

    source: str  # codes, such as "en"
    target: str
    translator: ServableTranslator
    limits: Limits
    terms: "Terms | None"
    observe_batch: Callable[[int], None]  # of sentences
    observe_characters: Callable[[int], None]  # of each request

    def __post_init__(self):
        limits = self.limits.batch, self.limits.waiting
        self.name = f"{self.source}-{self.target}"
        self.thread = BatchingThread(*limits, self.observe_batch)

    def can(self, method: str) -> bool:
        """Returns whether the translator has a method, such as `align`."""
        return hasattr(self.translator, method)

    async def translate(
        self, documents: Sequence[Document], status: int = 413, size: int | None = None
    ) -> list[list[tuple[list[Fragment], float, list[str]]]]:
        """Returns the translations of the texts of each document, best first.

        Each comes with the sum of the scores of its sentences, and with their flags.
        `size` of them are translated before the next ones, all by default.
        """
        parts, sentences = await asyncio.to_thread(self._split, documents)
        step = size or max(1, len(sentences))
        if min(step, len(sentences)) > self.limits.waiting:
            wanted = f"A request must have at most {self.limits.waiting} sentences"
            raise refusal(wanted, len(sentences), status)
        self.observe_characters(sum(len(plain_text(one)) for one in sentences))
        keeps = any(document.keeps_placeholders for document in documents)
        function = self._translate_messages if keeps else self._translate
        found = []
        for first in range(0, len(sentences), step):
            found += await self._compute(function, sentences[first : first + step])
        rows = iter(found)
        return [_ranked(texts, rows) for texts in parts]

    def _split(self, documents):
        """Returns the parts of the texts of each document, and all sentences."""
        texts = [text for one in documents for text in split(one, self.source)]
        texts = split_long(self.translator, texts)
        remaining = iter(texts)
        parts = [list(itertools.islice(remaining, len(x.texts))) for x in documents]
        return parts, list(sentences_of(texts))

    def _translate(self, sentences, keeps=False):
        return translate_sentences(self.translator, sentences, keeps, self.terms)

    def _translate_messages(self, sentences):
        return self._translate(sentences, keeps=True)

    async def of_pairs(
        self, method: str, texts: Sequence[str], translations: Sequence[str]
    ) -> list:
        """Returns what `align` or `score` finds for texts and their translations."""
        self.limits.check_texts(texts, "text")
        self.limits.check_texts(translations, "target")
        pairs = list(zip(texts, translations, strict=True))
        return await self._compute(getattr(self, f"_{method}"), pairs)

    async def translate_ids(self, source_ids: Sequence[list[int]]) -> list:
        """Returns the ids of the best translation of each row of ids, and its score."""
        self.limits.check_texts(source_ids, "source_ids")
        return await self._compute(self._translate_ids, source_ids)

    def _translate_ids(self, source_ids):
        return self.translator.translate_ids(source_ids)

    def _align(self, pairs):
        return self.translator.align(*map(list, zip(*pairs, strict=True)))

    def _score(self, pairs):
        return self.translator.score(*map(list, zip(*pairs, strict=True)))

    async def _compute(self, function, items):
        try:
            running = self.thread.run(function, items)
            return await asyncio.wait_for(running, self.limits.seconds)
        except QueueFull:
            reason = f"At most {self.limits.waiting} texts may wait for {self.name}."
            again = {"Retry-After": "1"}
            raise HTTPException(503, f"{reason} Try again.", again) from None
        except asyncio.TimeoutError:
            limit = f"in {self.limits.seconds:g} seconds"
            advice = "Send fewer at a time, or try again later."
            reason = f"{len(items)} texts were not translated {limit}. {advice}"
            raise HTTPException(504, reason) from None


def plain_document(text: str) -> Document:
    """Returns a text with one paragraph per line as a document."""
    return Document([merged([text])], lambda texts: plain_text(texts[0]).encode())


def _ranked(parts, rows) -> list[tuple[list[Fragment], float, list[str]]]:
    """Returns the translations of a document, from several for each sentence."""
    # Minus infinity: the search found fewer.
    found = [
        [x for x in row if x is row[0] or x[1].score > -math.inf]
        for row in itertools.islice(rows, sum(len(text) // 2 for text in parts))
    ]
    ranked = []
    for rank in range(max(map(len, found), default=1)):
        chosen = [row[min(rank, len(row) - 1)] for row in found]
        remaining = (fragment for fragment, _ in chosen)
        texts = [joined(text, remaining) for text in parts]
        flags = dict.fromkeys(flag for _, one in chosen for flag in one.flags)
        ranked.append((texts, sum(one.score for _, one in chosen), list(flags)))
    return ranked


@functools.cache
def language_name(code: str) -> str:
    """Returns the English name of a language, or else its code."""
    try:
        return babel.Locale.parse(code.replace("-", "_")).english_name or code
    except (ValueError, babel.UnknownLocaleError):
        return code
