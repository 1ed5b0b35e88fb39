"""Text in and out: subword tokenizers, and `tf.data` pipelines of text."""

from keras_transformer.text.buckets import bucket_lengths
from keras_transformer.text.encoding import encode
from keras_transformer.text.masking import mask_tokens, masked_dataset
from keras_transformer.text.pipeline import parallel_dataset
from keras_transformer.text.prepared import prepare, prepared_dataset
from keras_transformer.text.tokenizer import SubwordTokenizer, Tokenizer
from keras_transformer.text.vocabulary_tokenizer import VocabularyTokenizer
from keras_transformer.text.windows import language_dataset
from keras_transformer.text.word_vectors import load_word_vectors, set_word_vectors
from keras_transformer.text_files import TextFile, check_parallel_files, read_lines

__all__ = [
    "SubwordTokenizer",
    "TextFile",
    "Tokenizer",
    "VocabularyTokenizer",
    "bucket_lengths",
    "check_parallel_files",
    "encode",
    "language_dataset",
    "load_word_vectors",
    "mask_tokens",
    "masked_dataset",
    "parallel_dataset",
    "prepare",
    "prepared_dataset",
    "read_lines",
    "set_word_vectors",
]
