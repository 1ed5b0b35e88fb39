"""A translator as a checkpoint of Hugging Face's transformers, tokenizers included.

A post-norm model becomes a `MarianMTModel`, a pre-norm one with one vocabulary a
`PegasusForConditionalGeneration`: their blocks and sinusoids equal ours. Both get
a `MarianTokenizer`, which reads its ids from a table. Pegasus's own tokenizer
(`spiece.model`) cannot be used: it adds 103 to SentencePiece's ids.

These models add 1e-5 to the variance in every normalization, regardless of the config.
Ours add 1e-6 unless they were built with `epsilon=1e-5`, which changes a state of unit
variance by five millionths.
"""

import json
import os
from pathlib import Path

import numpy as np

from keras_transformer.checks import optional
from keras_transformer.decoding import BeamSearch, GreedySearch, Sampling, Search
from keras_transformer.interop.expressible import (
    check_is_new,
    check_same_tokens,
    float_weights,
    known_activation,
    limits_of,
    power_of_length,
    refuse,
    sinusoids,
    source_prefix,
    unique_pieces,
)
from keras_transformer.interop.hugging_face.config import ACTIVATIONS
from keras_transformer.layers import SinusoidalPositionalEncoding
from keras_transformer.storage import create_folder, write_text
from keras_transformer.translator.translator import (
    Translator,
    check_one_transformer,
    check_serves_any_text,
)

_MAX_EPSILON = 1.1e-5
_MIN_POSITIONS = 512


def export_hugging_face(
    translator: Translator,
    path: str | os.PathLike,
    search: Search,
    max_length: int | None = None,
) -> Path:
    """Writes a translator as a checkpoint of transformers; see `Translator.export`."""
    check_one_transformer(translator, "A checkpoint of Hugging Face")
    path = check_is_new(path)
    check_serves_any_text(search)
    family = family_of(translator.model)
    max_length = max_length or 2 * translator.max_source_length
    longest = max(_MIN_POSITIONS, max_length + 1, translator.max_source_length)
    files = {
        "config.json": _config(translator.model, family, longest),
        "generation_config.json": _generation(translator.model, search, max_length),
        **_tokenizer_files(translator),
    }
    weights = checkpoint_weights(translator.model, family, longest)
    with optional("safetensors", extra="hub", purpose="The format 'hugging_face'"):
        from safetensors.numpy import save_file
    with create_folder(path) as unfinished:
        for name, values in files.items():
            text = json.dumps(values, ensure_ascii=False, indent=2) + "\n"
            write_text(unfinished / name, text)
        save_file(weights, unfinished / "model.safetensors", {"format": "pt"})
        for side in ("source", "target"):
            tokenizer = getattr(translator, f"{side}_tokenizer")
            (unfinished / f"{side}.spm").write_bytes(tokenizer.model_proto)
    return path


def family_of(model) -> str:
    """Returns "marian" or "pegasus", whichever can express a `Transformer`."""
    settings = model.settings
    family = "pegasus" if settings["normalize_first"] else "marian"
    system = _system(family)
    known_activation(model, ACTIVATIONS, system)
    layer = model.encoder.positions
    if not isinstance(layer, SinusoidalPositionalEncoding):
        name = None if layer is None else type(layer).__name__
        refuse(system, f"positions={name}, only sinusoidal ones")
    expected = {"merge": "add", "max_wavelength": 10000, "first_position": 0}
    for name, value in expected.items():
        if (found := getattr(layer, name)) != value:
            refuse(
                system, f"sinusoidal positions with {name}={found!r}, only {value!r}"
            )
    if settings["epsilon"] > _MAX_EPSILON:
        refuse(system, f"epsilon={settings['epsilon']}, only 1e-5 and less")
    if family == "pegasus" and settings["target_vocabulary_size"] is not None:
        refuse(system, "two vocabularies, as it has normalize_first=True")
    return family


def _system(family):
    return f"transformers' {family.capitalize()}"


def checkpoint_weights(model, family: str, max_length: int) -> dict[str, np.ndarray]:
    """Returns a model's weights under their names in a checkpoint.

    The families hold sines in the first half of the columns and cosines in the second.
    For a model whose sinusoids are interleaved, the columns of all states are permuted,
    and so are the weights that read or write states.
    """
    weights = float_weights(model, _system(family))
    hidden_dim = model.settings["hidden_dim"]
    layer = model.encoder.positions
    order = np.arange(hidden_dim)
    if layer.layout == "interleaved":
        order = np.concatenate([order[0::2], order[1::2]])
    weights = {name: _permuted(name, x, order) for name, x in weights.items()}
    positions = sinusoids(layer, max_length, hidden_dim)[:, order]
    for side in ("encoder", "decoder"):
        weights[f"model.{side}.embed_positions.weight"] = positions
    return {name: np.ascontiguousarray(array) for name, array in weights.items()}


