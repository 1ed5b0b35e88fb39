from hypothesis import given
from hypothesis import strategies as st

from keras_transformer.text import SubwordTokenizer, encode
from keras_transformer.text.encoding import encode_head

LINES = ["a man rides a bike", "a dog rides a man", "a bike"]
TOKENIZER = SubwordTokenizer.train(LINES, vocabulary_size=25)


@given(st.text(max_size=50), st.integers(2, 20))
def test_short_texts_are_encoded_as_they_are(text, max_length):
    texts = [text.encode()]
    ids, is_cut = encode_head(texts, TOKENIZER, max_length)
    expected, expected_is_cut = encode(texts, TOKENIZER, max_length)
    assert ids.numpy().tolist() == expected.numpy().tolist()
    assert is_cut.numpy() == expected_is_cut.numpy()


@given(st.text(min_size=1), st.integers(2, 5))
def test_of_a_long_text_the_head_is_encoded(text, max_length):
    texts = [text.encode() * 999]
    ids, is_cut = encode_head(texts, TOKENIZER, max_length)
    assert ids.shape[1] <= max_length
    assert ids[0, -1] == TOKENIZER.end_id
    head = texts[0][: 64 * max_length]
    expected, _ = encode([head], TOKENIZER, max_length)
    assert ids.numpy().tolist() == expected.numpy().tolist()
    assert is_cut.numpy().all()
