"""Pegasus, a family of summarizers with pre-norm.

Reference:
    [Zhang et al., 2020](https://arxiv.org/abs/1912.08777)
"""

from keras_transformer.interop.checkpoint import read_json, read_sentencepiece
from keras_transformer.interop.hugging_face import marian
from keras_transformer.interop.hugging_face.config import stack_arguments
from keras_transformer.layers import SinusoidalPositionalEncoding
from keras_transformer.text import VocabularyTokenizer


def transformer_arguments(config) -> dict:
    """Returns the arguments of the `Transformer` that equals a Pegasus model."""
    return {
        **stack_arguments(config, normalize_first=True),
        "source_vocabulary_size": config.take("vocab_size"),
        "positions": SinusoidalPositionalEncoding(layout="halves"),
        "output_bias": True,
    }


def tokenizers(folder, arguments, source_language=None, target_language=None):
    """Returns the tokenizer, for source and target, and no id that begins targets."""
    if source_language or target_language:
        raise ValueError(
            "A Pegasus model knows no languages. Received: "
            f"source_language={source_language!r}, target_language={target_language!r}."
        )
    if (folder / "source.spm").is_file():  # written by this package
        return marian.tokenizers(folder, arguments)
    settings = read_json(folder / "tokenizer_config.json", is_optional=True)
    offset = settings.get("offset", 103)
    model, (pad, end, unknown, *pieces) = read_sentencepiece(folder / "spiece.model")
    control = ["<mask_1>", "<mask_2>", *(f"<unk_{i}>" for i in range(2, offset))]
    table = [pad, end, *control, unknown, *pieces]
    tokenizer = VocabularyTokenizer(
        model,
        {piece: index for index, piece in enumerate(table)},
        pad=pad,
        start=pad,
        end=end,
        unknown=unknown,
        control=control,
    )
    return tokenizer, tokenizer, None
