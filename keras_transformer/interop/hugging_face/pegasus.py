"""Pegasus, which summarises; its networks have the pre-norm of later models.

Reference:
    [Zhang et al., 2020](https://arxiv.org/abs/1912.08777)
"""

from keras_transformer.interop.checkpoint import read_bytes, read_json
from keras_transformer.interop.hugging_face import marian
from keras_transformer.interop.hugging_face.config import stack_arguments
from keras_transformer.layers import SinusoidalPositionalEncoding
from keras_transformer.text import VocabularyTokenizer
from keras_transformer.text.vocabulary_tokenizer import pieces_of_model

NAME = "pegasus"


def transformer_arguments(config) -> dict:
    """Returns the arguments of a `Transformer` with the numbers of Pegasus."""
    size = config.take("vocab_size")
    for name in ("normalize_before", "add_final_layer_norm", "normalize_embedding"):
        config.expect(name, name != "normalize_embedding")
    config.expect("static_position_embeddings", True)
    config.expect("add_bias_logits", False)
    config.expect("force_bos_token_to_be_generated", False)
    config.take("bos_token_id", None)
    config.take("max_position_embeddings", None)
    return {
        **stack_arguments(config),
        "source_vocabulary_size": size,
        "normalize_first": True,
        "positions": SinusoidalPositionalEncoding(layout="halves"),
        "output_bias": True,
    }


complete_weights = marian.complete_weights


def tokenizers(folder, arguments, source_language=None, target_language=None):
    """Returns the tokenizer, for source and target, and no id that begins targets."""
    if source_language or target_language:
        raise ValueError(
            "A Pegasus model knows no languages. Received: "
            f"source_language={source_language!r}, target_language={target_language!r}."
        )
    if (folder / "source.spm").is_file():  # written by this package
        return marian.tokenizers(folder, arguments)
    settings = folder / "tokenizer_config.json"
    offset = read_json(settings).get("offset", 103) if settings.is_file() else 103
    model = read_bytes(folder / "spiece.model")
    pad, end, *pieces = pieces_of_model(model)
    control = ["<mask_1>", "<mask_2>", *(f"<unk_{i}>" for i in range(2, offset))]
    unknown, *pieces = pieces
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
