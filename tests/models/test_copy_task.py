"""A model that begins with nothing learns to write symbols in reverse order."""

import random

import keras
import numpy as np
import pytest

from keras_transformer.decoding import BeamSearch, GreedySearch
from keras_transformer.models import Transformer
from keras_transformer.training import (
    InverseSquareRootSchedule,
    TokenAccuracy,
    TokenCrossentropy,
)

PAD, START, END, VOCABULARY = 0, 2, 3, 11
LONGEST = 7


def sequences(count, seed):
    """Rows of 5 to 7 symbols, the end token after them, and padding."""
    random = np.random.default_rng(seed)
    ids = random.integers(END + 1, VOCABULARY, (count, LONGEST + 1))
    lengths = random.integers(5, LONGEST + 1, count)[:, None]
    positions = np.arange(LONGEST + 1)
    ids = np.where(positions < lengths, ids, PAD)
    return np.where(positions == lengths, END, ids).astype("int32")


def reverse(ids):
    """Turns the symbols round; the end token stays behind them."""
    turned = np.full_like(ids, PAD)
    for row, source in zip(turned, ids, strict=True):
        symbols = source[source > END]
        row[: len(symbols) + 1] = [*symbols[::-1], END]
    return turned


SEEN = sequences(8000, seed=1)
UNSEEN = sequences(1000, seed=2)
UNSEEN = UNSEEN[~(UNSEEN[:, None] == SEEN).all(axis=-1).any(axis=-1)]


@pytest.fixture(scope="module")
def trained():
    random.seed(7)
    labels = reverse(SEEN)
    target_ids = np.roll(np.where(labels == END, PAD, labels), 1, axis=1)
    target_ids[:, 0] = START
    model = Transformer(
        VOCABULARY,
        num_layers=1,
        hidden_dim=32,
        num_heads=4,
        intermediate_dim=64,
        dropout=0.0,
        normalize_first=True,
    )
    schedule = InverseSquareRootSchedule.with_peak(1e-2, 32, warmup_steps=100)
    model.compile(
        keras.optimizers.Adam(schedule, beta_2=0.98),
        loss=TokenCrossentropy(label_smoothing=0.1),
        metrics=[TokenAccuracy()],
    )
    inputs = {"source_ids": SEEN, "target_ids": target_ids}
    model.fit(inputs, labels, batch_size=64, epochs=3, shuffle=False, verbose=0)
    return model


def share_right(model, search):
    ids = model.generate(UNSEEN, search, max_length=LONGEST + 1).ids[:, 0]
    return np.all(ids == reverse(UNSEEN), axis=1).mean()


@pytest.mark.slow
def test_unseen_sequences_come_out_exactly_right(trained):
    assert len(UNSEEN) > 500
    assert share_right(trained, GreedySearch()) > 0.95


@pytest.mark.slow
def test_a_beam_loses_nothing_that_greedy_search_finds(trained):
    greedy = share_right(trained, GreedySearch())
    assert share_right(trained, BeamSearch(2)) >= greedy
