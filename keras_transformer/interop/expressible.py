"""Which parts of a translator other systems can express; errors name the rest.

`system` is the name of the other system in these errors.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np
from keras import ops

from keras_transformer.decoding import (
    BannedIds,
    BeamSearch,
    ForcedPrefix,
    MinimumLength,
    NoRepeatNgram,
    PowerLengthPenalty,
    Search,
    WuLengthPenalty,
)
from keras_transformer.interop.hugging_face.weights import weights_of
from keras_transformer.text import Tokenizer


def refuse(system: str, what: str) -> NoReturn:
    """Raises `ValueError` for what the system cannot express."""
    raise ValueError(f"{system} cannot express {what}.")


def check_is_new(path: str | os.PathLike) -> Path:
    """Returns a path; raises `FileExistsError` if something is there."""
    path = Path(path)
    if path.exists():
        raise FileExistsError(f"{path} exists, and an export never overwrites another.")
    return path


def known_activation(model, known: Iterable[str], system: str) -> str:
    """Returns the name of the model's activation if it is a known one."""
    activation = model.settings["activation"]
    if activation not in known:
        refuse(system, f"activation={activation!r}")
    return activation


def sinusoids(layer, length: int, dim: int) -> np.ndarray:
    """Returns the float32 table `(length, dim)` of a `SinusoidalPositionalEncoding`."""
    config = {"merge": "add", "encoding_dim": None, "dtype": "float32"}
    layer = type(layer).from_config({**layer.get_config(), **config})
    return ops.convert_to_numpy(layer(ops.zeros((1, length, dim))))[0]


def float_weights(model, system: str) -> dict[str, np.ndarray]:
    """Returns what `weights_of` does, as float32, and zeros for a bias of the logits.

    Raises:
        ValueError: If a layer was quantized or has weights that a plain `Transformer`
            does not have.
    """
    weights = weights_of(model)
    known = (
        r".*\.(weight|bias)|final_logits_bias|narrow/(weight|bias)|.*positions/table"
    )
    if others := [name for name in weights if not re.fullmatch(known, name)]:
        refuse(
            system,
            f"quantized layers or additional weights such as {others[0]!r}: load the "
            "model as it was before",
        )
    weights = {name: array.astype("float32") for name, array in weights.items()}
    bias = np.zeros((1, model.target_embedding.vocabulary_size), "float32")
    return {"final_logits_bias": bias, **weights}


class Limits(NamedTuple):
    """What a search's processors forbid and force.

    Attributes:
        banned_ids: Ids that are never produced.
        forced_ids: Ids that begin every translation.
        min_length: Minimum length, including the end token.
        ngram_size: Size of n-grams that are not repeated, or 0.
    """

    banned_ids: list[int]
    forced_ids: list[int]
    min_length: int
    ngram_size: int


def limits_of(search: Search, pad_id: int, system: str) -> Limits:
    """Returns what the processors of a search forbid and force.

    `pad_id` is the model's.

    Raises:
        ValueError: If the search has other processors.
    """
    banned: list[int] = []
    forced: list[int] = []
    min_length, ngram_size = 0, 0
    for processor in search.processors:
        if isinstance(processor, BannedIds):
            banned += processor.ids
        elif isinstance(processor, ForcedPrefix) and not forced:
            forced = _forced_ids(processor, pad_id, system)
        elif isinstance(processor, MinimumLength):
            min_length = max(min_length, processor.length)
        elif isinstance(processor, NoRepeatNgram) and not ngram_size:
            ngram_size = processor.size
        else:
            refuse(system, f"the search's {processor}")
    return Limits(banned, forced, min_length, ngram_size)


def _forced_ids(processor, pad_id, system):
    ids = [-1 if x == pad_id else x for x in processor.table(1)[0].tolist()]
    while ids and ids[-1] < 0:
        ids.pop()
    if any(x < 0 for x in ids):
        refuse(system, f"free tokens within {processor}")
    return ids


def power_of_length(search: BeamSearch, system: str) -> float:
    """Returns the exponent of a beam search's length penalty.

    The other systems divide by `length ** exponent`. Wu et al.'s penalty becomes the
    one with the same exponent.
    """
    penalty = search.length_penalty
    if not isinstance(penalty, PowerLengthPenalty | WuLengthPenalty):
        refuse(system, f"the search's {penalty}")
    return float(penalty.exponent)


def unique_pieces(tokenizer: Tokenizer) -> list[str]:
    """Returns the subword of every id, numbered where several ids have the same."""
    pieces = tokenizer.pieces(range(tokenizer.vocabulary_size))
    id_of_piece = {pieces[tokenizer.unknown_id]: tokenizer.unknown_id}
    for index, piece in enumerate(pieces):
        while id_of_piece.setdefault(piece, index) != index:
            piece = f"{piece}_{index}"
    return sorted(id_of_piece, key=id_of_piece.__getitem__)


def control_pieces(tokenizer: Tokenizer, pieces: list[str]) -> list[str]:
    """Returns the `unique_pieces` that have no text, except spaces and bytes."""
    texts = tokenizer.detokenize([[index] for index in range(len(pieces))]).numpy()
    is_space = re.compile("\u2581+|<0x..>").fullmatch
    pairs = zip(pieces, texts, strict=True)
    return [piece for piece, text in pairs if not text and not is_space(piece)]


def source_prefix(tokenizer: Tokenizer) -> list[int]:
    """Returns the ids that begin every source, such as its language."""
    return tokenizer([""]).to_list()[0]


def check_same_tokens(source, target, names: Iterable[str], system: str) -> None:
    """Raises `ValueError` unless special subwords and ids are the same in both."""
    for name in names:
        ids = getattr(source, name), getattr(target, name)
        pieces = source.pieces(ids[:1]), target.pieces(ids[1:])
        if (ids[0], pieces[0]) != (ids[1], pieces[1]):
            refuse(
                system,
                f"tokenizers with different {name}: {pieces[0]}={ids[0]} and "
                f"{pieces[1]}={ids[1]}",
            )