_READS_STATES = ("q_proj.weight", "k_proj.weight", "v_proj.weight", "fc1.weight")
_WRITES_STATES = ("out_proj.weight", "out_proj.bias", "fc2.weight", "fc2.bias")
_HOLDS_STATES = ("layer_norm.weight", "layer_norm.bias")
_EMBEDS = ("shared.weight", "embed_tokens.weight")


def _permuted(name, array, order):
    """Returns a weight with the columns of the states in another order."""
    if name.endswith(_READS_STATES + _EMBEDS):
        return array[:, order]
    return array[order] if name.endswith(_WRITES_STATES + _HOLDS_STATES) else array


def _config(model, family, max_length) -> dict:
    settings = model.settings
    config = {
        "architectures": ["PegasusForConditionalGeneration"],
        "model_type": family,
        "is_encoder_decoder": True,
        "vocab_size": settings["source_vocabulary_size"],
        "d_model": settings["hidden_dim"],
        "activation_function": settings["activation"],
        "dropout": settings["dropout"],
        "attention_dropout": settings["attention_dropout"],
        "activation_dropout": settings["activation_dropout"],
        "scale_embedding": settings["scale_embeddings"],
        "max_position_embeddings": max_length,
        "tie_word_embeddings": True,
        "pad_token_id": settings["pad_id"],
        "eos_token_id": settings["end_id"],
        "decoder_start_token_id": settings["start_id"],
        "forced_eos_token_id": None,
        "dtype": "float32",
    }
    for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        config[f"{side}_layers"] = stack.num_layers
        config[f"{side}_attention_heads"] = stack.num_heads
        config[f"{side}_ffn_dim"] = stack.intermediate_dim
    if family == "marian":
        target_size = model.target_embedding.vocabulary_size
        is_shared = settings["target_vocabulary_size"] is None
        config["architectures"] = ["MarianMTModel"]
        config["decoder_vocab_size"] = target_size
        config["share_encoder_decoder_embeddings"] = is_shared
    return config


def _generation(model, search, max_length) -> dict:
    """Returns the search as `generate` takes it; its lengths count the start token."""
    system = "transformers"
    settings, pad_id = model.settings, model.pad_id
    banned, forced, min_length, ngram_size = limits_of(search, pad_id, system)
    if len(forced) > 1:
        refuse(system, f"more than one forced token. The search forces {forced}")
    end_ids = search.end_ids or (settings["end_id"],)
    config = {
        "bad_words_ids": [[index] for index in (pad_id, *banned)],
        "decoder_start_token_id": settings["start_id"],
        "eos_token_id": end_ids[0] if len(end_ids) == 1 else [*end_ids],
        "forced_bos_token_id": forced[0] if forced else None,
        "forced_eos_token_id": None,
        "max_length": max_length + 1,
        "min_length": min_length,
        "no_repeat_ngram_size": ngram_size,
        "pad_token_id": pad_id,
    }
    if isinstance(search, BeamSearch):
        return {
            **config,
            "num_beams": search.beam_width,
            "length_penalty": power_of_length(search, system),
            "num_return_sequences": search.num_hypotheses,
        }
    if isinstance(search, Sampling) and search.is_random:
        return {
            **config,
            "do_sample": True,
            "num_return_sequences": search.num_hypotheses,
            "temperature": search.temperature,
            "top_k": search.top_k or 0,
            "top_p": search.top_p or 1.0,
        }
    if isinstance(search, GreedySearch):
        return {**config, "num_beams": 1}
    return refuse(system, f"the search {search!r}")


def _tokenizer_files(translator) -> dict:
    """Returns the files of a `MarianTokenizer` except SentencePiece's, by name."""
    system = "transformers' MarianTokenizer"
    source, target = translator.source_tokenizer, translator.target_tokenizer
    special = {"pad_token": "pad_id", "unk_token": "unknown_id", "eos_token": "end_id"}
    check_same_tokens(source, target, special.values(), system)
    if prefix := source_prefix(source):
        refuse(system, f"tokens that begin every source: {source.pieces(prefix)}")
    is_shared = translator.model.settings["target_vocabulary_size"] is None
    special["bos_token"] = "start_id"  # left out when ids become text
    config = {
        "tokenizer_class": "MarianTokenizer",
        "model_max_length": translator.max_source_length,
        "separate_vocabs": not is_shared,
        **{name: target.pieces([getattr(target, x)])[0] for name, x in special.items()},
    }
    files = {"tokenizer_config.json": config, "vocab.json": _id_of_piece(source)}
    return files if is_shared else {**files, "target_vocab.json": _id_of_piece(target)}


def _id_of_piece(tokenizer):
    return {piece: index for index, piece in enumerate(unique_pieces(tokenizer))}
