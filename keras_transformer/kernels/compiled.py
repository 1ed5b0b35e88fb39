"""A function of a model, compiled on any backend."""

import contextlib
import functools
import logging
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np

from keras_transformer.kernels import target


class CompiledFunction(keras.Model):
    """Compiles a function that calls a model, by way of `predict_on_batch`.

    Keras has no public function that compiles on every backend, but it compiles
    what a model predicts. Called with arrays, this returns what `function` does.

    Args:
        function: Function of nested structures of tensors that returns one.
        model: The model whose weights it reads, so that they are inputs of what
            is compiled rather than constants in it.
        jit_compile: As in `keras.Model.compile`.
    """

    def __init__(self, function, model, jit_compile):
        super().__init__(autocast=False)
        self.function = function
        self.model = model
        self.compile(jit_compile=jit_compile)
        self.built = True  # or JAX traces the function once more, to build
        self.make_predict_function()  # here, since each thread would make one

    def run(self, *arguments):
        """Returns what the function returns, as NumPy arrays to be read."""
        with silence_retracing_warning():
            if target.BACKEND == "jax" and self.jit_compile:
                values = [variable.value for variable in self.variables]
                return keras.tree.map_structure(
                    np.asarray, self._jitted(values, arguments)
                )
            if target.BACKEND != "tensorflow":
                return self.predict_on_batch(arguments)
            # `predict_on_batch` copies its outputs. For these copies malloc takes
            # new memory in each thread, which took longer than many decoding steps.
            outputs = self.predict_function([(arguments,)])
            return keras.tree.map_structure(np.asarray, outputs)

    def run_all(self, calls: Iterable[tuple]) -> Iterator:
        """Yields what `run` returns for several tuples of arguments, in their order.

        TensorFlow computes most of a search on one core. On CPUs, as many calls are
        computed side by side as there are cores.
        """
        calls = list(calls)
        cores = target.num_cores() if target.xla_would_compile_for_cpu() else 1
        if min(len(calls), cores) < 2:
            yield from (self.run(*arguments) for arguments in calls)
            return
        with ThreadPoolExecutor(min(len(calls), cores)) as pool:
            yield from pool.map(lambda arguments: self.run(*arguments), calls)

    def call(self, arguments):
        return self.function(*arguments)

    @functools.cached_property
    def _jitted(self):
        """The function for JAX: it takes the values of all variables, and arguments.

        `predict_on_batch` takes longer to reassign all variables than a small model
        takes to decode.
        """
        import jax

        def compute(values, arguments):
            with keras.StatelessScope(zip(self.variables, values, strict=True)):
                return self.function(*arguments)

        return jax.jit(compute)


@contextlib.contextmanager
def silence_retracing_warning():
    """Silences TensorFlow's warning about functions that are traced repeatedly.

    TensorFlow counts the first traces of several functions as traces of one.
    """

    def is_something_else(record):
        return "tf.function retracing" not in record.getMessage()

    logger = logging.getLogger("tensorflow")
    logger.addFilter(is_something_else)
    try:
        yield
    finally:
        logger.removeFilter(is_something_else)
