import os

import keras
import pytest

from keras_transformer.kernels import target

pytestmark = pytest.mark.needs_tensorflow


@pytest.mark.quick("False")
@pytest.mark.parametrize("jit_compile", [True, False])
def test_a_trace_knows_whether_xla_compiles_it_for_the_cpu(jit_compile):
    import tensorflow as tf

    found = []

    def function(x):
        found.append(target.xla_compiles_for_cpu())

        def body(x):
            found.append(target.xla_compiles_for_cpu())
            return (x + 1,)

        return keras.ops.while_loop(lambda x: x < 3, body, (x,))

    compiled = tf.function(function, jit_compile=jit_compile)
    # The question is asked in functions that others call, too.
    tf.function(lambda x: compiled(x))(tf.constant(0))
    on_cpu = keras.distribution.list_devices() == ["cpu:0"]
    assert set(found) == {jit_compile and on_cpu}
    assert len(found) >= 2


@pytest.mark.parametrize(
    ("flags", "dtypes"),
    [
        ("flags : fpu avx512_bf16 avx512f", {"bfloat16"}),
        ("flags : amx_bf16 avx512_fp16", {"bfloat16", "float16"}),
        ("Features : asimdhp bf16", {"bfloat16", "float16"}),
        ("flags : fpu avx512f", set()),
        (None, set()),  # not Linux
    ],
)
def test_a_processor_tells_what_it_computes_in(flags, dtypes, tmp_path, monkeypatch):
    if keras.distribution.list_devices() != ["cpu:0"]:
        pytest.skip("An accelerator computes in everything.")
    path = tmp_path / "cpuinfo"
    if flags:
        path.write_text(flags)
    monkeypatch.setattr(target, "CPU_INFO", path)
    known = {"float32", "float64", *target.CPU_FLAGS}
    found = {dtype for dtype in known if target.has_instructions_for(dtype)}
    assert found == {"float32", "float64"} | dtypes


def test_a_model_compiled_with_xla_knows_it_in_its_trace():
    found = []

    class Model(keras.Model):
        def call(self, inputs):
            found.append(target.xla_compiles_for_cpu())
            return inputs

    for jit_compile in (True, False):
        model = Model()
        model.compile(jit_compile=jit_compile)
        model.predict_on_batch(keras.ops.ones((2, 3)))
    assert found[-1] is False
    assert True in found
    assert not target.xla_compiles_for_cpu()  # nor does eager code


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, 11),
        ({"cpu.max": "max 100000\n"}, 11),
        ({"cpu.max": "250000 100000\n"}, 3),
        ({"cpu.max": "1300000 100000\n"}, 11),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 11),
        ({"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 1),
    ],
)
def test_affinity_and_the_quota_of_a_container_limit_the_cores(
    files, cores, tmp_path, monkeypatch
):
    def affinity(process):
        return {*range(11)}

    monkeypatch.setattr(os, "sched_getaffinity", affinity, raising=False)
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert target.num_cores(tmp_path) == cores
