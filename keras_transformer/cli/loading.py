"""Loading TensorFlow, without its log lines, and translators."""

import contextlib
import gc
import json
import os
import shutil
import sys
import tempfile
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

import typer
from ruamel.yaml import YAML

from keras_transformer.checks import needs_tensorflow
from keras_transformer.cli.options import SearchOptions, changed_search
from keras_transformer.storage import locked, remove_unfinished
from keras_transformer.text_files import checksum
from keras_transformer.version import __version__


def load_tensorflow(devices: bool = True, may_be_jax: bool = False) -> None:
    """Imports TensorFlow and Keras without the lines that they log.

    That takes seconds, so commands call it only after their arguments are checked:
    `--help` and errors of usage appear at once. With `devices` it initializes these
    too, which log when they are first used; a worker must first connect to the others.
    If the backend `may_be_jax`, TensorFlow only reads the text.
    """
    backend = os.environ.get("KERAS_BACKEND") or "tensorflow"
    if backend not in ("tensorflow", *["jax"] * may_be_jax):
        raise ValueError(
            "`KERAS_BACKEND` must be tensorflow in the shell, or jax for `train`. "
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
        if backend == "jax":
            tf.config.set_visible_devices([], "GPU")  # whose memory it would take
        # Tracebacks keep all frames: `errors` uses them to find whose error it is.
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
                f"{model} does not exist. Pass a run, a saved translator, or "
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


def load_engine(
    model: str,
    engine: str,
    options: SearchOptions,
    reason: str = "",
    name: str = "Engine",
    **hypotheses,
):
    """Returns a translator on an engine, its search, and the maximum length.

    A `reason` says why TensorFlow is needed; with `engine="auto"`, a line on standard
    error shows the choice. For CTranslate2 the translator is exported once, with the
    search and the length, which are then None.
    """
    check_models(model)
    translator, is_auto = None, engine == "auto"
    if is_auto and not reason:
        reason = _why_not_ctranslate2(model)
    if engine == "ctranslate2" or (is_auto and not reason):
        from keras_transformer.interop import ctranslate2_translator

        path = _export_path(model, options, hypotheses)
        if not path.is_dir():
            translator = load_translator(model)
            search = changed_search(translator.search, options, **hypotheses)
            try:
                _export(translator, search, options.max_length, path, model)
            except (OSError, ValueError) as error:
                if not is_auto:
                    raise
                reason = str(error).partition(". ")[0].removesuffix(".")
        if not reason:
            found = ctranslate2_translator.CTranslate2Translator(path)
            if not is_auto:
                return found, None, None
            if not found.is_random:
                typer.echo(f"{name}: CTranslate2.", err=True)
                return found, None, None
            reason = "CTranslate2 draws without a seed"
    if is_auto:
        typer.echo(f"{name}: TensorFlow ({reason}).", err=True)
    translator = translator or load_translator(model)
    search = changed_search(translator.search, options, **hypotheses)
    return translator, search, options.max_length


def _why_not_ctranslate2(model) -> str:
    """Returns why CTranslate2 is not chosen, regardless of the model, or `""`."""
    if find_spec("ctranslate2") is None:
        return "CTranslate2 is not installed"
    if "://" in model:
        return "CTranslate2 needs a folder"
    import ctranslate2

    has_gpu = ctranslate2.get_cuda_device_count() > 0
    return "CTranslate2 is for machines without a GPU" if has_gpu else ""


def _export_path(model, options, hypotheses) -> Path:
    """Returns where a model and its search are exported to for CTranslate2."""
    if "://" in model:
        raise ValueError(
            f"--engine ctranslate2 needs a folder. Received: {model}. Write one with: "
            f"keras-transformer convert {model} FOLDER"
        )
    folder = run_folder(model)
    files = [Path(model)] if folder != Path(model) else []
    for name in (".", "tokenizers") if files else (".", "translator"):
        files += sorted(x for x in (folder / name).glob("*") if x.is_file())
    # The logs of a run do not affect its translations.
    files = [x for x in files if x.suffix not in (".csv", ".md")]
    weights = checksum(files).removeprefix("crc32:")
    known = json.dumps([__version__, options, hypotheses])
    of = Path(model).stem if folder != Path(model) else "translator"
    name = f"{of}-{weights}-{sha256(known.encode()).hexdigest()[:8]}"
    return folder / "ctranslate2" / name


def _export(translator, search, max_length, path, model) -> None:
    """Exports a translator, and removes exports of weights that were replaced."""
    with locked(path.parent, waits=True):
        if not path.is_dir():  # another command may have written it meanwhile
            translator.export(path, search, max_length, format="ctranslate2")
            note = f"{model} was exported once for CTranslate2, to {path}."
            typer.echo(note, err=True)
        remove_unfinished(path.parent)
        of, weights, _ = path.name.rsplit("-", 2)
        for other in path.parent.glob(f"{of}-????????-*"):
            if not other.name.startswith(f"{of}-{weights}"):
                shutil.rmtree(other, ignore_errors=True)


def given_terms(glossary: Path | None, keep: list[str] | None):
    """Returns the `Terms` of the options, or None if neither is given."""
    if glossary is None and not keep:
        return None
    load_tensorflow()
    from keras_transformer.translator import Terms

    return Terms(glossary, keep or ())


def run_folder(model: str) -> Path:
    """Returns `MODEL`, or if it is a checkpoint, the folder of its run."""
    path = Path(model)
    is_checkpoint = path.suffix == ".keras" and path.is_file()
    return path.resolve().parent.parent if is_checkpoint else path


def languages_of_run(model: str) -> tuple[str, str] | None:
    """Returns the languages of `MODEL`'s recipe; None if it is not a run."""
    settings = run_folder(model) / "settings.yaml"
    if not settings.is_file():
        return None
    # Not as a recipe, whose modules need TensorFlow.
    data = YAML(typ="safe", pure=True).load(settings)["data"]
    return data["source"], data["target"]


@contextlib.contextmanager
def _not_importable(*packages):
    """Hides packages that Keras imports whenever they are installed.

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
    """Hides standard error, including output of C++, unless the block raises."""
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
