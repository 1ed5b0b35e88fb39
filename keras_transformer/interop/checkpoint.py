"""The weights of checkpoints in Hugging Face's layout, as NumPy arrays."""

import json
from pathlib import Path

import numpy as np

from keras_transformer.checks import optional
from keras_transformer.interop.torch_pickle import read_torch_file
from keras_transformer.storage import names_in
from keras_transformer.text.sentencepiece_ops import SentencePieceModel

_FILES = ("model.safetensors", "pytorch_model.bin")


def read_weights(folder: Path) -> dict[str, np.ndarray]:
    """Reads all weights of a checkpoint in Hugging Face's layout, by name.

    Reads `model.safetensors` or `pytorch_model.bin`, in one file or in the shards that
    their index lists; safetensors if there are both. Floats become float32.
    """
    weights: dict[str, np.ndarray] = {}
    for path in _weight_files(folder):
        if not path.is_file():
            raise FileNotFoundError(
                f"{path} is missing, which the index of the weights lists. Download "
                "the checkpoint again."
            )
        is_safe = path.suffix == ".safetensors"
        weights |= _read_safetensors(path) if is_safe else read_torch_file(path)
    return {name: as_float32(array) for name, array in weights.items()}


def _weight_files(folder) -> list[Path]:
    """Returns the file of all weights, or the shards that an index lists."""
    for name in _FILES:
        if (folder / name).is_file():
            return [folder / name]
        index = folder / f"{name}.index.json"
        if index.is_file():
            table = read_json(index).get("weight_map")
            shards: list = [*table.values()] if isinstance(table, dict) else [None]
            if not all(isinstance(shard, str) for shard in shards):
                raise ValueError(
                    f"{index} is damaged: it has no weight_map from names to files. "
                    "Download it again."
                )
            return [folder / shard for shard in sorted({*shards})]
    raise FileNotFoundError(
        f"{folder} holds no weights: there is no {' or '.join(_FILES)}, nor an index "
        f"of shards. It holds: {names_in(folder)}."
    )


def _read_safetensors(path):
    import ml_dtypes  # noqa: F401  lets NumPy know bfloat16

    with optional("safetensors", extra="hub", purpose=f"Reading {path}"):
        import safetensors
        from safetensors.numpy import load_file
    try:
        return load_file(path)
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path} is damaged ({error}). Download it again.") from None


def as_float32(array: np.ndarray) -> np.ndarray:
    """Returns floats of any precision as float32, and other dtypes as they are."""
    is_float = array.dtype.kind == "f" or array.dtype.name == "bfloat16"
    return array.astype("float32") if is_float else array


def read_json(path: Path, is_optional: bool = False) -> dict:
    """Reads a file that holds a JSON object; an optional one that is missing is {}."""
    if is_optional and not path.is_file():
        return {}
    try:
        values = json.loads(read_bytes(path).decode("utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}.") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold a JSON object. It holds: {type(values)}.")
    return values


def read_bytes(path: Path) -> bytes:
    """Reads a file; raises `FileNotFoundError` if it is missing."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing. Download the checkpoint again.")
    return path.read_bytes()


def read_sentencepiece(path: Path) -> tuple[bytes, list[str]]:
    """Returns the bytes of a SentencePiece model, and its subwords ordered by id."""
    data = read_bytes(path)
    try:
        model = SentencePieceModel(data).processor
    except ValueError:
        raise ValueError(
            f"{path} is not a SentencePiece model. Download it again."
        ) from None
    return data, [model.id_to_piece(index) for index in range(model.vocab_size())]
