"""What needs a package that is not installed says in one line what to install."""

import importlib
import re
import sys

import pytest
from interop.random_translator import make_translator

from keras_transformer.checks import optional
from keras_transformer.cli.serve import serve
from keras_transformer.interop import checkpoint, hub
from keras_transformer.version import DISTRIBUTION

SERVICE = "keras_transformer.service"
pytestmark = pytest.mark.needs_tensorflow


def download(folder):
    hub.preset_folder("hf://user/model")


def read_weights(folder):
    (folder / "model.safetensors").touch()
    checkpoint.read_weights(folder)


def translator_as(format):
    return lambda folder: make_translator().export(folder / "1", format=format)


def model_as(format):
    def export(folder):
        make_translator().model.export(folder / f"model.{format}", format=format)

    return export


def import_searches(folder):
    sys.modules.pop("keras_transformer.interop.keras_hub", None)
    importlib.import_module("keras_transformer.interop.keras_hub")


def import_service(folder):
    for name in [name for name in sys.modules if name.startswith(SERVICE)]:
        del sys.modules[name]
    importlib.import_module(SERVICE)


def start_service(folder):
    serve([f"en:de={folder}"])


USES = [
    ("huggingface_hub", "hub", download),
    ("keras_hub", "keras-hub", import_searches),
    ("safetensors", "hub", read_weights),
    ("safetensors", "hub", translator_as("hugging_face")),
    ("ctranslate2", "ctranslate2", translator_as("ctranslate2")),
    ("starlette", "serve", import_service),
    ("prometheus_client", "serve", import_service),
    ("uvicorn", "serve", start_service),
    ("tf2onnx", "export", model_as("onnx")),
    ("openvino", "export", model_as("openvino")),
]


@pytest.mark.quick(
    "huggingface_hub-hub-download",
    "keras_hub-keras-hub-import_searches",
    "safetensors-hub-read_weights",
    "safetensors-hub-<lambda>",
    "starlette-serve-import_service",
    "prometheus_client-serve-import_service",
    "uvicorn-serve-start_service",
)
@pytest.mark.parametrize(("package", "extra", "use"), USES)
def test_a_missing_package_is_named_with_its_extra(
    package, extra, use, tmp_path, monkeypatch
):
    for name in {*sys.modules, package}:
        if name.partition(".")[0] == package:
            monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError) as caught:
        use(tmp_path)
    pattern = r".+ needs the package (.+), which is not installed\. .* with: (.+)"
    needed, remedy = re.fullmatch(pattern, str(caught.value)).groups()
    assert (needed, remedy) == (package, f'pip install "{DISTRIBUTION}[{extra}]"')
    assert {path.name for path in tmp_path.iterdir()} <= {"model.safetensors"}


def test_an_installed_package_that_lacks_another_keeps_its_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "weather", None)
    needs_forecast = optional("forecast", extra="hub", purpose="A forecast")
    with pytest.raises(ModuleNotFoundError, match="weather") as caught, needs_forecast:
        import weather  # noqa: F401
    assert "pip install" not in str(caught.value)
