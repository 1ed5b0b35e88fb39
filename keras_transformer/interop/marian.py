"""Models in Marian's own format, as OPUS-MT's archives hold them.

Such a folder holds decoder.yml, which names the weights (.npz) and the vocabularies:
.yml with the SentencePiece models source.spm and target.spm beside them, or .spm.
Marian has no padding: here it is an additional last id, whose vector is the zeros that
every translation begins with.

Reference:
    [Junczys-Dowmunt et al., 2018](https://arxiv.org/abs/1804.00344)
"""

import io
import re
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from keras_transformer.decoding import (
    BannedIds,
    BeamSearch,
    GreedySearch,
    PowerLengthPenalty,
)
from keras_transformer.interop.checkpoint import (
    as_float32,
    read_bytes,
    read_sentencepiece,
)
from keras_transformer.interop.config import Config
from keras_transformer.layers import SinusoidalPositionalEncoding
from keras_transformer.models import Transformer
from keras_transformer.text import VocabularyTokenizer

_YAML = YAML(typ="safe", pure=True)
NAME = "decoder.yml"  # marks a folder of Marian's
_CONFIG = "special:model.yml"  # an array of the weights' file
_MAX_SOURCE_LENGTH = 512  # subwords; Marian leaves this to its caller
_PAD, _UNKNOWN, _END = "<pad>", "<unk>", "</s>"
_ACTIVATIONS = {"relu": "relu", "swish": "silu"}
# Settings that must have this value if they are given.
_EXPECTED = {
    "type": "transformer",
    "input-types": [],
    "transformer-decoder-autoreg": "self-attention",
    "transformer-ffn-depth": 2,
    "transformer-postprocess-emb": "d",
}
# `preprocess`, `postprocess` and `postprocess-top`, and whether they mean pre-norm.
_ORDERS = {("n", "da", "n"): True, ("", "dan", ""): False}
# Settings of other types of models, or of training.
_WITHOUT_EFFECT = re.compile(
    "(dec|enc)-(cell|type)|bert-|char-|dim-rnn|factors-|skip|transformer-(aan-|dim-aan|"
    "depth-scaling|guided-alignment)|ulr-|version|lemma-dependency"
)
# Settings in decoder.yml of speed, files and lengths; `translate` has the lengths.
_WITHOUT_EFFECT_ON_SEARCH = re.compile(
    "models|vocabs|mini-batch|maxi-batch|max-length|workspace|relative-paths|"
    "cpu-threads|devices|log|quiet|seed|version"
)
NEVER = -1e4  # bias of ids that the file does not have: their probability is exactly 0
# From our path to the name in a file, applied in this order.
_RENAMES = (
    (r"^embedding/embeddings$", "Wemb"),
    (r"^source_embedding/embeddings$", "encoder_Wemb"),
    (r"^target_embedding/embeddings$", "decoder_Wemb"),
    (r"^output_bias/bias$", "decoder_ff_logit_out_b"),
    (r"/block_(\d+)/", lambda found: f"_l{int(found[1]) + 1}_"),
    (r"/final_norm/", "_top_ln_"),
    (r"self_attention_residual/norm/", "self_Wo_ln_"),
    (r"cross_attention_residual/norm/", "context_Wo_ln_"),
    (r"feed_forward_residual/norm/", "ffn_ffn_ln_"),
    (r"self_attention/", "self_"),
    (r"cross_attention/", "context_"),
    (r"feed_forward/", "ffn_"),
    (r"([qkvo])(uery|ey|alue|utput)/kernel$", r"W\1"),
    (r"([qkvo])(uery|ey|alue|utput)/bias$", r"b\1"),
    (r"widen/kernel$", "W1"),
    (r"widen/bias$", "b1"),
    (r"narrow/kernel$", "W2"),
    (r"narrow/bias$", "b2"),
    (r"gamma$", "scale"),
    (r"beta$", "bias"),
)


def read_transformer(folder: Path, **kwargs) -> Transformer:
    """Reads the model of a folder of Marian's, with other arguments if given."""
    return _read(folder, kwargs)[0]


def read_translator(
    folder: Path,
    source_language: str | None = None,
    target_language: str | None = None,
    **kwargs,
) -> dict:
    """Reads the arguments of a `Translator` by name.

    The languages are as in `language_prefix`. OPUS-MT's script normalises
    punctuation first; here texts are read as they are.
    """
    model, settings, (source, target) = _read(folder, kwargs)
    prefix = language_prefix(source, source_language, target_language)
    paths = _files(folder, settings, "vocabs", 2)

    def tokenizer(side, path, vocabulary, prefix):
        model_path = path if path.suffix == ".spm" else folder / f"{side}.spm"
        return VocabularyTokenizer(
            read_sentencepiece(model_path)[0],
            {**vocabulary, _PAD: model.pad_id},
            prefix=prefix,
            reads_language_codes=True,
        )

    return {
        "model": model,
        "source_tokenizer": tokenizer("source", paths[0], source, prefix),
        "target_tokenizer": tokenizer("target", paths[1], target, []),
        "max_source_length": _MAX_SOURCE_LENGTH,
        "search": _search(folder / NAME, settings, target[_UNKNOWN]),
    }


