"""The directions that a service translates in."""

import asyncio
import functools
import math
from collections.abc import Callable, Sequence
from typing import Protocol

import babel
from starlette.exceptions import HTTPException

from keras_transformer.service.batching import BatchingThread, QueueFull
from keras_transformer.service.requests import Limits
from keras_transformer.translation import Translation


class ServableTranslator(Protocol):
    """What the service needs of a translator, whatever computes its translations.

    Where there is `align` too, as `Translator` has it, the service offers alignments.
    """

    max_source_length: int

    def translate_n_best(self, texts: Sequence[str]) -> list[list[Translation]]:
        """Returns the translations of each text, best first."""


class Direction:
    """A translator from one language to another, and the thread that it runs in.

    Args:
        source: Code of the language that it translates from, such as `"en"`.
        target: Code of the language that it translates to.
        translator: The translator.
        limits: The limits of requests.
        observe: As in `BatchingThread`.
    """

    def __init__(
        self,
        source: str,
        target: str,
        translator: ServableTranslator,
        limits: Limits,
        observe: Callable[[int], None],
    ):
        self.source, self.target = source, target
        self.name = f"{source}-{target}"
        self.translator = translator
        self.limits = limits
        self.thread = BatchingThread(limits.batch, limits.waiting, observe)
        self.aligns = callable(getattr(translator, "align", None))

    async def translate(
        self,
        texts: Sequence[str],
        name: str,
        status: int = 413,
        has_tags: bool = False,
    ) -> list[list[Translation]]:
        """Returns the translations of each text, best first.

        Args:
            texts: What to translate.
            name: What the request calls the texts, for errors.
            status: Status of the error of a text that is too long.
            has_tags: Whether the texts hold inline tags, which are placed by
                alignments. There is one translation of each then.
        """
        self.limits.check_texts(texts, name, status)
        plain = self.translator.translate_n_best
        found = await self._compute(
            self._translate_markup if has_tags else plain, texts
        )
        for index, translations in enumerate(found):
            if "cut source" in translations[0].flags:
                raise HTTPException(
                    status,
                    f"`{name}[{index}]` is longer than the "
                    f"{self.translator.max_source_length} subwords that the model "
                    "reads. Split it.",
                )
        # Minus infinity: the search found fewer.
        return [[x for x in row if x is row[0] or x.score > -math.inf] for row in found]

    async def align(self, texts: Sequence[str], translations: Sequence[str]) -> list:
        """Returns the aligned pairs of each translation and what it translates."""
        self.limits.check_texts(texts, "text")
        self.limits.check_texts(translations, "target")
        pairs = list(zip(texts, translations, strict=True))
        return await self._compute(self._align, pairs)

    def _align(self, pairs):
        return self.translator.align(*map(list, zip(*pairs, strict=True)))

    def _translate_markup(self, texts):
        from keras_transformer.translator import translate_markup

        return [[best] for best in translate_markup(self.translator, texts)]

    async def _compute(self, function, items):
        try:
            running = self.thread.run(function, items)
            return await asyncio.wait_for(running, self.limits.seconds)
        except QueueFull:
            raise HTTPException(
                503,
                f"{self.limits.waiting} texts wait for {self.name} at most. Try again.",
                {"Retry-After": "1"},
            ) from None
        except asyncio.TimeoutError:
            raise HTTPException(
                504,
                f"{len(items)} texts were not translated in {self.limits.seconds:g} "
                "seconds. Send fewer at a time, or try again later.",
            ) from None


@functools.cache
def language_name(code: str) -> str:
    """Returns the English name of a language, or its code if it has none."""
    try:
        return babel.Locale.parse(code.replace("-", "_")).english_name or code
    except (ValueError, babel.UnknownLocaleError):
        return code
