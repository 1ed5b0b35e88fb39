"""Tokenizers of other systems give the originals' ids and texts."""

import json

import pytest

from keras_transformer.interop.hugging_face import m2m_100, marian, pegasus

# transformers 5 reads them with a library that keeps white space at the ends of texts
# and in empty ones, and control characters, where SentencePiece, with which the models
# were trained, removes them.
KEEP_SPACES = {"nllb", "pegasus"}


@pytest.fixture(scope="module")
def read(originals):
    """Function from a name to tokenizers of source and target, and the answers."""

    def read_tokenizers(name):
        folder = originals / "tokenizers" / name
        answers = json.loads((folder / "answers.json").read_text("utf-8"))
        if name.startswith("marian"):
            size = len(json.loads((folder / "vocab.json").read_text("utf-8")))
            ids = {"pad_id": size - 1, "start_id": size - 1, "end_id": 0}
            source, target, _ = marian.tokenizers(folder, ids)
        elif name == "pegasus":
            source, target, _ = pegasus.tokenizers(folder, {})
        else:
            languages = json.loads((folder / "languages.json").read_text("utf-8"))
            added = [{"content": x, "id": i} for x, i in languages.items()]
            (folder / "tokenizer.json").write_text(json.dumps({"added_tokens": added}))
            size = {"source_vocabulary_size": max(languages.values()) + 2}
            codes = {"m2m_100": ("fr", "de"), "nllb": ("fra_Latn", "deu_Latn")}[name]
            source, _, _ = m2m_100.tokenizers(folder, size, *codes)
            # As text to learn from, a translation begins with its language.
            target, _, _ = m2m_100.tokenizers(folder, size, *codes[::-1])
        return source, target, answers

    return read_tokenizers


def same(name, texts, rows, expected):
    """Fails unless rows are as expected, where that is what SentencePiece gives."""
    for text, row, answer in zip(texts, rows, expected, strict=True):
        keeps = text != " ".join(text.split()) or not text.isprintable()
        if not (name in KEEP_SPACES and keeps):
            assert row == answer, text[:99]


FAMILIES = ["marian", "marian_separate", "m2m_100", "nllb", "pegasus"]


@pytest.mark.parametrize("name", FAMILIES)
def test_hostile_texts_have_the_ids_of_the_original(read, name):
    source, target, answers = read(name)
    for tokenizer, key in ((source, "ids"), (target, "target_ids")):
        rows = [
            [*row, tokenizer.end_id] for row in tokenizer(answers["texts"]).to_list()
        ]
        same(name, answers["texts"], rows, answers[key])


@pytest.mark.parametrize("name", FAMILIES)
def test_ids_have_the_texts_of_the_original(read, name):
    _, target, answers = read(name)
    # The original reads on after an end symbol.
    rows = [[i for i in row if i != target.end_id] for row in answers["rows"]]
    texts = [text.decode() for text in target.detokenize(rows).numpy()]
    same(name, answers["row_texts"], texts, answers["row_texts"])
