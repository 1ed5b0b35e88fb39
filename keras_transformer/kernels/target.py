"""Which backend, compiler, device and runtime the code runs on."""

from pathlib import Path

import keras

from keras_transformer.cores import num_cores as num_cores  # for `target.num_cores()`

BACKEND = keras.backend.backend()  # "tensorflow", "jax" or "torch"
CPU_INFO = Path("/proc/cpuinfo")
# Flags in it, of x86 and ARM; any one of them means products in a dtype.
CPU_FLAGS = {
    "bfloat16": {"avx512_bf16", "amx_bf16", "bf16"},
    "float16": {"avx512_fp16", "amx_fp16", "asimdhp"},
}


def has_accelerator() -> bool:
    """Tells whether there is a device other than CPUs."""
    if BACKEND == "torch":  # Keras lists no devices of PyTorch.
        import torch

        return torch.accelerator.is_available()
    return not all(x.startswith("cpu") for x in keras.distribution.list_devices())


def has_instructions_for(dtype: str) -> bool:
    """Tells whether the device has instructions for products in a dtype.

    Accelerators do. A processor without them computes in float32 and converts, which is
    slower than float32. Only Linux lists a processor's instructions; elsewhere, half
    precision counts as unsupported.
    """
    if dtype not in CPU_FLAGS or has_accelerator():
        return True
    found = CPU_INFO.read_text().split() if CPU_INFO.is_file() else []
    return not CPU_FLAGS[dtype].isdisjoint(found)


def xla_would_compile_for_cpu() -> bool:
    """Tells whether functions with `jit_compile=True` would be compiled for CPUs.

    That is: by TensorFlow's XLA, without an accelerator; JAX was not measured.
    """
    return BACKEND == "tensorflow" and keras.distribution.list_devices() == ["cpu:0"]


def xla_compiles_for_cpu() -> bool:
    """Tells whether the code being traced is compiled by XLA for CPUs.

    True while TensorFlow traces a `tf.function(jit_compile=True)`, or a function
    that such a one calls, on a machine without an accelerator.
    """
    if not xla_would_compile_for_cpu():
        return False
    import tensorflow as tf
    from tensorflow.python.ops import control_flow_util

    if tf.executing_eagerly():
        return False
    # TensorFlow has no public function for this; test_target.py fails if it changes.
    graph = tf.compat.v1.get_default_graph()
    return control_flow_util.GraphOrParentsInXlaContext(graph)
