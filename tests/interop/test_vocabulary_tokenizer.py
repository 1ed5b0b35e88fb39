"""Tokenizers of other systems give the originals' ids and texts."""

import json

import pytest
import tensorflow as tf

from keras_transformer.interop.hugging_face import m2m_100, marian, pegasus
from keras_transformer.text import VocabularyTokenizer
from keras_transformer.text.vocabulary_tokenizer import load_tokenizer

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


def test_a_saved_tokenizer_is_the_same(read, tmp_path):
    source, _, answers = read("marian")
    source.save(tmp_path / "source.model")
    loaded = load_tokenizer(tmp_path / "source.model")
    assert loaded.equals(source)
    texts = answers["texts"]
    assert loaded(texts).to_list() == source(texts).to_list()
    (tmp_path / "source.vocabulary.json").write_text("{}")
    with pytest.raises(ValueError, match=r"source\.model cannot be loaded"):
        VocabularyTokenizer.load(tmp_path / "source.model")
    (tmp_path / "source.vocabulary.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"vocabulary\.json is missing"):
        VocabularyTokenizer.load(tmp_path / "source.model")


def test_a_saved_model_holds_the_table(read, tmp_path):
    source, target, answers = read("marian")
    module = tf.Module()
    module.source, module.target = source, target

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def there_and_back(texts):
        return target.detokenize(source(texts).to_tensor(source.pad_id))

    module.there_and_back = there_and_back
    texts = tf.constant(answers["texts"])
    expected = there_and_back(texts).numpy().tolist()
    tf.saved_model.save(module, tmp_path)
    found = tf.saved_model.load(tmp_path).there_and_back(texts)
    assert found.numpy().tolist() == expected


def test_sampled_subwords_spell_the_text(read):
    source, _, _ = read("marian_separate")
    texts = ["All human beings", "are born free"]
    ids = source.sample(texts, alpha=0.5, seed=3).to_list()
    assert ids != source(texts).to_list()
    spelled = ["".join(source.pieces(row)).replace("\u2581", " ") for row in ids]
    assert [text.strip() for text in spelled] == texts


def test_a_symbol_without_an_id_is_refused(read):
    source, _, _ = read("marian")
    with pytest.raises(ValueError, match="none for '<start>'"):
        VocabularyTokenizer(
            source.model_proto, {"<pad>": 0, "<unk>": 1}, "<pad>", start="<start>"
        )
