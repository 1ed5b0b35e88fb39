"""Loading TensorFlow, which takes seconds and talks."""

import contextlib
import os
import sys
import tempfile


def load_tensorflow(devices: bool = True) -> None:
    """Imports what most commands need, without the lines that TensorFlow logs.

    Commands call this first, once the arguments are known to be well-formed: `--help`
    is there at once.

    Args:
        devices: Whether to wake the devices, too, which log when they are first used.
            A worker has to meet the others before that.
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


@contextlib.contextmanager
def _silent():
    """Swallows standard error, of C++ too; shows it if something is raised."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as swallowed:
        os.dup2(swallowed.fileno(), 2)
        try:
            yield
        except BaseException:
            swallowed.seek(0)
            os.write(kept, swallowed.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
