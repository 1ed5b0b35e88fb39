"""Which backend, compiler, device and runtime the code runs on."""

import contextlib
import contextvars

import keras

_portable = contextvars.ContextVar("portable", default=False)


def is_tensorflow() -> bool:
    """Tells whether Keras runs on TensorFlow."""
    return keras.backend.backend() == "tensorflow"


def is_jax() -> bool:
    """Tells whether Keras runs on JAX."""
    return keras.backend.backend() == "jax"


def is_torch() -> bool:
    """Tells whether Keras runs on PyTorch."""
    return keras.backend.backend() == "torch"


def require_tensorflow(what: str) -> None:
    """Raises `ValueError` unless Keras runs on TensorFlow."""
    if not is_tensorflow():
        raise ValueError(
            f"{what} needs the TensorFlow backend. "
            f"Received: KERAS_BACKEND={keras.backend.backend()}."
        )


def xla_would_compile_for_cpu() -> bool:
    """Tells whether functions with `jit_compile=True` would be compiled for CPUs.

    That is: by TensorFlow's XLA, without an accelerator; JAX was not measured.
    """
    return is_tensorflow() and keras.distribution.list_devices() == ["cpu:0"]


def computes_each_operation_in_one_thread() -> bool:
    """Tells whether TensorFlow runs on CPUs, and uses one thread for each operation."""
    if not xla_would_compile_for_cpu():
        return False
    import tensorflow as tf

    return tf.config.threading.get_intra_op_parallelism_threads() == 1


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


@contextlib.contextmanager
def portable_graphs():
    """Traces graphs that are to be converted for another runtime, such as ONNX Runtime.

    Entered by `models.export`, and nowhere else.
    """
    token = _portable.set(True)
    try:
        yield
    finally:
        _portable.reset(token)


def traces_portable_graph() -> bool:
    """Tells whether the graph being traced will be converted for another runtime.

    Converters know fewer operations than TensorFlow, and other runtimes plan their
    memory themselves. Some operations are never used in layers: LiteRT's converter
    fails on an index such as `mask[:, None]` of booleans, and that of ONNX loses the
    shape, so axes are added by `ops.expand_dims`.
    """
    return _portable.get()
