"""Text in and out: subword tokenizers, and `tf.data` pipelines of parallel text."""

from keras_transformer.text.buckets import bucket_lengths
from keras_transformer.text.files import check_parallel_files, read_lines
from keras_transformer.text.pipeline import encode, parallel_dataset
from keras_transformer.text.tokenizer import SubwordTokenizer

__all__ = [
    "SubwordTokenizer",
    "bucket_lengths",
    "check_parallel_files",
    "encode",
    "parallel_dataset",
    "read_lines",
]
