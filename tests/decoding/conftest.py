import pytest

from keras_transformer.decoding import search


@pytest.fixture(autouse=True)
def caches_of_few_entries_grow_too(monkeypatch):
    monkeypatch.setattr(search, "MIN_ENTRIES_OF_ALL", 0)
