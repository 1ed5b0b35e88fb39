"""Weights in PyTorch's own files, read without PyTorch and without running their code.

A pickle names functions to call. Here the only names that exist are those that describe
a tensor; any other is an error.
"""

import collections
import io
import pickle
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

_DTYPES = {
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
}


class _Storage(NamedTuple):
    """The kind of a tensor's numbers, as the pickle names it."""

    dtype: str


def read_torch_file(path: Path) -> dict[str, np.ndarray]:
    """Reads the tensors that `torch.save` wrote.

    Returns:
        Arrays by name, bfloat16 ones with the dtype of `ml_dtypes`.

    Raises:
        ValueError: If the file is damaged, older than PyTorch 1.6, or holds anything
            but tensors.
    """
    import ml_dtypes  # noqa: F401  lets NumPy know bfloat16

    way_out = (
        "Convert it with PyTorch: `safetensors.torch.save_file(torch.load(path, "
        "weights_only=True), 'model.safetensors')`."
    )
    try:
        with zipfile.ZipFile(path) as archive:
            (pickled,) = (x for x in archive.namelist() if x.endswith("/data.pkl"))
            root = pickled.removesuffix("data.pkl")
            tensors = _TensorUnpickler(archive, root).load()
    except zipfile.BadZipFile:
        raise ValueError(
            f"{path} is not a file that PyTorch 1.6 or later wrote, or is cut short. "
            f"Download it again. If it is older: {way_out}"
        ) from None
    except (pickle.UnpicklingError, KeyError, EOFError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {error}. {way_out}") from None
    is_plain = isinstance(tensors, dict) and all(
        isinstance(x, np.ndarray) for x in tensors.values()
    )
    if not is_plain:
        raise ValueError(f"{path} holds more than named tensors. {way_out}")
    return tensors


class _TensorUnpickler(pickle.Unpickler):
    """Unpickles a dictionary of tensors; every name but theirs is refused."""

    def __init__(self, archive, root):
        super().__init__(io.BytesIO(archive.read(f"{root}data.pkl")))
        self._archive = archive
        self._root = root

    def find_class(self, module, name):
        if module == "torch" and name in _DTYPES:
            return _Storage(_DTYPES[name])
        known = {
            "collections.OrderedDict": collections.OrderedDict,
            "torch._utils._rebuild_tensor_v2": _tensor,
            "torch._utils._rebuild_parameter": lambda tensor, *_: tensor,
        }
        if f"{module}.{name}" not in known:
            raise pickle.UnpicklingError(
                f"it wants to call {module}.{name}, which is not part of a tensor"
            )
        return known[f"{module}.{name}"]

    def persistent_load(self, pid):
        _, storage, key, *_ = pid
        data = self._archive.read(f"{self._root}data/{key}")
        return np.frombuffer(data, np.dtype(storage.dtype))


def _tensor(storage, offset, shape, strides, *_):
    """A tensor as an array of its own: a view of its storage, copied."""
    size = storage.itemsize
    reach = sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    is_inside = min((0, *strides)) == 0 <= offset <= offset + reach < len(storage)
    if np.prod(shape) and not is_inside:
        raise ValueError("a tensor reaches beyond its numbers")
    strides = [size * stride for stride in strides]
    view = np.lib.stride_tricks.as_strided(storage[offset:], shape, strides)
    return np.array(view)
