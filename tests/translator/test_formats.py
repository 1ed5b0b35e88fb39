import pytest
from serving.tiny_translator import make_translator

import keras_transformer as kt
from keras_transformer.serving import export_translator
from keras_transformer.translator import formats


def test_the_saved_model_is_a_format():
    assert formats.find_format("saved_model") is export_translator


def test_an_unknown_format_is_refused_with_the_known_ones(tmp_path):
    with pytest.raises(
        ValueError, match="must be one of .*'saved_model'. Received: format='onnx'"
    ):
        make_translator().export(tmp_path / "1", format="onnx")
    assert not list(tmp_path.iterdir())


def test_a_translator_is_exported_by_the_format_that_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(formats, "_EXPORTERS", {})  # so that "calls" is forgotten

    @formats.register_format("calls")
    def export(*arguments, jit_compile=False):
        return arguments, jit_compile

    translator, search = make_translator(), kt.decoding.GreedySearch()
    path = tmp_path / "1"
    arguments = translator, path, search, 7
    assert translator.export(path, search, 7, True, "calls") == (arguments, True)
