import numpy as np
import pytest

hub = pytest.importorskip("keras_hub")
tf = pytest.importorskip("tensorflow")

from hub_models import bart, gpt2, t5  # noqa: E402
from serving.prediction_log import read_requests  # noqa: E402

import keras_transformer as kt  # noqa: E402
from keras_transformer.interop.keras_hub import model_inputs  # noqa: E402
from keras_transformer.interop.keras_hub_tokenizer import HubTokenizer  # noqa: E402

WORDS = ["[PAD]", "[UNK]", "[START]", "[END]", "a", "man", "ride", "##s", "dog"]
TEXTS = ["a man rides a dog", "", "man"]


def word_pieces():
    words = hub.tokenizers.WordPieceTokenizer(WORDS)
    return HubTokenizer(words, "[PAD]", "[START]", "[END]"), TEXTS


def byte_pairs():
    return HubTokenizer(bart().preprocessor.tokenizer), ["a b", "", " d d"]


def characters():
    return HubTokenizer(t5().preprocessor.tokenizer), ["a b c", "", "d"]


def small_model(tokenizer):
    ids = {name: getattr(tokenizer, name) for name in ("pad_id", "start_id", "end_id")}
    sizes = {"num_layers": 1, "hidden_dim": 8, "num_heads": 2, "intermediate_dim": 16}
    return kt.models.Transformer(tokenizer.vocabulary_size, **sizes, **ids)


@pytest.mark.quick("word_pieces")
@pytest.mark.parametrize("make", [word_pieces, byte_pairs, characters])
def test_ids_are_those_of_keras_hub_and_texts_come_back(make):
    tokenizer, texts = make()
    ids = tokenizer(texts)
    expected = [list(tokenizer.tokenizer.tokenize([text])[0]) for text in texts]
    assert ids.to_list() == expected
    rows = [[tokenizer.start_id, *row, tokenizer.end_id, 5] for row in ids.to_list()]
    found = [text.decode() for text in tokenizer.detokenize(rows).numpy()]
    assert found == texts


@pytest.mark.slow
@pytest.mark.parametrize("make", [word_pieces, byte_pairs])
def test_a_translator_translates_scores_and_is_exported(make, tmp_path):
    tokenizer, texts = make()
    translator = kt.Translator(small_model(tokenizer), tokenizer)
    search = kt.decoding.BeamSearch(3, num_hypotheses=2)
    found = translator.translate_n_best(texts, search, max_length=5)
    assert [len(each) for each in found] == [2, 2, 2]
    assert np.isfinite(
        [x.log_probability for x in translator.score(texts, texts)]
    ).all()
    path = translator.export(tmp_path / "1", max_length=5)
    served = tf.saved_model.load(path).signatures
    warm = {request.model_spec.signature_name for request in read_requests(path)}
    assert warm == set(served)
    texts_found = served["serving_default"](tf.constant(texts))["translation"].numpy()
    assert [x.decode() for x in texts_found] == translator.translate(
        texts, max_length=5
    )


@pytest.mark.quick("word_pieces")
@pytest.mark.parametrize("make", [word_pieces, byte_pairs])
def test_only_unknown_words_are_flagged(make):
    tokenizer, (text, *_) = make()
    translator = kt.Translator(small_model(tokenizer), tokenizer)
    strange = "\u2603" if make is word_pieces else "b"
    found = translator.translate_n_best([text, text[:1], strange], max_length=5)
    flagged = ["unknown words" in one.flags for (one,) in found]
    assert flagged == [False, False, make is word_pieces]


@pytest.mark.slow
@pytest.mark.parametrize("make", [gpt2, bart])
def test_a_preprocessor_feeds_our_models(make):
    preprocessor = make().preprocessor
    texts = ["a b c", "d"]
    if make is bart:
        texts = {"encoder_text": texts, "decoder_text": texts}
        model = small_model(HubTokenizer(preprocessor.tokenizer))
    else:
        model = kt.models.LanguageModel(10, 1, 8, 2, 16, pad_id=9)
    dataset = tf.data.Dataset.from_tensor_slices(texts).batch(2).map(preprocessor)
    dataset = dataset.map(lambda x, labels, weights: (model_inputs(x), labels, weights))
    model.compile("adam", kt.training.TokenCrossentropy(pad_id=-1))
    assert np.isfinite(model.evaluate(dataset, verbose=0))


def test_what_a_tokenizer_lacks_is_said(tmp_path):
    words = hub.tokenizers.WordPieceTokenizer(WORDS)
    with pytest.raises(ValueError, match="`pad` must be a token .* Received: pad=None"):
        HubTokenizer(words)
    with pytest.raises(ValueError, match="`pad` must be a token .* GPT2Tokenizer"):
        HubTokenizer(gpt2().preprocessor.tokenizer)
    with pytest.raises(ValueError, match="`pad` must be another token than `end`"):
        HubTokenizer(words, pad="[END]", start="[START]", end="[END]")
    tokenizer, _ = word_pieces()
    with pytest.raises(ValueError, match="cannot be saved"):
        kt.Translator(small_model(tokenizer), tokenizer).save(tmp_path / "translator")
    with pytest.raises(ValueError, match="`sampling` must be None"):
        tokenizer.sample(["a"])
    translator = kt.Translator(small_model(tokenizer), tokenizer)
    for use in (
        lambda: translator.align(["a man"], ["man"]),
        lambda: kt.translator.translate_markup(translator, ["a <b>man</b>"]),
        lambda: translator.translate(["a man"], terms=kt.translator.Terms()),
    ):
        with pytest.raises(
            ValueError, match="not possible with (HubTok|a tokenizer of Ker)"
        ):
            use()
