"""The public interface is annotated, and what mypy reads of it is what users get.

Scalars and whatever else is plain Python have annotations. Tensors have none: NumPy's
arrays, TensorFlow's tensors and JAX's are all taken. Their docstrings say the shapes.
"""

import importlib
import inspect
import re
from pathlib import Path

import keras
import pytest
from mypy import api as mypy

import keras_transformer as kt

ROOT = Path(__file__).parents[1]
ROOMS = sorted(set(kt.__all__) - {"Translator", "__version__"})
# Keras's own methods, which subclasses override, have no annotations in Keras.
KERAS = (
    keras.callbacks.Callback,
    keras.Loss,
    keras.Model,
    keras.metrics.Metric,
    keras.optimizers.Optimizer,
    keras.optimizers.schedules.LearningRateSchedule,
)
KERAS_METHODS = {name for base in KERAS for name in dir(base)} - {"__init__"}
# What methods call the tensors, and the structures of tensors, that searches and layers
# hand to each other.
TENSORS = {
    *("cache", "frequencies", "hypotheses", "ids", "index", "inputs", "keys", "kept"),
    *("key_positions", "largest_logit", "length", "lengths", "logits", "logits_of"),
    *("context", "mask", "memory", "memory_mask", "next_tokens", "outputs"),
    "positions",
    *("query_positions", "random_numbers", "segment_ids", "shape", "source_ids"),
    *("start_index", "states", "table", "target", "text", "texts", "token_ids"),
    *("tokens", "training", "values", "visible", "y_pred", "y_true"),
}
NOT_PLAIN = (
    r"[Tt]ensors?\b|[Aa]rrays?\b|of (the )?shape|`\(batch|cache|states|`keras\.|`tf\."
)


def public_callables():
    """Yields the name, the function and the docstring of all that is public."""
    for room in ROOMS:
        module = importlib.import_module(f"keras_transformer.{room}")
        for name in module.__all__:
            found = getattr(module, name)
            where = f"{room}.{name}"
            if inspect.isfunction(found):
                yield where, found, inspect.getdoc(found)
            elif inspect.isclass(found):
                yield from methods(where, found)


def methods(where, owner):
    for name in dir(owner):
        found = getattr(owner, name)
        function = inspect.unwrap(getattr(found, "__func__", found))
        module = getattr(function, "__module__", None) or ""
        if not inspect.isfunction(function) or not module.startswith(kt.__name__):
            continue
        if name == "__init__":
            yield where, function, inspect.getdoc(owner)
        elif not name.startswith("_") and name not in KERAS_METHODS:
            yield f"{where}.{name}", function, inspect.getdoc(found)


def described(docstring, name):
    """Returns what a docstring says of an argument, or of "Returns"."""
    pattern = rf"^( *)(?:\w+, )*{name}(?:, \w+)*:(.*(?:\n(?:\1 +.*)?)*)"
    match = re.search(pattern, docstring or "", re.MULTILINE)
    return match[2] if match else ""


each_callable = pytest.mark.parametrize(
    ("function", "docstring"),
    [pytest.param(*rest, id=name) for name, *rest in public_callables()],
)


@each_callable
def test_arguments_that_are_plain_python_are_annotated(function, docstring):
    parameters = inspect.signature(function).parameters
    is_method = "self" in parameters and function.__name__ != "__init__"
    # A model is whatever offers what is asked of it.
    known = ["self", "cls", "model", *(TENSORS if is_method else [])]
    stars = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    missing = {
        name
        for name, parameter in parameters.items()
        if parameter.annotation is parameter.empty
        and parameter.kind not in stars
        and name not in known
        and not re.search(NOT_PLAIN, described(docstring, name))
    }
    assert not missing


@each_callable
def test_results_that_are_plain_python_are_annotated(function, docstring):
    found = described(docstring, "Returns")
    if function.__name__ != "__init__" and found:
        is_annotated = (
            inspect.signature(function).return_annotation is not inspect._empty
        )
        assert is_annotated or re.search(NOT_PLAIN, found), found


USER = """
import keras_transformer as kt

reveal_type(kt.Translator.load("folder").translate(["text"]))
reveal_type(kt.models.Transformer.from_preset("tiny", 17).generate([[5]]))
reveal_type(kt.text.SubwordTokenizer.train(["text"], vocabulary_size=17))
kt.decoding.BeamSearch("wide")
"""


def test_a_type_checker_reads_what_users_get(tmp_path):
    (tmp_path / "user.py").write_text(USER)
    settings = ["--config-file", str(ROOT / "pyproject.toml")]
    cache = ["--cache-dir", str(ROOT / ".mypy_cache")]
    stdout, _, _ = mypy.run([*settings, *cache, str(tmp_path / "user.py")])
    revealed = re.findall(r'Revealed type is "(.*)"', stdout)
    assert [re.sub(r"(\w+\.)+", "", name) for name in revealed] == [
        "list[str]",
        "tuple[Any, Any, fallback=Hypotheses]",
        "SubwordTokenizer",
    ]
    (error,) = re.findall(r"error: (.*)", stdout)
    assert error.startswith('Argument 1 to "BeamSearch" has incompatible type "str"')
