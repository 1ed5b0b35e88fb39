"""Exported models give Keras's numbers in other runtimes, at any batch and length."""

import functools
import re
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer.kernels import attention
from keras_transformer.version import INSTALL

pytestmark = [
    pytest.mark.needs_tensorflow,
    # Keras asks NumPy for a name that it may get back.
    pytest.mark.filterwarnings("ignore:.*`np.object`:FutureWarning"),
]
PAGE = Path(__file__).parents[2] / "docs" / "exports.md"
PIP = INSTALL.format(extra="export")
SETTINGS = {"num_layers": 1, "hidden_dim": 8, "num_heads": 2, "intermediate_dim": 11}
SHAPES = [(3, 7), (1, 1), (2, 13)]


def learned():
    return kt.layers.LearnedPositionalEncoding(max_length=13)


MODELS = {
    "Transformer": lambda: kt.models.Transformer(17, **SETTINGS),
    "LanguageModel": lambda: kt.models.LanguageModel(
        17, positions="rotary", **SETTINGS
    ),
    "MaskedLanguageModel": lambda: kt.models.MaskedLanguageModel(
        17, positions=learned(), **SETTINGS
    ),
    "TextClassifier": lambda: kt.models.TextClassifier(
        17, 5, positions="linear_bias", **SETTINGS
    ),
    "TextEncoder": lambda: kt.models.TextEncoder(
        17, normalize_first=True, activation="relu", **SETTINGS
    ),
    "VisionTransformer": lambda: kt.models.VisionTransformer(
        (4, 6, 3), 2, 5, **SETTINGS
    ),
}


def onnx_runtime(path):
    session = pytest.importorskip("onnxruntime", reason=PIP).InferenceSession(path)
    return lambda **inputs: session.run(None, inputs)[0]


def litert(path):
    interpreter = pytest.importorskip("ai_edge_litert.interpreter", reason=PIP)
    model = interpreter.Interpreter(str(path))

    def run(**inputs):
        # One for each shape of the inputs.
        (outputs,) = model.get_signature_runner("serving_default")(**inputs).values()
        return outputs

    return run


def openvino(path):
    core = pytest.importorskip("openvino", reason=PIP).Core()
    model = core.compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return lambda **inputs: model(inputs)[0]


RUNTIMES = {
    "onnx": ("model.onnx", "tf2onnx", onnx_runtime),
    "litert": ("model.tflite", "tensorflow", litert),
    "openvino": ("model.xml", "openvino", openvino),
}
needs_python_3_11 = pytest.mark.skipif(
    sys.version_info < (3, 11),
    reason="Keras 3.12, the last for Python 3.10, does not export to LiteRT.",
)


def cases():
    """Every model in every format; OpenVINO's converter takes seconds for each."""
    for format in RUNTIMES:
        for name in MODELS:
            marks = [needs_python_3_11] if format == "litert" else []
            if format == "openvino" and name.startswith(("Text", "Masked")):
                marks = [pytest.mark.slow]  # the encoder of `Transformer`
            yield pytest.param(format, name, marks=marks)


def exported(export, format, folder):
    """Exports a model and returns a function that runs it."""
    name, converter, load = RUNTIMES[format]
    pytest.importorskip(converter, reason=PIP)
    export(folder / name, format=format, verbose=False)
    return load(folder / name)


@pytest.fixture(autouse=True)
def most_inputs_are_long(monkeypatch):
    """Keras computes attention by blocks, except for a length of one."""
    monkeypatch.setattr(attention, "MAX_UNBLOCKED_LENGTH", 5)


def draw_weights(model):
    """Draws weights that all matter."""
    draw = np.random.default_rng(1)
    for weight in model.weights:
        mean = float(weight.path.endswith("gamma"))
        weight.assign(draw.normal(mean, 0.3, weight.shape))
    return model


@functools.cache
def small_model(name):
    return draw_weights(MODELS[name]())


def inputs_for(model, batch, length):
    """Inputs by name; rows of ids end in padding, and one is nothing else."""
    draw = np.random.default_rng(length)
    inputs = {}
    for tensor in model.inputs:
        if len(tensor.shape) == 4:
            inputs[tensor.name] = draw.normal(size=(batch, *tensor.shape[1:]))
        else:
            ids = draw.integers(4, 17, (batch, length))
            lengths = draw.integers(1, length + 1, (batch, 1))
            lengths[2:] = 0
            ids = np.where(np.arange(length) < lengths, ids, 0)
            inputs[tensor.name] = ids
            length += 2  # of the target, which is longer than the source
        inputs[tensor.name] = inputs[tensor.name].astype(tensor.dtype)
    return inputs


@pytest.mark.slow
@pytest.mark.parametrize(("format", "name"), list(cases()))
def test_an_export_gives_the_live_numbers(format, name, tmp_path):
    model = small_model(name)
    run = exported(model.export, format, tmp_path)
    for batch, length in SHAPES:
        inputs = inputs_for(model, batch, length)
        live = model(inputs if len(inputs) > 1 else next(iter(inputs.values())))
        np.testing.assert_allclose(run(**inputs), live, 0, 1e-5)


@pytest.mark.slow
@pytest.mark.usefixtures("few_objects_to_collect")
def test_a_quantised_model_is_exported_or_refused(tmp_path):
    model = draw_weights(MODELS["LanguageModel"]())
    model.quantize("int8")
    with pytest.raises(ValueError, match=r"LiteRT has no products of int8 .* or quant"):
        model.export(tmp_path / "model.tflite", format="litert")
    assert not list(tmp_path.iterdir())
    run = exported(model.export, "onnx", tmp_path)
    inputs = inputs_for(model, 3, 7)
    live = model(next(iter(inputs.values())))
    np.testing.assert_allclose(run(**inputs), live, 0, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "format", ["onnx", pytest.param("litert", marks=needs_python_3_11)]
)
@pytest.mark.parametrize("max_length", [1024, 12], ids=["whole", "by blocks"])
def test_a_model_of_ones_own_is_exported_by_keras_alone(
    format, max_length, tmp_path, monkeypatch
):
    monkeypatch.setattr(attention, "MAX_UNBLOCKED_LENGTH", max_length)
    monkeypatch.setattr(attention, "BLOCK_LENGTH", 5)
    inputs = keras.Input((None, 8), name="states")
    encoder = kt.layers.Encoder(1, 2, 11, positions="rotary")
    model = draw_weights(keras.Model(inputs, encoder(inputs)))
    model(np.zeros((1, 2, 8)))  # Keras exports nothing to ONNX that was never called
    run = exported(model.export, format, tmp_path)
    for shape in ((3, 7, 8), (1, 1, 8), (2, 19, 8)):
        states = np.random.default_rng(3).normal(size=shape).astype("float32")
        np.testing.assert_allclose(run(states=states), model(states), 0, 1e-5)


@pytest.mark.slow
@needs_python_3_11
def test_the_examples_of_the_page_run(tmp_path, monkeypatch):
    for module in ("ai_edge_litert", "onnxruntime", "openvino", "tf2onnx"):
        pytest.importorskip(module, reason=PIP)
    monkeypatch.chdir(tmp_path)
    text, _, _ = PAGE.read_text("utf-8").partition("## Translators")
    first, *examples = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.M)
    names = {}
    exec(first, names)
    live = names["model"](names["ids"])
    for example in examples:
        names["logits"] = None
        exec(example, names)
        np.testing.assert_allclose(names["logits"], live, 0, 1e-5)
