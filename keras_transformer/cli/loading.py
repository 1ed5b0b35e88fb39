"""Loading TensorFlow, without its log lines, and translators."""

import contextlib
import gc
import os
import sys
import tempfile
from pathlib import Path

from keras_transformer.checks import needs_tensorflow


def load_tensorflow(devices: bool = True) -> None:
    """Imports TensorFlow and Keras without the lines that they log.

    That takes seconds, so commands call it only after their arguments are checked:
    `--help` and errors of usage appear at once. With `devices` it initialises these
    too, which log when they are first used; a worker must first connect to the others.
    """
    backend = os.environ.get("KERAS_BACKEND") or "tensorflow"
    if backend != "tensorflow":
        raise ValueError(
            "`KERAS_BACKEND` must be tensorflow in the shell, or be left out. "
            f"Received: KERAS_BACKEND={backend}."
        )
    os.environ["KERAS_BACKEND"] = backend  # whatever Keras's own settings say
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # Modules and graphs are many long-lived objects: collecting garbage among them
    # takes a fifth of the time of importing them.
    gc.set_threshold(100_000, 50, 100)
    unused = _not_importable("IPython", "matplotlib", "sklearn")
    with needs_tensorflow("The shell"), _silent(), unused:
        import keras
        import tensorflow as tf
        import tensorflow_text  # noqa: F401

        tf.get_logger().setLevel("ERROR")
        # Tracebacks keep all frames, by which `errors` tells whose error it is.
        keras.config.disable_traceback_filtering()
        tf.debugging.disable_traceback_filtering()
        if devices:
            keras.random.uniform(())


def check_models(*models: str) -> None:
    """Raises `FileNotFoundError` unless something is where each `MODEL` is said to be.

    Commands that load several call it first.
    """
    for model in models:
        if "://" not in model and not Path(model).exists():
            raise FileNotFoundError(
                f"{model} does not exist. Name a run, a saved translator, or "
                "hf://user/model."
            )


def load_translator(model: str, source_language=None, target_language=None):
    """Returns the `Translator` that the argument `MODEL` of a command names."""
    check_models(model)
    load_tensorflow()
    from keras_transformer.translator import Translator
    from keras_transformer.translator.saving import MARKS_OF_PRESETS

    folder, languages = run_folder(model), (source_language, target_language)
    is_chosen = any(languages)
    if (folder / "settings.yaml").is_file() and not is_chosen:
        from keras_transformer.runs import Run

        return Run(folder).translator(None if folder == Path(model) else model)
    is_marked = any(Path(model, name).is_file() for name in MARKS_OF_PRESETS)
    if is_marked or is_chosen or model.startswith("hf://"):
        return Translator.from_preset(model, *languages)
    return Translator.load(model)


def run_folder(model: str) -> Path:
    """Returns `MODEL`, or if it is a checkpoint, the folder of its run."""
    path = Path(model)
    is_checkpoint = path.suffix == ".keras" and path.is_file()
    return path.resolve().parent.parent if is_checkpoint else path


@contextlib.contextmanager
def _not_importable(*packages):
    """Hides packages that Keras imports wherever they are installed.

    Only parts of Keras that no command uses need them, and importing them takes longer
    than loading a model. After the block they can be imported.
    """
    hidden = [name for name in packages if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # importing None is an ImportError
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


@contextlib.contextmanager
def _silent():
    """Hides standard error, also what C++ writes, unless the block raises."""
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
