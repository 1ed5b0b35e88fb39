"""A translator of a few words, trained in seconds."""

import itertools

import keras
import numpy as np

import keras_transformer as kt

NUMBERS = {"a": "ein", "two": "zwei", "five": "fünf"}
NOUNS = {"man": "Mann", "dog": "Hund", "bike": "Rad", "tree": "Baum"}
VERBS = {"rides": "fährt", "plays": "spielt", "falls": "fällt"}
SOURCES, TARGETS = (
    [" ".join(words) for words in itertools.product(*columns)]
    for columns in (
        (NUMBERS, NOUNS, VERBS),
        (NUMBERS.values(), NOUNS.values(), VERBS.values()),
    )
)


def make_translator(updates=0, max_source_length=20, **settings):
    """Returns a translator of two vocabularies, whose model has an optimizer.

    Args:
        updates: After 60 of them it knows all of `SOURCES`.
        max_source_length: Longest source, in subwords.
        **settings: Arguments of the `Transformer`.
    """
    train = kt.text.SubwordTokenizer.train
    tokenizers = train(SOURCES, vocabulary_size=41), train(TARGETS, vocabulary_size=43)
    settings = {
        "num_layers": 1,
        "hidden_dim": 16,
        "num_heads": 2,
        "intermediate_dim": 32,
        "dropout": 0.0,
        **settings,
    }
    model = kt.models.Transformer(41, 43, **settings)
    model.compile(keras.optimizers.Adam(0.01), kt.training.TokenCrossentropy())
    source_ids, labels = (
        kt.text.encode(texts, tokenizer, 31)[0].numpy()
        for texts, tokenizer in zip((SOURCES, TARGETS), tokenizers, strict=True)
    )
    target_ids = np.pad(labels, ((0, 0), (1, 0)), constant_values=2)[:, :-1]
    # One epoch of repeated sentences: to begin another takes longer than an update.
    source_ids, target_ids, repeated = (
        np.tile(ids, (updates, 1)) for ids in (source_ids, target_ids, labels)
    )
    if updates:
        inputs = {"source_ids": source_ids, "target_ids": target_ids}
        model.fit(inputs, repeated, len(labels), shuffle=False, verbose=0)
    return kt.Translator(model, *tokenizers, max_source_length)
