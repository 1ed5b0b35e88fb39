"""Tokenizers of other systems give the originals' ids and texts."""

import json

import pytest

from keras_transformer.interop.hugging_face import m2m_100, marian, pegasus

# transformers 5 reads them with a library that keeps white space at the end of a text
# as a token, where SentencePiece, with which the models were trained, removes it.
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
            source, target, _ = m2m_100.tokenizers(folder, size, *codes)
        return source, target, answers

    return read_tokenizers


FAMILIES = ["marian", "marian_separate", "m2m_100", "nllb", "pegasus"]


@pytest.mark.quick("m2m_100", "nllb", "pegasus")
@pytest.mark.parametrize("name", FAMILIES)
def test_hostile_texts_have_the_ids_of_the_original(read, name):
    source, target, answers = read(name)
    for tokenizer, key in ((source, "ids"), (target, "target_ids")):
        rows = tokenizer(answers["texts"]).to_list()
        for text, row, expected in zip(
            answers["texts"], rows, answers[key], strict=True
        ):
            *ids, last = expected
            if name in KEEP_SPACES and tokenizer.pieces(ids[-1:]) == ["\u2581"]:
                ids.pop()
            assert ([*row], tokenizer.end_id) == (ids, last), text[:99]


@pytest.mark.parametrize("name", FAMILIES)
def test_ids_have_the_texts_of_the_original(read, name):
    _, target, answers = read(name)
    # The original reads on after an end token.
    rows = [[i for i in row if i != target.end_id] for row in answers["rows"]]
    texts = [text.decode() for text in target.detokenize(rows).numpy()]
    assert texts == [text.strip() for text in answers["row_texts"]]
