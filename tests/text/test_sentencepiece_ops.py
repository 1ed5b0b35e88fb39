import keras
import pytest
import tensorflow as tf
import tensorflow_text

from keras_transformer.text.sentencepiece_ops import SentencePieceModel

TEXTS = ["kolu ba", "", "muri zu7"]


def test_ops_do_what_those_of_tensorflow_text_do(source_tokenizer):
    proto = source_tokenizer.model_proto
    ours, theirs = (
        SentencePieceModel(proto),
        tensorflow_text.SentencepieceTokenizer(proto),
    )
    ids = ours.tokenize(tf.constant(TEXTS))
    expected = theirs.tokenize(tf.constant(TEXTS))
    assert ids.dtype == expected.dtype == tf.int32
    assert ids.to_list() == expected.to_list()
    found = ours.detokenize(ids).numpy().tolist()
    assert found == theirs.detokenize(expected).numpy().tolist()


def test_tensorflow_text_still_loses_its_model_when_a_seed_is_set(source_tokenizer):
    """When this fails, use the public class and remove the private import."""
    proto = source_tokenizer.model_proto
    ours, theirs = (
        SentencePieceModel(proto),
        tensorflow_text.SentencepieceTokenizer(proto),
    )
    texts = tf.constant(TEXTS)
    expected = theirs.tokenize(texts).to_list()

    keras.utils.set_random_seed(1729)

    assert ours.tokenize(texts).to_list() == expected
    with pytest.raises(tf.errors.NotFoundError):
        theirs.tokenize(texts)
