"""Settings of all tests and doctests: threads, random seeds, names in doctests."""

import gc
import os
import random

# Read when Keras and TensorFlow are first imported, here and in subprocesses.
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")  # workers share a GPU
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "2")
os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("MPLBACKEND", "agg")
# Most tests spend more time on tracing and compiling than on computing. Optimising
# costs more than it saves, and so does garbage collection among a graph's many objects.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true",
)
gc.set_threshold(100_000, 20, 20)

import hypothesis
import keras
import numpy as np
import pytest

import keras_transformer

SEED = 1729
gc.freeze()  # what has been imported is not garbage: collections need not look at it

hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True)
hypothesis.settings.load_profile("repeatable")

if keras.backend.backend() == "torch":
    import torch

    # Tests compare tensors as arrays. PyTorch does not convert tensors that record
    # gradients, nor tensors of bfloat16.
    def to_array(self, dtype=None, copy=None):
        array = self.detach().cpu()
        array = array.float() if array.dtype == torch.bfloat16 else array
        return np.asarray(array.numpy(), dtype)

    torch.Tensor.__array__ = to_array


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "needs_tensorflow: skipped if Keras runs on another backend"
    )
    # Once, before all tests: setting TensorFlow's seed deletes unnamed resources.
    keras.utils.set_random_seed(SEED)


def pytest_runtest_setup(item):
    backend = keras.backend.backend()
    if backend != "tensorflow" and item.get_closest_marker("needs_tensorflow"):
        pytest.skip(f"This test needs TensorFlow; Keras runs on {backend}.")


@pytest.fixture(autouse=True)
def fixed_seeds():
    """Starts each test from the same seeds, whichever tests ran before it.

    Keras draws the seeds of initializers and of dropout from `random`, so these two
    suffice. Only unseeded `keras.random` calls and `tf.data` shuffles continue from the
    session's seed: pass them a seed.
    """
    random.seed(SEED)
    np.random.seed(SEED)


@pytest.fixture(autouse=True, scope="module")
def clear_jax_caches():
    """Deletes JAX's compiled programs before LLVM runs out of memory maps."""
    yield
    if keras.backend.backend() == "jax":
        import jax

        jax.clear_caches()


@pytest.fixture(scope="session")
def translator_of_examples():
    """The translator that the example of `Translator` makes."""
    lines = ["a man rides a bike", "a dog rides a man", "a bike"]
    tokenizer = keras_transformer.text.SubwordTokenizer.train(lines, vocabulary_size=25)
    settings = {"hidden_dim": 8, "num_heads": 2, "intermediate_dim": 16}
    model = keras_transformer.models.Transformer(25, num_layers=1, **settings)
    return keras_transformer.Translator(model, tokenizer)


@pytest.fixture(autouse=True)
def names_for_doctests(request, doctest_namespace):
    """Provides the imports of examples in docstrings, and an empty folder to run in.

    In the checkout, what `make demo` leaves behind would change what they print.
    Examples of the subpackage `translator` have one of these, too.
    """
    doctest_namespace.update(keras=keras, ops=keras.ops, np=np, kt=keras_transformer)
    if isinstance(request.node, pytest.DoctestItem):
        if "keras_transformer.translator." in request.node.name:
            made = request.getfixturevalue("translator_of_examples")
            doctest_namespace["translator"] = made
        folder = request.getfixturevalue("tmp_path")
        request.getfixturevalue("monkeypatch").chdir(folder)
