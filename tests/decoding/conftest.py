import pytest

from keras_transformer.decoding import cached_model


@pytest.fixture(autouse=True)
def caches_of_few_entries_grow_too(monkeypatch):
    monkeypatch.setattr(cached_model, "MAX_ENTRIES_OF_ONE_LENGTH", 0)
