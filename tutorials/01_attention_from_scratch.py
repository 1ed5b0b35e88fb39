# %% [markdown]
# # Attention from scratch
#
# A word means what its neighbours let it mean. Attention is how a network lets words
# read each other: each one asks a question, every other one offers an answer, and what
# comes back is a mixture of the answers, weighed by how well they fit the question.
#
# This tutorial writes attention down in NumPy, shows why its scores are scaled, and why
# one attention is not enough. On two cores it takes about a minute.

# %%
import os
import tempfile
from pathlib import Path

import keras
import matplotlib.pyplot as plt
import numpy as np

import keras_transformer as kt

EPOCHS = int(os.environ.get("TUTORIAL_EPOCHS", "6"))
FOLDER = Path(os.environ.get("TUTORIAL_FOLDER") or tempfile.mkdtemp())
keras.utils.set_random_seed(1)


def show(figure, name):
    """Keeps a figure in FOLDER; a notebook shows it, too."""
    figure.savefig(FOLDER / f"{name}.png", dpi=100)
    plt.close(figure)
    return figure


# %% [markdown]
# ## A dictionary that is never sure
# A dictionary compares your *query* with its *keys* and returns the *value* of the one
# that is equal. Attention does the same softly: it compares the query with every key by
# a dot product, turns these scores into shares that sum to one, and returns the mixture
# of all values with these shares.


# %%
def softmax(scores):
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def attention(query, key, value):
    scores = query @ key.T / np.sqrt(query.shape[-1])
    shares = softmax(scores)
    return shares @ value, shares


# %% [markdown]
# Here are four words in two dimensions, which stand for water and money. A bank has to
# do with both. In *self-attention* the words are queries, keys and values at once: each
# reads all of them, itself included. Next to a river, the bank gets wet.

# %%
words = ["the", "river", "bank", "floods"]
vectors = np.array([[0, 0], [4, 0], [2, 2], [3, 0]], "float32")
outputs, shares = attention(vectors, vectors, vectors)
for word, before, after in zip(words, vectors, outputs, strict=True):
    print(f"{word:8}{before} → {after.round(2)}")
show(kt.plots.attention_map(words, words, shares), "bank")

# %% [markdown]
# The layers of this package compute the same, on tensors with any leading axes. A
# *mask* says who may look at whom. With a causal one, a word sees only itself and what
# came before it: so does a decoder, which must not copy the word that it is to predict.

# %%
read, scores = kt.layers.scaled_dot_product_attention(vectors, vectors, vectors)
np.testing.assert_allclose(scores, shares, rtol=1e-5)
causal = kt.layers.causal_mask(len(words))[0]
_, scores = kt.layers.scaled_dot_product_attention(vectors, vectors, vectors, causal)
show(kt.plots.attention_map(words, words, scores), "causal")

# %% [markdown]
# ## Why the scores are scaled
# Let the numbers in query and key be independent, with mean 0 and variance 1. Their dot
# product is a sum of `dim` such products, so its variance is `dim`: the wider the
# vectors, the further apart the scores. The softmax of scores that are far apart gives
# nearly everything to one key, and where it does, it is flat: its derivative
# `diag(shares) - shares sharesᵀ` vanishes, and nothing is learned. Divided by
# `sqrt(dim)`, scores have variance 1 at any width.

# %%
DIMS, KEYS, DRAWS = 4 ** np.arange(1, 7), 16, 500
draw = np.random.default_rng(1)
curves = {"plain": [], "scaled": []}
for dim in DIMS:
    query = draw.normal(size=(DRAWS, 1, dim))
    key = draw.normal(size=(DRAWS, KEYS, dim))
    products = (query * key).sum(axis=-1)  # (draws, keys)
    for name, scores in (("plain", products), ("scaled", products / np.sqrt(dim))):
        shares = softmax(scores)
        outer = shares[:, :, None] * shares[:, None]
        derivative = shares[:, :, None] * np.eye(KEYS) - outer
        size = np.sqrt((derivative**2).sum(axis=(1, 2)))
        curves[name].append((scores.var(), shares.max(axis=1).mean(), size.mean()))