def _read(folder, kwargs):
    """The model, the settings in decoder.yml, and two vocabularies."""
    path = folder / NAME
    settings = _read_yaml(read_bytes(path), path)
    (weights_path,) = _files(folder, settings, "models", 1)
    vocabularies = [_read_vocabulary(x) for x in _files(folder, settings, "vocabs", 2)]
    weights = _read_npz(weights_path)
    if _CONFIG not in weights:
        raise ValueError(f"{weights_path} is not a model of Marian: no {_CONFIG!r}.")
    config = weights.pop(_CONFIG).tobytes().rstrip(b"\0")
    config = _read_yaml(config, f"{weights_path}, {_CONFIG!r},")
    arguments = _arguments(config, weights_path)
    # Marian reads as many subwords as its model has vectors.
    vocabularies = [
        {piece: index for piece, index in vocabulary.items() if index < size}
        for vocabulary, size in zip(vocabularies, config["dim-vocabs"], strict=True)
    ]
    ends = {vocabulary.get(_END) for vocabulary in vocabularies}
    special = [x.keys() & {_END, _UNKNOWN, _PAD} for x in vocabularies]
    if len(ends) > 1 or special != [{_END, _UNKNOWN}] * 2:
        raise ValueError(
            f"The vocabularies that {path} names must have {_UNKNOWN!r}, and {_END!r} "
            f"with the same id in both; but not {_PAD!r}: Marian has no padding."
        )
    arguments["end_id"] = ends.pop()
    model = Transformer(**{**arguments, **kwargs})
    _set_weights(model, weights, config["dim-vocabs"], weights_path)
    return model, settings, vocabularies


def _files(folder, settings, name, count):
    names = settings.get(name)
    if not isinstance(names, list) or len(names) != count:
        raise ValueError(
            f"{folder / NAME} must name {count} of {name!r}. Received: {names!r}."
        )
    return [folder / x for x in names]


def _arguments(config, path):
    """The arguments of a `Transformer`, except its `end_id`."""
    config = _config_of(config, _WITHOUT_EFFECT, path)
    take = config.take
    for name, value in _EXPECTED.items():
        config.expect(name, value)
    order = tuple(
        take(f"transformer-{x}", "")
        for x in ("preprocess", "postprocess", "postprocess-top")
    )
    if order not in _ORDERS:
        raise ValueError(
            f"{path} must have transformer-preprocess, -postprocess and "
            f"-postprocess-top as in {[*_ORDERS]}. Received: {order}."
        )
    activation = config.expect(
        "transformer-ffn-activation", *_ACTIVATIONS, default="swish"
    )
    width, inner_width = take("dim-emb"), take("transformer-dim-ffn")
    config.expect("transformer-decoder-dim-ffn", inner_width)
    config.expect("transformer-decoder-ffn-depth", 2)
    is_tied, is_all, is_source = (
        take(f"tied-embeddings{x}", False) for x in ("", "-all", "-src")
    )
    if not (is_tied or is_all):
        raise ValueError(f"{path} must have tied-embeddings or tied-embeddings-all.")
    sizes = take("dim-vocabs")
    is_shared = is_all or is_source
    if len(sizes) != 2 or (is_shared and sizes[0] != sizes[1]):
        raise ValueError(
            f"{path} must have two vocabularies, of one size if embeddings are shared. "
            f"Received: dim-vocabs={sizes}."
        )
    arguments = {
        "source_vocabulary_size": max(sizes) + 1,
        "target_vocabulary_size": None if is_shared else max(sizes) + 1,
        "num_layers": take("enc-depth"),
        "num_decoder_layers": take("dec-depth"),
        "hidden_dim": width,
        "num_heads": take("transformer-heads"),
        "intermediate_dim": inner_width,
        "activation": _ACTIVATIONS[activation],
        "normalize_first": _ORDERS[order],
        "positions": marian_positions(width),
        "epsilon": 1e-6,
        "output_bias": True,
        "pad_id": max(sizes),
        "start_id": max(sizes),
    }
    config.check_all_used()
    return arguments


def marian_positions(hidden_dim: int, first_position: int = 0):
    """Marian's positions. transformers and CTranslate2 read its models with others.

    The last of Marian's wavelengths is 10000, where in the paper the one after the last
    would be: `sinusoidalEmbeddingsFreq_` in its transformer.h. M2M100 has the same.
    """
    half = hidden_dim // 2
    return SinusoidalPositionalEncoding(
        10000 ** (half / (half - 1)), layout="halves", first_position=first_position
    )


