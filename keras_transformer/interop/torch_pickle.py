"""Weights in PyTorch's own files, read without PyTorch and without running their code.

A pickle names functions to call. Here only the names exist that describe a tensor; any
other is an error.
"""

import collections
import io
import pickle
import struct
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
_MAGIC_NUMBER = 0x1950A86A20F9469CFC6C  # of files older than PyTorch 1.6


class _Tensor(NamedTuple):
    """A view of the storage of this key; offset and strides count numbers."""

    key: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read_torch_file(path: Path) -> dict[str, np.ndarray]:
    """Reads the tensors that `torch.save` wrote, in its present or its older format."""
    import ml_dtypes  # noqa: F401  lets NumPy know bfloat16

    try:
        with path.open("rb") as file:
            is_archive = file.read(2) == b"PK"
            file.seek(0)
            tensors, storages = (_read_archive if is_archive else _read_older)(file)
        return {name: _array(x, storages[x.key]) for name, x in tensors.items()}
    except Exception as error:  # a damaged or foreign pickle may raise any
        raise ValueError(
            f"{path} cannot be read: {error}. Download it again, or convert it with "
            "PyTorch: `safetensors.torch.save_file({name: x.contiguous().clone() for "
            "name, x in torch.load(path, weights_only=True).items()}, "
            "'model.safetensors')`."
        ) from None


def _read_archive(file):
    """Returns the tensors of a zip archive, and the numbers of their storages."""
    with zipfile.ZipFile(file) as archive:
        (pickled,) = (x for x in archive.namelist() if x.endswith("/data.pkl"))
        tensors, dtypes = _unpickle(io.BytesIO(archive.read(pickled)))
        data = pickled.removesuffix(".pkl")
        return tensors, {
            key: np.frombuffer(archive.read(f"{data}/{key}"), dtype)
            for key, dtype in dtypes.items()
        }


def _read_older(file):
    """Returns the same from a file in which the storages follow five pickles."""
    if _TensorUnpickler(file).load() != _MAGIC_NUMBER:
        raise ValueError("it is not a PyTorch file")
    for _ in range(2):  # version, properties of the machine
        _TensorUnpickler(file).load()
    tensors, dtypes = _unpickle(file)
    storages = {}
    for key in _TensorUnpickler(file).load():
        (count,) = struct.unpack("<q", file.read(8))
        data = file.read(count * dtypes[key].itemsize)
        storages[key] = np.frombuffer(data, dtypes[key])
    return tensors, storages


def _unpickle(file):
    unpickler = _TensorUnpickler(file)
    tensors = unpickler.load()
    if not isinstance(tensors, dict) or not all(
        isinstance(tensor, _Tensor) for tensor in tensors.values()
    ):
        raise ValueError("it holds more than named tensors")
    return tensors, unpickler.dtypes


class _TensorUnpickler(pickle.Unpickler):
    """Unpickles descriptions of tensors; every name but theirs is refused."""

    def __init__(self, file):
        super().__init__(file)
        self.dtypes = {}  # of each storage that the tensors view, by its key

    def find_class(self, module, name):
        if module == "torch" and name in _DTYPES:
            return name
        known = {
            "collections.OrderedDict": collections.OrderedDict,
            "torch._utils._rebuild_tensor_v2": lambda *view: _Tensor(*view[:4]),
            "torch._utils._rebuild_parameter": lambda tensor, *_: tensor,
        }
        if f"{module}.{name}" not in known:
            raise pickle.UnpicklingError(
                f"it calls {module}.{name}, which is not part of a tensor"
            )
        return known[f"{module}.{name}"]

    def persistent_load(self, pid):
        _, dtype, key, *_ = pid
        self.dtypes[key] = np.dtype(_DTYPES[dtype])
        return key


def _array(tensor, storage):
    """Returns a tensor as a new array, copied from a view of its storage."""
    _, offset, shape, strides = tensor
    reach = sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    is_inside = min((0, *strides)) == 0 <= offset <= offset + reach < len(storage)
    if np.prod(shape) and not is_inside:
        raise ValueError("a tensor reaches beyond its numbers")
    strides = [storage.itemsize * stride for stride in strides]
    view = np.lib.stride_tricks.as_strided(storage[offset:], shape, strides)
    return np.array(view)
