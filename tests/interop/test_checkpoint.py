import json
import os
import pickle
import shutil
import zipfile

import ml_dtypes  # noqa: F401  lets NumPy know bfloat16
import numpy as np
import pytest
import safetensors.numpy

from keras_transformer.interop.checkpoint import read_json, read_weights

RANGE = np.arange(2 * 3 * 5, dtype="float32").reshape(2, 3, 5)


def write_archive(path, state, protocol=2):
    """Writes a pickle as PyTorch does."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(state, protocol))


# Safetensors


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_floats_are_read_as_float32(tmp_path, dtype):
    weights = {"a.weight": RANGE.astype(dtype), "ids": np.array([1 << 40, -3])}
    safetensors.numpy.save_file(weights, tmp_path / "model.safetensors")

    found = read_weights(tmp_path)

    assert found.keys() == weights.keys()
    assert found["a.weight"].dtype == "float32"
    np.testing.assert_array_equal(found["a.weight"], RANGE)
    assert found["ids"].dtype == "int64"
    np.testing.assert_array_equal(found["ids"], weights["ids"])


def write_shards(folder):
    shards = {
        "one.safetensors": {"a": RANGE, "b": RANGE[0]},
        "two.safetensors": {"c": RANGE[1]},
    }
    for name, weights in shards.items():
        safetensors.numpy.save_file(weights, folder / name)
    names = {key: name for name, weights in shards.items() for key in weights}
    index = {"metadata": {"total_size": 240}, "weight_map": names}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def test_shards_are_read_together(tmp_path):
    write_shards(tmp_path)
    found = read_weights(tmp_path)
    assert {name: array.shape for name, array in found.items()} == {
        "a": (2, 3, 5),
        "b": (3, 5),
        "c": (3, 5),
    }
    np.testing.assert_array_equal(found["c"], RANGE[1])


def test_a_missing_shard_is_named(tmp_path):
    write_shards(tmp_path)
    (tmp_path / "two.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"two\.safetensors is missing, which"):
        read_weights(tmp_path)


@pytest.mark.parametrize(
    "index", ["{", "[]", "{}", '{"weight_map": ["a"]}', '{"weight_map": {"a": 5}}']
)
def test_a_damaged_index_is_named(tmp_path, index):
    (tmp_path / "model.safetensors.index.json").write_text(index)
    with pytest.raises(ValueError, match=r"model\.safetensors\.index\.json") as error:
        read_weights(tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("size", [0, 7, 40, -1])
def test_a_truncated_file_is_named(tmp_path, size):
    path = tmp_path / "model.safetensors"
    safetensors.numpy.save_file({"a": RANGE}, path)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged .* again"):
        read_weights(tmp_path)


def test_a_folder_without_weights_lists_what_it_holds(tmp_path):
    (tmp_path / "tf_model.h5").touch()
    with pytest.raises(FileNotFoundError, match=r"holds no weights.*: tf_model\.h5\."):
        read_weights(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"holds no weights.*: nothing\."):
        read_weights(tmp_path / "missing")


# PyTorch's files


@pytest.mark.parametrize("name", ["archive.bin", "older.bin"])
def test_tensors_are_those_that_pytorch_saved(originals, tmp_path, name):
    shutil.copy(originals / "torch" / name, tmp_path / "pytorch_model.bin")
    with np.load(originals / "torch" / "expected.npz") as file:
        expected = dict(file)

    found = read_weights(tmp_path)

    assert found.keys() == expected.keys()
    for key, array in found.items():
        is_float = expected[key].dtype.kind == "f"
        assert array.dtype == ("float32" if is_float else expected[key].dtype), key
        np.testing.assert_array_equal(
            array, expected[key].astype(array.dtype), err_msg=key, strict=True
        )
        assert array.flags.owndata or array.base.flags.owndata
    found["shared"][:] = 0
    np.testing.assert_array_equal(found["transposed"], expected["transposed"])


@pytest.mark.parametrize("name", ["archive.bin", "older.bin"])
@pytest.mark.parametrize("fraction", [0, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file_of_pytorch_is_named(originals, tmp_path, name, fraction):
    data = (originals / "torch" / name).read_bytes()
    (tmp_path / "pytorch_model.bin").write_bytes(data[: int(fraction * len(data))])
    with pytest.raises(ValueError, match=r"pytorch_model\.bin") as error:
        read_weights(tmp_path)
    assert "\n" not in str(error.value)


class Call:
    """Pickled as a call of a function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("is_older", [False, True])
@pytest.mark.parametrize("function", [os.mkdir, exec, pickle.loads, getattr])
def test_a_pickle_that_calls_functions_is_refused(
    tmp_path, function, is_older, protocol
):
    created = tmp_path / "created"
    arguments = {
        os.mkdir: [str(created)],
        exec: [f"import os; os.mkdir({str(created)!r})"],
        pickle.loads: [pickle.dumps(Call(os.mkdir, str(created)))],
        getattr: ["", "join"],
    }
    state = {"a": Call(function, *arguments[function])}
    path = tmp_path / "pytorch_model.bin"
    if is_older:
        first = (0x1950A86A20F9469CFC6C, 1001, {}, state, [])
        path.write_bytes(b"".join(pickle.dumps(x, protocol) for x in first))
    else:
        write_archive(path, state, protocol)
    with pytest.raises(ValueError, match=r"which is not part of a tensor\. Download"):
        read_weights(tmp_path)
    assert not created.exists()


@pytest.mark.parametrize("state", [[1, 2], {"epoch": 3}, None, {"state": {}}])
def test_what_is_not_a_tensor_is_refused(tmp_path, state):
    write_archive(tmp_path / "pytorch_model.bin", state)
    with pytest.raises(
        ValueError, match=r"it holds more than named tensors\. Download"
    ):
        read_weights(tmp_path)


def test_safetensors_come_first(originals, tmp_path):
    shutil.copy(originals / "torch" / "archive.bin", tmp_path / "pytorch_model.bin")
    safetensors.numpy.save_file({"a": RANGE}, tmp_path / "model.safetensors")
    assert read_weights(tmp_path).keys() == {"a"}


# JSON


@pytest.mark.parametrize(
    "text", ["{", "[1]", '"text"', "\ud800".encode("utf-8", "surrogatepass")]
)
def test_a_damaged_config_is_named(tmp_path, text):
    path = tmp_path / "config.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=r"config\.json"):
        read_json(path)
    with pytest.raises(FileNotFoundError, match=r"other\.json is missing"):
        read_json(tmp_path / "other.json")
