"""What the tests of the service serve: random weights in CTranslate2, ready at once."""

import pytest
from interop.random_translator import make_translator

import keras_transformer as kt

pytest.importorskip("ctranslate2")

from keras_transformer.interop.ctranslate2_translator import CTranslate2Translator


@pytest.fixture(scope="session")
def engine(tmp_path_factory):
    """A translator with four hypotheses of each text."""
    translator = make_translator()
    processors = [kt.decoding.NoRepeatNgram(1), kt.decoding.MinimumLength(5)]
    search = kt.decoding.BeamSearch(4, num_hypotheses=4, processors=processors)
    folder = tmp_path_factory.mktemp("service") / "engine"
    translator.export(folder, search, 13, format="ctranslate2")
    return CTranslate2Translator(folder)
