"""Models in Marian's own format, such as those in OPUS-MT's archives.

Such a folder holds decoder.yml, which names the weights (.npz) and the vocabularies:
.yml with the SentencePiece models source.spm and target.spm beside them, or .spm.
Marian has no padding: here it is an additional last id, whose vector is the zeros that
every translation begins with.

Reference:
    [Junczys-Dowmunt et al., 2018](https://arxiv.org/abs/1804.00344)
"""

import re
from pathlib import Path

from keras_transformer.decoding import (
    BannedIds,
    BeamSearch,
    GreedySearch,
    PowerLengthPenalty,
)
from keras_transformer.interop.checkpoint import read_bytes, read_sentencepiece
from keras_transformer.interop.marian_files import (
    language_prefix,
    read_npz,
    read_vocabulary,
    read_yaml,
)
from keras_transformer.interop.marian_weights import set_weights
from keras_transformer.layers import SinusoidalPositionalEncoding
from keras_transformer.models import Transformer
from keras_transformer.text.vocabulary_tokenizer import VocabularyTokenizer

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
    "mini-batch|maxi-batch|max-length|workspace|relative-paths|cpu-threads|devices|"
    "log|quiet|seed|version"
)


def read_transformer(folder: Path, **kwargs) -> Transformer:
    """Reads the model of a folder of Marian's, with other arguments if any are given.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file is damaged, or holds a weight or a setting that is not
            understood.
    """
    return _read(Path(folder), kwargs)[0]


def read_translator(
    folder: Path,
    source_language: str | None = None,
    target_language: str | None = None,
    **kwargs,
) -> dict:
    """Reads the arguments of a `Translator` by name; raises as `read_transformer`.

    The languages are those of `language_prefix`. OPUS-MT's script normalises
    punctuation first; here texts are read as they are.
    """
    folder = Path(folder)
    model, settings, (source, target) = _read(folder, kwargs)
    prefix = language_prefix(source, source_language, target_language)
    paths = _files(folder, settings, "vocabs", 2)

    def tokenizer(side, path, vocabulary, prefix):
        is_model = path.suffix == ".spm"
        model_path = path if is_model else folder / f"{side}.spm"
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
    settings = read_yaml(read_bytes(path), path)
    (weights_path,) = _files(folder, settings, "models", 1)
    vocabularies = [read_vocabulary(x) for x in _files(folder, settings, "vocabs", 2)]
    weights = read_npz(weights_path)
    if _CONFIG not in weights:
        raise ValueError(f"{weights_path} is not a model of Marian: no {_CONFIG!r}.")
    config = weights.pop(_CONFIG).tobytes().rstrip(b"\0")
    config = read_yaml(config, f"{weights_path}, {_CONFIG!r},")
    arguments = _arguments(config, weights_path)
    # Marian reads as many subwords as its model has vectors.
    vocabularies = [
        {piece: index for piece, index in vocabulary.items() if index < size}
        for vocabulary, size in zip(vocabularies, config["dim-vocabs"], strict=True)
    ]
    ends = {vocabulary.get(_END) for vocabulary in vocabularies}
    if len(ends) > 1 or not all(x.keys() >= {_END, _UNKNOWN} for x in vocabularies):
        raise ValueError(
            f"The vocabularies that {path} names must have {_UNKNOWN!r}, and {_END!r} "
            "with the same id in both."
        )
    if any(_PAD in vocabulary for vocabulary in vocabularies):
        raise ValueError(
            f"The vocabularies that {path} names must not have {_PAD!r}: Marian has no "
            "padding."
        )
    arguments["end_id"] = ends.pop()
    model = Transformer(**{**arguments, **kwargs})
    normalize_first = arguments["normalize_first"]
    set_weights(model, weights, config["dim-vocabs"], normalize_first, weights_path)
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
    config = dict(config)

    def take(name, *default):
        if name not in config and not default:
            raise ValueError(f"{path} does not say {name!r}.")
        return config.pop(name, *default)

    def expect(name, value, *allowed):
        if value not in allowed:
            raise ValueError(
                f"{path} must have {name}: {' or '.join(map(str, allowed))} to be a "
                f"Transformer of this package. Received: {name}={value!r}."
            )

    for name, value in _EXPECTED.items():
        expect(name, take(name, value), value)
    order = tuple(
        take(f"transformer-{x}", "")
        for x in ("preprocess", "postprocess", "postprocess-top")
    )
    expect("transformer-preprocess, -postprocess, -postprocess-top", order, *_ORDERS)
    activation = take("transformer-ffn-activation", "swish")
    expect("transformer-ffn-activation", activation, *_ACTIVATIONS)
    width, inner_width = take("dim-emb"), take("transformer-dim-ffn")
    for name, allowed in (("dim-ffn", inner_width), ("ffn-depth", 2)):
        name = f"transformer-decoder-{name}"
        expect(name, take(name, 0), 0, allowed)
    is_tied, is_all, is_source = (
        take(f"tied-embeddings{x}", False) for x in ("", "-all", "-src")
    )
    expect("tied-embeddings", is_tied or is_all, True)
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
        "positions": _positions(width),
        "epsilon": 1e-6,
        "output_bias": True,
        "pad_id": max(sizes),
        "start_id": max(sizes),
    }
    _check_rest(config, _WITHOUT_EFFECT, path)
    return arguments


def _positions(hidden_dim):
    """Marian's positions. transformers and CTranslate2 read its models with others.

    The last of Marian's wavelengths is 10000, where in the paper the one after the last
    would be: `sinusoidalEmbeddingsFreq_` in its transformer.h.
    """
    half = hidden_dim // 2
    return SinusoidalPositionalEncoding(10000 ** (half / (half - 1)), layout="halves")


def _search(path, settings, unknown_id):
    """The search that decoder.yml asks for, with Marian's defaults."""
    settings = dict(settings)
    width = settings.pop("beam-size", 12)
    penalty = PowerLengthPenalty(float(settings.pop("normalize", 0)))
    banned = [] if settings.pop("allow-unk", False) else [BannedIds([unknown_id])]
    for name in ("models", "vocabs"):
        settings.pop(name)
    _check_rest(settings, _WITHOUT_EFFECT_ON_SEARCH, path)
    if width == 1:
        return GreedySearch(processors=banned)
    return BeamSearch(width, penalty, processors=banned)


def _check_rest(settings, without_effect, path):
    """Raises `ValueError` if settings are left that are not off."""
    rest = {k: v for k, v in settings.items() if v and not without_effect.match(k)}
    if rest:
        raise ValueError(f"{path} has settings that are not understood: {rest}.")
