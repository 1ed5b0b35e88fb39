"""Loading TensorFlow, without its log lines, and translators."""

import contextlib
import os
import sys
import tempfile
from pathlib import Path


def load_tensorflow(devices: bool = True) -> None:
    """Imports TensorFlow and Keras without the lines that they log.

    That takes seconds, so commands call it only after their arguments are checked:
    `--help` and errors of usage appear at once. With `devices` it initialises these
    too, which log when they are first used; a worker must first connect to the others.
    """
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with _silent():
        import keras
        import tensorflow as tf
        import tensorflow_text  # noqa: F401

        tf.get_logger().setLevel("ERROR")
        if devices:
            keras.random.uniform(())


def load_translator(folder: Path):
    """Returns the `Translator` of a run, or one saved by itself."""
    load_tensorflow()
    from keras_transformer.runs import Run
    from keras_transformer.translator import Translator

    run = Run(folder)
    if run.settings_path.is_file():
        return run.translator()
    return Translator.load(folder)


@contextlib.contextmanager
def _silent():
    """Hides standard error, also that of C++, unless the block raises."""
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as hidden:
        os.dup2(hidden.fileno(), 2)
        try:
            yield
        except BaseException:
            hidden.seek(0)
            os.write(stderr, hidden.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)
