"""Which backend, compiler, device and runtime the code runs on."""

import math
import re
from pathlib import Path

import keras

from keras_transformer.keras_private import all_layers, layout_rules

BACKEND = keras.backend.backend()  # "tensorflow", "jax" or "torch"
LARGE_WEIGHT = 2**16  # elements
CPU_INFO = Path("/proc/cpuinfo")
# Flags in it, of x86 and of ARM, any of which stands for products in a dtype.
CPU_FLAGS = {
    "bfloat16": {"avx512_bf16", "amx_bf16", "bf16"},
    "float16": {"avx512_fp16", "amx_fp16", "asimdhp"},
}


def has_accelerator() -> bool:
    """Tells whether there is a device that is no CPU."""
    return not all(x.startswith("cpu") for x in keras.distribution.list_devices())


def has_instructions_for(dtype: str) -> bool:
    """Tells whether the device has instructions for products in a dtype.

    Accelerators have. A processor without them computes in float32 and converts, which
    is slower than float32. Linux lists what a processor has; others count as having
    none for half precision.
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


def check_strategy(strategy, variables, jit_compile: bool) -> None:
    """Raises `ValueError` unless a `tf.distribute` strategy can train such a model."""
    import tensorflow as tf

    if jit_compile and strategy.num_replicas_in_sync > 1:
        raise ValueError(
            "`jit_compile` must be False under a strategy of several devices: XLA "
            "compiles for one. Compile the model again. Received: jit_compile=True, "
            f"with {strategy.num_replicas_in_sync} devices."
        )
    created = strategy.extended.variable_created_in_scope
    with strategy.scope():
        is_default = not tf.distribute.has_strategy()
    if not is_default and not all(created(variable.value) for variable in variables):
        raise ValueError(
            "The model must be built within the strategy's scope, in which it is "
            "trained. Make or load it after `with strategy.scope():`."
        )


def check_layout(model) -> None:
    """Raises `ValueError` unless the rules of a `ModelParallel` fit a model's weights.

    Keras would put a whole copy of a weight that no rule fits on every device.
    """
    rules = layout_rules()
    if not rules:
        return
    paths = [weight.path for weight in model.weights]
    # Rules may also say how the outputs of layers are split.
    paths_and_outputs = [*paths, *(f"{x.path}/output" for x in all_layers(model))]
    for rule in rules:
        if not any(re.fullmatch(rule, path) for path in paths_and_outputs):
            raise ValueError(
                "Every rule of the `layout_map` must fit a weight of the model. "
                f"Received: {rule!r}, which fits none; its weights are such as "
                f"{paths[0]!r}."
            )
    for weight in model.weights:
        is_large = len(weight.shape) > 1 and math.prod(weight.shape) >= LARGE_WEIGHT
        if is_large and rules[weight.path] is None:
            raise ValueError(
                "The `layout_map` must have a rule for every large weight, of which "
                "every device would hold a whole copy. Received: none for "
                f"{weight.path!r} of shape {tuple(weight.shape)}. Add one, such as "
                f"layout_map[{weight.path!r}] = (None, 'model')."
            )


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
