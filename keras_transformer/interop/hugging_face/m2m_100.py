"""M2M100 and NLLB, translators between one or two hundred languages.

Reference:
    [Fan et al., 2020](https://arxiv.org/abs/2010.11125);
    [NLLB Team, 2022](https://arxiv.org/abs/2207.04672)
"""

from keras_transformer.interop.checkpoint import read_json, read_sentencepiece
from keras_transformer.interop.hugging_face.config import stack_arguments
from keras_transformer.layers import SinusoidalPositionalEncoding
from keras_transformer.text import VocabularyTokenizer

_FIRST = ["<s>", "<pad>", "</s>", "<unk>"]


def transformer_arguments(config) -> dict:
    """Returns the arguments of the `Transformer` that equals M2M100 or NLLB."""
    arguments = stack_arguments(config, normalize_first=True)
    if arguments["pad_id"] != 1:
        raise ValueError(
            "M2M100 counts positions from the id of the padding, 1. Received: "
            f"pad_token_id={arguments['pad_id']}."
        )
    # The last wavelength is 10000; in the paper the one after the last would be.
    half = arguments["hidden_dim"] // 2
    return {
        **arguments,
        "source_vocabulary_size": config.take("vocab_size"),
        "positions": SinusoidalPositionalEncoding(
            10000 ** (half / (half - 1)), layout="halves", first_position=2
        ),
    }


def tokenizers(folder, arguments, source_language=None, target_language=None):
    """Returns the tokenizers of source and target, and the id that begins targets."""
    model, pieces = read_sentencepiece(folder / "sentencepiece.bpe.model")
    if (folder / "vocab.json").is_file():
        table = read_json(folder / "vocab.json")
    else:  # NLLB
        pieces = [*_FIRST, *pieces[3:]]
        table = {piece: index for index, piece in enumerate(pieces)}
    languages = _language_tokens(folder, len(table))
    table |= languages
    codes = {x.strip("_"): x for x in languages if x != "<mask>"}
    settings = read_json(folder / "tokenizer_config.json", is_optional=True)
    chosen = {}
    for side, given in (("source", source_language), ("target", target_language)):
        code = given or settings.get({"source": "src_lang", "target": "tgt_lang"}[side])
        if code not in codes:
            raise ValueError(
                f"`{side}_language` must be one of {sorted(codes)}. Received: "
                f"{side}_language={code!r}."
            )
        chosen[side] = codes[code]
    free = {*range(arguments["source_vocabulary_size"])} - {*table.values()}
    unused = {f"madeupword{i}": index for i, index in enumerate(sorted(free))}
    table |= unused
    control = ["<s>", *languages, *unused]
    both = (
        VocabularyTokenizer(model, table, start="</s>", prefix=[token], control=control)
        for token in chosen.values()
    )
    return *both, table[chosen["target"]]


def _language_tokens(folder, first_id) -> dict:
    """The ids of languages and of the mask, which come after the subwords."""
    added = read_json(folder / "tokenizer.json", is_optional=True).get("added_tokens")
    ids = {x["content"]: x["id"] for x in added or () if x["content"] not in _FIRST}
    if ids:
        return ids
    is_nllb = not (folder / "vocab.json").is_file()
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        settings = read_json(folder / name, is_optional=True)
        for key in ("extra_special_tokens", "additional_special_tokens"):
            if names := settings.get(key):
                names = [x if isinstance(x, str) else x["content"] for x in names]
                names = [x for x in names if x != "<mask>"] + ["<mask>"] * is_nllb
                return {name: first_id + i for i, name in enumerate(names)}
    raise FileNotFoundError(
        f"{folder} does not say which languages it has: there is no tokenizer.json, "
        "special_tokens_map.json or tokenizer_config.json that lists them. Download "
        "the checkpoint again."
    )