def _search(path, settings, unknown_id):
    """The search that decoder.yml asks for, with Marian's defaults."""
    config = _config_of(settings, _WITHOUT_EFFECT_ON_SEARCH, path)
    width = config.take("beam-size", 12)
    penalty = PowerLengthPenalty(float(config.take("normalize", 0)))
    banned = [] if config.take("allow-unk", False) else [BannedIds([unknown_id])]
    config.check_all_used()
    if width == 1:
        return GreedySearch(processors=banned)
    return BeamSearch(width, penalty, processors=banned)


def _config_of(values, without_effect, path):
    """Returns the settings that are on and have an effect; each must be used."""
    on = {k: v for k, v in values.items() if v and not without_effect.match(k)}
    return Config(on, path)


def _set_weights(model, weights, sizes, path) -> None:
    """Sets all weights of a `Transformer`, whose padding is one more id.

    What is set is removed from `weights`. `sizes` are those of the two vocabularies.
    """
    suffix = "_pre" if model.settings["normalize_first"] else ""
    source, target = sizes
    sizes = {
        "Wemb": source,
        "encoder_Wemb": source,
        "decoder_Wemb": target,
        "decoder_ff_logit_out_b": target,
    }
    values = []
    for weight in model.weights:
        name = weight.path
        for pattern, replacement in _RENAMES:
            name = re.sub(pattern, replacement, name)
        if "_ln_" in name and "_top_" not in name:
            name += suffix
        if name not in weights:
            raise ValueError(f"{path} has no weight {name!r}.")
        array, (rows, *columns) = weights.pop(name), weight.shape
        if not columns:
            array = array.reshape(-1)  # Marian's have a first axis of 1.
        shape = (sizes.get(name, rows), *columns)
        if array.shape != shape:
            raise ValueError(
                f"{path}: the weight {name!r} must have the shape {shape}, as its "
                f"settings say. Received: {array.shape}."
            )
        missing = [(0, rows - len(array)), *((0, 0) for _ in columns)]
        value = 0 if columns else NEVER
        values.append(np.pad(array, missing, constant_values=value))
    if weights:
        raise ValueError(f"{path} has weights that are not understood: {[*weights]}.")
    for weight, array in zip(model.weights, values, strict=True):
        weight.assign(array)


def _read_yaml(data: bytes, path) -> dict:
    """Reads names and values; raises `ValueError` with the path if it holds others."""
    try:
        values = _YAML.load(data)
    except (YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path} is not YAML: {reason}.") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold names and values. Received: {values!r}.")
    return values


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    """Reads arrays by name: floats as float32, other dtypes as they are."""
    data = read_bytes(path)
    try:
        with np.load(io.BytesIO(data)) as file:
            arrays = dict(file.items())
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, AttributeError) as error:
        raise ValueError(f"{path} is damaged ({error}). Download it again.") from None
    return {name: as_float32(array) for name, array in arrays.items()}


def _read_vocabulary(path: Path) -> dict[str, int]:
    """Reads the ids of subwords: of a .yml file, or of a SentencePiece model, .spm."""
    if path.suffix == ".spm":
        _, pieces = read_sentencepiece(path)
        return {piece: index for index, piece in enumerate(pieces)}
    try:
        lines = read_bytes(path).decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error}.") from None
    vocabulary, long = {}, None
    # Line by line: YAML would read the subword no as a boolean.
    for number, line in enumerate(lines, 1):
        line = line.rstrip("\r")
        if line.startswith("? "):  # a long subword, its id on the next line
            long = line[2:]
        elif line:
            piece, _, index = line.rpartition(":")
            piece, long = piece if long is None else long, None
            try:
                is_quoted = piece[:1] in ("'", '"')
                piece = _YAML.load(piece) if is_quoted else piece
                vocabulary[piece] = int(index)
            except (ValueError, YAMLError):
                raise ValueError(
                    f"{path}, line {number}, is not a subword and its id: {line!r}."
                ) from None
    return vocabulary


def language_prefix(
    vocabulary: Iterable[str], source_language: str | None, target_language: str | None
) -> list[str]:
    """Returns the subword of the target language, which begins every source, if any.

    A multilingual model reads the language of the target from the text, as in
    `">>fra<< A man rides a bike."`; `target_language="fra"` puts it there.
    """
    if source_language is not None:
        raise ValueError(
            "A Marian model reads its source language from the text: leave out "
            f"`source_language`. Received: source_language={source_language!r}."
        )
    if target_language is None:
        return []
    prefix = f">>{target_language}<<"
    if prefix not in vocabulary:
        known = sorted(x[2:-2] for x in vocabulary if re.fullmatch(">>.*<<", x))
        raise ValueError(
            f"`target_language` must be one of {known}. "
            f"Received: target_language={target_language!r}."
        )
    return [prefix]
