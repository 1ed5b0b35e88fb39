"""What needs a package that is not installed says in one line what to install."""

import importlib
import re
import sys

import pytest
from interop.random_translator import make_translator

import keras_transformer as kt
from keras_transformer.checks import optional
from keras_transformer.cli.serve import serve
from keras_transformer.interop import checkpoint, hub
from keras_transformer.version import INSTALL

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


def import_of(module):
    def import_again(folder):
        sys.modules.pop(f"keras_transformer.{module}", None)
        importlib.import_module(f"keras_transformer.{module}")

    return import_again


def split_sentences(folder):
    (folder / "book").write_text("A dog.")
    kt.documents.translate(make_translator(), folder / "book", folder / "out", "text")


def import_service(folder):
    for name in [name for name in sys.modules if name.startswith(SERVICE)]:
        del sys.modules[name]
    importlib.import_module(SERVICE)


def start_service(folder):
    serve(models=[f"en:de={folder}"])


def read_zstd(folder):
    (folder / "text.zst").write_bytes(b"\x28\xb5\x2f\xfd")
    list(kt.text.read_lines(folder / "text.zst"))


def read_parquet(folder):
    (folder / "text.parquet").touch()
    list(kt.text.read_lines(kt.text.TextFile(folder / "text.parquet", "en")))


USES = [
    ("backports", "corpora", read_zstd),
    ("pyarrow", "corpora", read_parquet),
    ("sentencex", "documents", split_sentences),
    ("huggingface_hub", "hub", download),
    ("keras_hub", "keras-hub", import_of("interop.keras_hub")),
    ("ray", "ray", import_of("serving.ray_lines")),
    ("ctranslate2", "ctranslate2", import_of("interop.ctranslate2_translator")),
    ("safetensors", "hub", read_weights),
    ("safetensors", "hub", translator_as("hugging_face")),
    ("ctranslate2", "ctranslate2", translator_as("ctranslate2")),
    ("starlette", "serve", import_service),
    ("prometheus_client", "serve", import_service),
    ("py3langid", "serve", import_service),
    ("uvicorn", "serve", start_service),
    ("tf2onnx", "export", model_as("onnx")),
    ("openvino", "export", model_as("openvino")),
]


@pytest.mark.quick(
    "backports-corpora-read_zstd",
    "pyarrow-corpora-read_parquet",
    "huggingface_hub-hub-download",
    "keras_hub-keras-hub-import_again",
    "ray-ray-import_again",
    "safetensors-hub-read_weights",
    "safetensors-hub-<lambda>",
    "sentencex-documents-split_sentences",
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
    assert (needed, remedy) == (package, INSTALL.format(extra=extra))
    inputs = {"model.safetensors", "a.po", "book", "text.zst", "text.parquet"}
    assert {path.name for path in tmp_path.iterdir()} <= inputs


def test_an_installed_package_that_lacks_another_keeps_its_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "weather", None)
    needs_forecast = optional("forecast", extra="hub", purpose="A forecast")
    with pytest.raises(ModuleNotFoundError, match="weather") as caught, needs_forecast:
        import weather  # noqa: F401
    assert "pip install" not in str(caught.value)