figure, panels = plt.subplots(1, 3, figsize=(10, 3), layout="constrained")
titles = ["variance of the scores", "largest share", "size of the derivative"]
for index, (axes, title) in enumerate(zip(panels, titles, strict=True)):
    for name, rows in curves.items():
        axes.plot(DIMS, np.array(rows)[:, index], ".-", label=name)
    axes.set(title=title, xlabel="dim", xscale="log")
    axes.set_ylim(bottom=0)
panels[0].set_yscale("log")
panels[0].set_ylim(bottom=0.5)
panels[0].legend(frameon=False)
show(figure, "scale")

# %% [markdown]
# ## One mixture is not enough
# The shares of a softmax sum to one, so whoever reads two words gets a mixture and has
# lost which was which. That is the bottleneck of a single attention. *Heads* relieve
# it: several attentions side by side, each in a space of its own, whose readings stand
# next to each other instead of being mixed.
#
# To see it, let each position of a sequence name the symbol before it and the symbol
# after it (the sequence is a ring). Both models have the same number of weights; the
# second splits them between two heads.

# %%
LENGTH, SYMBOLS, DIM = 8, 11, 32


def neighbours(num_heads):
    inputs = keras.Input((LENGTH,), dtype="int32")
    states = keras.layers.Embedding(SYMBOLS, DIM)(inputs)
    states = kt.layers.SinusoidalPositionalEncoding(
        max_wavelength=16, merge="concatenate", encoding_dim=DIM
    )(states)
    layer = kt.layers.MultiHeadAttention(num_heads, key_dim=DIM // num_heads)
    states, scores = layer(states, states, return_attention_scores=True)
    names = ("before", "after")
    outputs = {name: keras.layers.Dense(SYMBOLS, name=name)(states) for name in names}
    model = keras.Model(inputs, outputs)
    model.compile(
        keras.optimizers.Adam(5e-3),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics={name: ["accuracy"] for name in names},
    )
    return model, keras.Model(inputs, scores)


symbols = draw.integers(SYMBOLS, size=(4096, LENGTH), dtype="int32")
answers = {"before": np.roll(symbols, 1, axis=1), "after": np.roll(symbols, -1, axis=1)}
maps, figure = [], plt.figure(figsize=(6, 3), layout="constrained")
axes = figure.add_subplot(xlabel="epoch", ylabel="share of right answers")
for num_heads, name in ((1, "one head"), (2, "two heads")):
    model, look = neighbours(num_heads)
    history = model.fit(symbols, answers, 64, epochs=EPOCHS, verbose=0).history
    right = (np.add(history["before_accuracy"], history["after_accuracy"])) / 2
    print(f"{name}: {right[-1]:.0%} right")
    axes.plot(np.arange(EPOCHS) + 1, right, ".-", label=name)
    maps.extend(look.predict(symbols[:1], verbose=0)[0])
axes.set_ylim(0, 1.05)
axes.legend(frameon=False)
show(figure, "heads")

# %% [markdown]
# What they looked at: the only head of the first model spreads over both neighbours;
# the two heads of the second have shared out the work.

# %%
places = [str(place) for place in range(LENGTH)]
figure = kt.plots.attention_map(places, places, np.stack(maps))
for index, title in enumerate(("one head", "first of two", "second of two")):
    figure.axes[index].set_title(title)
show(figure, "neighbours")

# %% [markdown]
# ## What to try next
# - Swap "river" for a word about money, `[0, 4]`, and see where the bank goes.
# - Train the two-headed model on three questions, with the symbol opposite as the
#   third. Does a third head help?
# - Take the positions away from `neighbours`: why can no number of heads help then?
#   [02_positions.py](02_positions.py) answers.
#
# Sources: [Bahdanau et al., 2014](https://arxiv.org/abs/1409.0473) align translations
# by attention; [Luong et al., 2015](https://arxiv.org/abs/1508.04025) compare scores;
# [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.2, scale the
# scores and split heads.
