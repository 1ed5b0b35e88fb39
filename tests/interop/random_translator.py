"""Translators with random weights that are sure of what they say, and end early."""

import functools

import numpy as np
from serving.tiny_translator import SOURCES, TARGETS

import keras_transformer as kt
from keras_transformer.keras_private import all_layers

GREEDY = kt.decoding.GreedySearch()
TEXTS = ["two dog plays", "a", *SOURCES[::11], "five tree rides " * 20]
MAX_LENGTH = 13


@functools.cache
def tokenizers(is_shared):
    train = kt.text.SubwordTokenizer.train
    if is_shared:
        tokenizer = train(SOURCES + TARGETS, vocabulary_size=61)
        return tokenizer, tokenizer
    return train(SOURCES, vocabulary_size=41), train(TARGETS, vocabulary_size=43)


def make_translator(is_shared=True, **settings):
    """Returns a translator with a `make_model`."""
    source, target = tokenizers(is_shared)
    sizes = [x.vocabulary_size for x in (source, target)][: 1 if is_shared else 2]
    model = make_model(*sizes, **settings)
    return kt.Translator(model, source, target, max_source_length=20)


def make_translator_of_bytes():
    """Returns a translator and a search that begins every translation with "中é"."""
    tokenizer = kt.text.SubwordTokenizer.train(SOURCES, 307, byte_fallback=True)
    model = make_model(307, num_layers=1)
    translator = kt.Translator(model, tokenizer, max_source_length=20)
    ids = tokenizer(["中é"]).to_list()[0]
    return translator, kt.decoding.GreedySearch([kt.decoding.ForcedPrefix(ids)])


def make_translator_of_languages():
    """Returns a translator with a table of ids, and a search that forces a language."""
    model_proto = tokenizers(True)[0].model_proto
    pieces = tokenizers(True)[0].pieces(range(61))
    pieces = [*pieces[:4], "__en__", "__de__", *pieces[4:50]]  # others are unknown
    table = {piece: index for index, piece in enumerate(pieces) if index != 17}
    names = {"pad": "<pad>", "unknown": "<unk>", "start": "<pad>", "end": "</s>"}
    tokenizer = kt.text.VocabularyTokenizer(
        model_proto, table, **names, prefix=["__en__"], control=["__de__"]
    )
    size = tokenizer.vocabulary_size
    model = make_model(size, size, num_layers=1, hidden_dim=10, start_id=0)
    search = kt.decoding.GreedySearch([kt.decoding.ForcedPrefix([5])])
    return kt.Translator(model, tokenizer, max_source_length=20), search


def make_model(*sizes, **settings):
    """Returns a `Transformer` of random weights.

    Its logits are far apart. Padding has no probability to speak of, and the end token
    has some at every step.
    """
    defaults = {"num_layers": 2, "hidden_dim": 14, "num_heads": 2}
    settings = {**defaults, "intermediate_dim": 23, "dropout": 0.0, **settings}
    model = kt.models.Transformer(*sizes, **settings)
    rng = np.random.default_rng(11)
    for weight in model.weights:
        values = rng.normal(size=weight.shape)
        if weight.path.endswith("kernel"):
            values *= 3 / np.sqrt(weight.shape[0])
        elif weight.path.endswith("gamma"):
            values = 1 + 0.3 * values
        else:
            values *= 0.6
        weight.assign(values)
    # What is added to all states on their way to the logits.
    paths = {weight.path: weight for weight in model.weights}
    last = f"decoder/block_{model.decoder.num_layers - 1}/feed_forward_residual/norm"
    norm = "decoder/final_norm" if model.settings["normalize_first"] else last
    bias = paths.get("narrow/bias", paths[f"{norm}/beta"])
    shift = np.asarray(bias) * 2
    bias.assign(shift)
    table = model.target_embedding.embeddings
    values = np.array(table)
    values[model.pad_id] = -3 * shift
    values[model.end_id] += 0.3 * shift
    table.assign(values)
    return model


def make_adapted_translator():
    """Returns a translator whose low-rank adaptation changes most of what it says."""
    translator = make_translator()
    before, _ = searched(translator, GREEDY)
    names = ("query", "value", "narrow", "output")
    translator.model.enable_lora(2, projections=names)
    rng = np.random.default_rng(5)
    for layer in all_layers(translator.model):
        if getattr(layer, "lora_enabled", False):
            for factor in layer.factors():
                factor.assign(rng.normal(size=factor.shape) / 2)
    after, _ = searched(translator, GREEDY)
    assert sum(x != y for x, y in zip(before, after, strict=True)) > len(TEXTS) / 2
    return translator


def searched(translator, search):
    """Returns ids without end token, and scores, of all hypotheses of `TEXTS`."""
    ids, _ = translator.encode(TEXTS)
    found = translator.model.generate(ids.numpy(), search, MAX_LENGTH)
    symbols = translator.model.pad_id, translator.model.end_id
    return [
        [[x for x in row.tolist() if x not in symbols] for row in rows]
        for rows in found.ids
    ], found.scores
