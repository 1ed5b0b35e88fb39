# %% [markdown]
# # Attention from scratch
#
# A word means what its neighbours let it mean. Attention is how a network lets words
# read each other: each one asks a question, every other one offers an answer, and what
# comes back is a mixture of the answers, weighed by how well they fit the question.
#
# This tutorial writes attention down in NumPy, shows why its scores are scaled, how
# else a key can be matched, and why one attention is not enough. On two cores it takes
# about twenty seconds. Numbers in the text are from one run; yours will differ a
# little.

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
#
# `DotProductAttention` is the layer for both. Measure all three on random vectors.

# %%
DIMS, KEYS, DRAWS = 4 ** np.arange(1, 7), 16, 500
draw = np.random.default_rng(1)
layers = {
    "plain": kt.layers.DotProductAttention(scaled=False),
    "scaled": kt.layers.DotProductAttention(),
}
curves = {name: [] for name in layers}
for dim in DIMS:
    query = draw.standard_normal((DRAWS, 1, dim), "float32")
    key = draw.standard_normal((DRAWS, KEYS, dim), "float32")
    for name, layer in layers.items():
        scores = np.array(layer.score(query, key))
        _, shares = layer(query, key, return_attention_scores=True)
        shares = np.array(shares)[:, 0]  # (draws, keys)
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
# ## Other ways to match
# A dot product finds what is *like* the query. What if the key to look for is another,
# as a word in one language is for a word in the other? Then something has to be learned
# in between, and the field has two ways to do it:
#
# - `MultiplicativeAttention` puts a matrix there: `query W key`;
# - `AdditiveAttention` asks a small network: `u tanh(query W1 + key W2)`.
#
# Give every symbol a random vector and another symbol as its partner, show eight
# symbols, and ask where the partner of a ninth is among them. After 4,096 questions
# both find it every time; likeness alone finds it in 9%, and guessing would in one of
# eight.

# %%
SYMBOLS, CHOICES, DIM = 24, 8, 16
table = draw.standard_normal((SYMBOLS, DIM), "float32")
partner = np.roll(np.arange(SYMBOLS), 1)


def questions(count):
    shown = draw.permuted(np.tile(np.arange(SYMBOLS), (count, 1)), axis=1)[:, :CHOICES]
    places = draw.integers(CHOICES, size=count)
    asked = np.argsort(partner)[shown[np.arange(count), places]]
    return [table[asked][:, None], table[shown]], places


def pointer(attention):
    """A model whose answer is what share it gives to each place."""
    query, keys = keras.Input((1, DIM)), keras.Input((CHOICES, DIM))
    _, shares = attention(query, keys, return_attention_scores=True)
    model = keras.Model([query, keys], keras.layers.Reshape((CHOICES,))(shares))
    loss = keras.losses.SparseCategoricalCrossentropy()
    model.compile(keras.optimizers.Adam(1e-2), loss, metrics=["accuracy"])
    return model


learning = {
    "query W key": kt.layers.MultiplicativeAttention(),
    "u tanh(query W1 + key W2)": kt.layers.AdditiveAttention(units=32),
}
practice, (asked, places) = questions(4096), questions(1024)
figure = plt.figure(figsize=(6, 3), layout="constrained")
axes = figure.add_subplot(xlabel="epoch", ylabel="share of right answers")
for name, layer in learning.items():
    model = pointer(layer)
    right = [model.evaluate(asked, places, verbose=0)[1]]
    history = model.fit(
        *practice, 64, EPOCHS, verbose=0, validation_data=(asked, places)
    )
    right += history.history["val_accuracy"]
    print(f"{name}: {right[-1]:.0%} right")
    axes.plot(right, ".-", label=name)
right = pointer(kt.layers.DotProductAttention()).evaluate(asked, places, verbose=0)[1]
print(f"query key: {right:.0%} right")
axes.axhline(right, color="0.6", linestyle="--", label="query key: nothing to learn")
axes.set_ylim(0, 1.05)
axes.legend(frameon=False)
show(figure, "partners")

# %% [markdown]
# Why then does the Transformer take the dot product? Because it can multiply query and
# key by matrices of their own before: `query Wq (key Wk)ᵀ` is `query W keyᵀ` with
# `W = Wq Wkᵀ`. The projections learn, and matrix products are fast, where the
# additive network makes a vector of `units` numbers for every pair of a query and a
# key. `MultiHeadAttention` projects, and takes any of these layers as its `score`.

# %%
states = draw.standard_normal((2, 5, DIM), "float32")
for score in (None, *learning.values()):
    layer = kt.layers.MultiHeadAttention(num_heads=2, key_dim=8, score=score)
    print(layer(states, states).shape, f"{layer.count_params()} weights")

# %% [markdown]
# ## One mixture is not enough
# The shares of a softmax sum to one, so whoever reads two words gets a mixture and has
# lost which was which. That is the *softmax bottleneck* of a single attention. *Heads*
# relieve it: several attentions side by side, each in a space of its own, whose
# readings stand next to each other instead of being mixed.
#
# To see it, let each position of a sequence name the symbol before it and the symbol
# after it (the sequence is a ring). Both models have the same number of weights; the
# second splits them between two heads. With one head 57% of the answers came out right,
# with two all of them.

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
show(figure, "bottleneck")

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
