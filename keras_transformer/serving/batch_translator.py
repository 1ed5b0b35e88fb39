"""A callable that translates texts, for engines that run on many machines."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from keras_transformer.decoding import Search


class BatchTranslator:
    """Translates batches of texts in the processes of Ray, Spark or Beam.

    Only its settings are pickled. Each process loads the model once, when it gets its
    first batch.

    Args:
        path: A folder that every machine can read: a translator, such as
            `runs/en-de/translator`; for CTranslate2, the result of
            `Translator.export(path, format="ctranslate2")`.
        engine: `"tensorflow"` or `"ctranslate2"`.
        search: As in `Translator.translate`; CTranslate2 uses the export's.
        batch_size: As in `Translator.translate`.
        max_length: As in `Translator.translate`.

    Call arguments:
        texts: Any iterable of str, such as an array or a column.

    Returns:
        A list of the best translations.

    Raises:
        ValueError: If `engine` is unknown, or a `search` is given for CTranslate2.
        FileNotFoundError: If there is no such folder.

    Example:
        >>> translate = kt.serving.BatchTranslator("runs/en-de/translator")
        Traceback (most recent call last):
        FileNotFoundError: runs/en-de/translator is not a folder.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        engine: Literal["tensorflow", "ctranslate2"] = "tensorflow",
        search: Search | None = None,
        batch_size: int | None = None,
        max_length: int | None = None,
    ):
        if engine not in ("tensorflow", "ctranslate2"):
            raise ValueError(
                "`engine` must be 'tensorflow' or 'ctranslate2'. "
                f"Received: engine={engine!r}."
            )
        if engine == "ctranslate2" and search is not None:
            raise ValueError(
                "`search` must be None for CTranslate2: pass it to the export. "
                f"Received: search={search!r}."
            )
        if not Path(path).is_dir():
            raise FileNotFoundError(f"{path} is not a folder.")
        self.path = Path(path).resolve()
        self.engine = engine
        self._settings = search, batch_size, max_length
        self._translator: Any = None

    def __call__(self, texts: Iterable[str]) -> list[str]:
        if self._translator is None:
            self._translator = self._load()
        found = self._translator.translate_n_best(list(texts), *self._settings)
        return [best.text for best, *_ in found]

    def _load(self):
        if self.engine == "ctranslate2":
            from keras_transformer.interop.ctranslate2_translator import (
                CTranslate2Translator,
            )

            return CTranslate2Translator(self.path)
        from keras_transformer.translator import Translator

        return Translator.load(self.path)

    def __getstate__(self):
        return {**self.__dict__, "_translator": None}
