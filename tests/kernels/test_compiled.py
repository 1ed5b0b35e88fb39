import threading

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.kernels import target
from keras_transformer.kernels.compiled import CompiledFunction


@pytest.fixture
def layer():
    layer = keras.layers.Dense(3)
    layer.build((None, 5))
    return layer


def double(layer):
    return lambda x, extra: {"y": 2 * layer(x), "extra": (extra["a"] + 1,)}


ARGUMENTS = np.ones((7, 5), "float32"), {"a": np.arange(7, dtype="int32")}


@pytest.mark.parametrize("jit_compile", [False, True, "auto"])
def test_compiled_and_plain_functions_return_the_same(layer, jit_compile):
    if keras.backend.backend() == "torch" and jit_compile is True:
        pytest.skip("PyTorch's compiler needs more than these tests may ask for.")
    compiled = CompiledFunction(double(layer), layer, jit_compile)
    for scale in (1.0, 3.0):  # weights are read anew in every call
        layer.kernel.assign(scale * ops.ones((5, 3)))
        found, expected = compiled.run(*ARGUMENTS), double(layer)(*ARGUMENTS)
        assert isinstance(found["y"], np.ndarray)
        keras.tree.map_structure(
            lambda x, y: np.testing.assert_allclose(x, ops.convert_to_numpy(y), 1e-6),
            found,
            expected,
        )


def test_a_function_is_traced_once_for_each_shape(layer):
    traces = []

    def find(x):
        traces.append(x.shape)
        return x + 1

    compiled = CompiledFunction(find, layer, jit_compile="auto")
    for _ in range(3):
        np.testing.assert_array_equal(compiled.run(ARGUMENTS[0]), ARGUMENTS[0] + 1)
    if keras.backend.backend() != "torch":  # which compiles nothing
        assert len(traces) == 1


@pytest.mark.parametrize("cores", [1, 3])
def test_several_calls_return_in_order(layer, cores, monkeypatch):
    traces = []

    def find(x):
        traces.append(x.shape)
        return x + 1

    monkeypatch.setattr(target, "num_cores", lambda: cores)
    compiled = CompiledFunction(find, layer, jit_compile="auto")
    calls = [(np.full((5,), number, "float32"),) for number in range(7)]
    found = [int(x[0]) for x in compiled.run_all(calls)]
    assert found == [1, 2, 3, 4, 5, 6, 7]
    if keras.backend.backend() != "torch":
        assert len(traces) == 1
    assert list(compiled.run_all([])) == []


@pytest.mark.needs_tensorflow
def test_as_many_calls_run_side_by_side_as_there_are_cores(layer, monkeypatch):
    monkeypatch.setattr(target, "num_cores", lambda: 3)
    monkeypatch.setattr(target, "xla_would_compile_for_cpu", lambda: True)
    all_are_there = threading.Barrier(3, timeout=30)

    class Meeting(CompiledFunction):
        def run(self, number):
            all_are_there.wait()
            return number

    compiled = Meeting(lambda x: x, layer, jit_compile=False)
    assert list(compiled.run_all([(1,), (2,), (3,)])) == [1, 2, 3]
