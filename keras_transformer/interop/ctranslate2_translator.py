"""Translating with CTranslate2, without TensorFlow."""

import hashlib
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from keras_transformer.checks import optional
from keras_transformer.cores import num_cores
from keras_transformer.text_files import chunks_of
from keras_transformer.translation import Translation, as_bytes, flags

with optional("ctranslate2", "ctranslate2", "Translating with CTranslate2"):
    import ctranslate2
import sentencepiece

# As in `text.encoding`, which needs TensorFlow.
_SPACES = re.compile("[\v\x1c-\x1f\x85]")
_BREAK_MARKS = re.compile("[\xad\u2060\ufeff]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_MAX_BYTES_PER_SUBWORD = 64
TEXTS_PER_BATCH = 32


class CTranslate2Translator:
    """Translates text like `Translator`, with a model exported for CTranslate2.

    Args:
        folder: The folder that `Translator.export(folder, format="ctranslate2")` wrote,
            which includes the search.

    Raises:
        ImportError: If CTranslate2 is not installed.
        FileNotFoundError: If there is no such export.
    """

    def __init__(self, folder: str | os.PathLike):
        self._folder = Path(folder)
        path = self._folder / "translator.json"
        if not path.is_file():
            raise FileNotFoundError(
                f"{folder} holds no translator for CTranslate2. Pass a folder that "
                "`Translator.export` wrote."
            )
        self._settings = json.loads(path.read_text("utf-8"))
        self._source, self._target = (
            sentencepiece.SentencePieceProcessor(str(path.with_name(f"{side}.model")))
            for side in ("source", "target")
        )
        names = "source_vocabulary.json", "shared_vocabulary.json"
        path = next(filter(Path.is_file, map(self._folder.joinpath, names)))
        self._known = {*json.loads(path.read_text("utf-8"))}
        self._control = {*self._settings["control"]}
        self._arguments = self._settings["translate_batch"]
        self.is_random = "sampling_temperature" in self._arguments
        self.max_source_length: int = self._arguments["max_input_length"]
        # A thread for each batch is faster than several for one.
        self._num_workers = num_cores()
        self._engine = ctranslate2.Translator(
            str(folder), inter_threads=self._num_workers, intra_threads=1
        )

    def translate_n_best(
        self,
        texts: Sequence[str],
        search: None = None,
        batch_size: int | None = None,
        max_length: int | None = None,
        terms: None = None,
    ) -> list[list[Translation]]:
        """Translates as `Translator.translate_n_best` does.

        `search` and `terms` must be None: they are the export's, as is the default of
        `max_length`. By default, each core gets an equal share of the texts, but at
        most 32 at a time.
        """
        count = self._arguments.get("num_hypotheses", 1)
        found = [[Translation("", 0.0)] * count for _ in texts]
        read = list(map(self._read, as_bytes(texts)))
        prefix = self._settings["source_prefix"]
        places = [i for i, (row, _) in enumerate(read) if len(row) > len(prefix)]
        arguments = dict(self._arguments)
        if max_length is not None:
            arguments["max_decoding_length"] = max_length
        share = math.ceil(len(places) / self._num_workers)
        results = self._engine.translate_batch(
            [read[place][0] for place in places],
            target_prefix=[self._settings["target_prefix"]] * len(places),
            max_batch_size=batch_size or min(max(1, share), TEXTS_PER_BATCH),
            return_scores=True,
            **arguments,
        )
        limit = arguments["max_decoding_length"]
        longest = self.max_source_length
        for place, result in zip(places, results, strict=True):
            row, is_cut = read[place]
            known = {"is_cut": is_cut, "has_unknown": not self._known.issuperset(row)}
            found[place] = []
            for pieces, score in zip(result.hypotheses, result.scores, strict=True):
                text, has_end = self._text(pieces), len(pieces) < limit
                # End tokens count.
                lengths = min(len(row) + 1, longest), len(pieces) + has_end
                reasons = flags(texts[place], text, *lengths, has_end=has_end, **known)
                found[place].append(Translation(text, score, reasons))
        return found

    def translate_iterable(
        self, texts: Iterable[str], *settings, chunk_size: int = 8192, **named
    ) -> Iterator[list[Translation]]:
        """Translates as `Translator.translate_iterable` does, with these arguments."""
        for chunk in chunks_of(texts, chunk_size):
            yield from self.translate_n_best(chunk, *settings, **named)

    def are_cut(self, texts: Sequence[str]) -> list[bool]:
        """Returns which texts are too long to be read completely."""
        return [is_cut for _, is_cut in map(self._read, as_bytes(texts))]

    def checksum(self) -> str:
        """Returns a checksum of the weights and the search."""
        known = hashlib.blake2b(json.dumps(self._settings).encode())
        known.update((self._folder / "model.bin").read_bytes())
        return known.hexdigest()

    def _read(self, text: bytes) -> tuple[list[str], bool]:
        """Returns the subwords of a text, and whether its end will not be read."""
        plain = _BREAK_MARKS.sub("", _SPACES.sub(" ", text.decode())).strip().encode()
        limit = _MAX_BYTES_PER_SUBWORD * self.max_source_length
        if len(plain) > limit:  # white space takes no subwords
            plain = " ".join(plain.decode().split()).encode()
        pieces = self._source.encode(
            plain[:limit].decode(errors="ignore"), out_type=str
        )
        row = [*self._settings["source_prefix"], *pieces]
        return row, len(plain) > limit or len(row) >= self.max_source_length

    def _text(self, pieces: list[str]) -> str:
        text = self._target.decode([x for x in pieces if x not in self._control])
        # Subwords that only the source's model knows keep their mark of a space.
        return _CONTROL.sub(" ", text.replace("\u2581", " ").strip())
