# %% [markdown]
# # Attention from scratch
#
# A word takes its meaning from the words around it. Attention is how a network lets
# words read each other: each word sends out a *query*, every word answers with a
# *value*, and the result is a mean of the values, weighted by how well the *key* of
# each word matches the query.
#
# This tutorial writes attention in NumPy, then shows why its scores are scaled, which
# other score functions there are, and why one head is not enough. It takes about twenty
# seconds on two cores. Numbers in the text are from one run; yours will differ a
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
    """Saves a figure to FOLDER and returns it, so that a notebook displays it."""
    figure.savefig(FOLDER / f"{name}.png", dpi=100)
    plt.close(figure)
    return figure


# %% [markdown]
# ## A soft dictionary
# A dictionary compares your query with its keys and returns the value of the key that
# is equal. Attention does the same softly. It compares the query with every key by a
# dot product, which gives a *score* for each key. A softmax turns the scores into
# *attention weights*, which sum to one. The output is the mean of all values under
# these weights.


# %%
def softmax(scores):
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def attention(query, key, value):
    scores = query @ key.T / np.sqrt(query.shape[-1])
    weights = softmax(scores)
    return weights @ value, weights


# %% [markdown]
# Here are four words as vectors with two dimensions, one for water and one for money.
# "bank" has both. In *self-attention* the same words are queries, keys and values: each
# reads all of them, itself included. In this sentence, "bank" moves towards water.

# %%
words = ["the", "river", "bank", "floods"]
vectors = np.array([[0, 0], [4, 0], [2, 2], [3, 0]], "float32")
outputs, weights = attention(vectors, vectors, vectors)
for word, before, after in zip(words, vectors, outputs, strict=True):
    print(f"{word:8}{before} → {after.round(2)}")
show(kt.plots.attention_map(words, words, weights), "bank")

# %% [markdown]
# The layers of this package compute the same on tensors with any number of leading
# axes. They return the attention weights under the name that Keras uses, *attention
# scores*. A *mask* says which keys each query may attend to. With a causal mask, a word
# attends only to itself and to the words before it. Decoders need this: they must not
# see the word that they predict.

# %%
attend = kt.layers.scaled_dot_product_attention
layer_outputs, layer_weights = attend(vectors, vectors, vectors)
np.testing.assert_allclose(layer_outputs, outputs, rtol=1e-5)
np.testing.assert_allclose(layer_weights, weights, rtol=1e-5)
mask = kt.layers.causal_mask(len(words))[0]
_, causal_weights = attend(vectors, vectors, vectors, mask)
show(kt.plots.attention_map(words, words, causal_weights), "causal")

# %% [markdown]
# ## Why the scores are scaled
# Let the numbers in query and key be independent, with mean 0 and variance 1. Their dot
# product is a sum of `dim` products, so its variance is `dim`: the wider the vectors,
# the further apart the scores. When scores are far apart, the softmax gives nearly all
# the weight to one key, and its derivative, `diag(weights) - weights weightsᵀ`,
# vanishes. Then hardly any gradient flows back, and hardly anything is learned.
# Dividing by `sqrt(dim)` gives the scores variance 1 at any width.
#
# `DotProductAttention` computes either form. Measure the variance, the largest weight
# and the derivative on random vectors.

# %%
DIMS, NUM_KEYS, NUM_QUERIES = 4 ** np.arange(1, 7), 16, 500
rng = np.random.default_rng(1)
layers = {
    "not scaled": kt.layers.DotProductAttention(scaled=False),
    "scaled": kt.layers.DotProductAttention(),
}
curves = {name: [] for name in layers}
for dim in DIMS:
    query = rng.standard_normal((NUM_QUERIES, 1, dim), "float32")
    key = rng.standard_normal((NUM_QUERIES, NUM_KEYS, dim), "float32")
    for name, layer in layers.items():
        scores = np.array(layer.score(query, key))
        _, weights = layer(query, key, return_attention_scores=True)
        weights = np.array(weights)[:, 0]  # (queries, keys)
        outer = weights[:, :, None] * weights[:, None]
        derivative = weights[:, :, None] * np.eye(NUM_KEYS) - outer
        norm = np.sqrt((derivative**2).sum(axis=(1, 2)))
        curves[name].append((scores.var(), weights.max(axis=1).mean(), norm.mean()))

figure, panels = plt.subplots(1, 3, figsize=(10, 3), layout="constrained")
titles = ["variance of the scores", "largest weight", "norm of the derivative"]
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
# ## Other score functions
# A dot product finds keys that are *similar* to the query. But what if the right key
# looks different, like a word in another language? Then the score function must be
# learned. There are two well-known ways:
#
# - `MultiplicativeAttention` puts a matrix between them: `query W key`;
# - `AdditiveAttention` uses a small network: `u tanh(query W1 + key W2)`.
#
# To compare them, give each symbol a random vector and another symbol as its partner.
# Each question shows eight symbols and asks which of them is the partner of a given
# symbol. Trained on 4,096 questions, both layers answer every new question correctly.
# Similarity alone is right in 9% of the questions, and guessing would be right in one
# of eight.

# %%
SYMBOLS, CHOICES, DIM = 24, 8, 16
table = rng.standard_normal((SYMBOLS, DIM), "float32")
partner = np.roll(np.arange(SYMBOLS), 1)


def questions(count):
    """Returns queries and keys, and the index of the correct key of each query."""
    shown = rng.permuted(np.tile(np.arange(SYMBOLS), (count, 1)), axis=1)[:, :CHOICES]
    answers = rng.integers(CHOICES, size=count)
    asked = np.argsort(partner)[shown[np.arange(count), answers]]
    return [table[asked][:, None], table[shown]], answers


def pointer(attention):
    """Returns a model whose output is the attention weight of each key."""
    query, keys = keras.Input((1, DIM)), keras.Input((CHOICES, DIM))
    _, weights = attention(query, keys, return_attention_scores=True)
    model = keras.Model([query, keys], keras.layers.Reshape((CHOICES,))(weights))
    loss = keras.losses.SparseCategoricalCrossentropy()
    model.compile(keras.optimizers.Adam(1e-2), loss, metrics=["accuracy"])
    return model


learned_scores = {
    "query W key": kt.layers.MultiplicativeAttention(),
    "u tanh(query W1 + key W2)": kt.layers.AdditiveAttention(units=32),
}
train, test = questions(4096), questions(1024)
figure = plt.figure(figsize=(6, 3), layout="constrained")
axes = figure.add_subplot(xlabel="epoch", ylabel="accuracy")
for name, layer in learned_scores.items():
    model = pointer(layer)
    accuracy = [model.evaluate(*test, verbose=0)[1]]
    history = model.fit(*train, 64, EPOCHS, verbose=0, validation_data=test)
    accuracy += history.history["val_accuracy"]
    print(f"{name}: {accuracy[-1]:.0%} correct")
    axes.plot(accuracy, ".-", label=name)
accuracy = pointer(kt.layers.DotProductAttention()).evaluate(*test, verbose=0)[1]
print(f"query key: {accuracy:.0%} correct")
axes.axhline(accuracy, color="0.6", linestyle="--", label="query key (not learned)")
axes.set_ylim(0, 1.05)
axes.legend(frameon=False)
show(figure, "partners")

# %% [markdown]
# Why then does the Transformer use the dot product? Because it multiplies query and key
# by learned matrices first: `query Wq (key Wk)ᵀ` is `query W keyᵀ` with `W = Wq Wkᵀ`.
# Matrix products are also fast, whereas additive attention computes a vector of `units`
# numbers for every pair of a query and a key. `MultiHeadAttention` makes these
# projections, and accepts any of these layers as its `score`.

# %%
states = rng.standard_normal((2, 5, DIM), "float32")
for score in (None, *learned_scores.values()):
    layer = kt.layers.MultiHeadAttention(num_heads=2, key_dim=8, score=score)
    print(layer(states, states).shape, f"{layer.count_params()} parameters")

# %% [markdown]
# ## One head is not enough
# The weights of a softmax sum to one. A query that attends to two words gets the mean
# of their values, which does not say which value came from which word. *Heads* solve
# this: several attentions run side by side, each with its own projections, and their
# outputs are concatenated instead of averaged.
#
# To see this, let each position of a sequence name two symbols: the one before it and
# the one after it (the sequence is a ring). Both models have the same number of
# parameters; the second splits them between two heads. With one head 57% of the answers
# were correct, with two heads all of them.

# %%
LENGTH, SYMBOLS, DIM = 8, 11, 32


def neighbours(num_heads):
    """Returns a model to train, and one that returns its attention weights."""
    inputs = keras.Input((LENGTH,), dtype="int32")
    states = keras.layers.Embedding(SYMBOLS, DIM)(inputs)
    states = kt.layers.SinusoidalPositionalEncoding(
        max_wavelength=16, merge="concatenate", encoding_dim=DIM
    )(states)
    layer = kt.layers.MultiHeadAttention(num_heads, key_dim=DIM // num_heads)
    states, weights = layer(states, states, return_attention_scores=True)
    names = ("before", "after")
    outputs = {name: keras.layers.Dense(SYMBOLS, name=name)(states) for name in names}
    model = keras.Model(inputs, outputs)
    model.compile(
        keras.optimizers.Adam(5e-3),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics={name: ["accuracy"] for name in names},
    )
    return model, keras.Model(inputs, weights)


symbols = rng.integers(SYMBOLS, size=(4096, LENGTH), dtype="int32")
answers = {"before": np.roll(symbols, 1, axis=1), "after": np.roll(symbols, -1, axis=1)}
maps, figure = [], plt.figure(figsize=(6, 3), layout="constrained")
axes = figure.add_subplot(xlabel="epoch", ylabel="accuracy")
for num_heads, name in ((1, "one head"), (2, "two heads")):
    model, attention_model = neighbours(num_heads)
    history = model.fit(symbols, answers, 64, epochs=EPOCHS, verbose=0).history
    accuracy = np.add(history["before_accuracy"], history["after_accuracy"]) / 2
    print(f"{name}: {accuracy[-1]:.0%} correct")
    axes.plot(np.arange(EPOCHS) + 1, accuracy, ".-", label=name)
    maps.extend(attention_model.predict(symbols[:1], verbose=0)[0])
axes.set_ylim(0, 1.05)
axes.legend(frameon=False)
show(figure, "bottleneck")

# %% [markdown]
# The maps show why. The single head spreads its weights over both neighbours and the
# position itself; with two heads, each attends mostly to one neighbour.

# %%
positions = [str(position) for position in range(LENGTH)]
figure = kt.plots.attention_map(positions, positions, np.stack(maps))
for index, title in enumerate(("one head", "first of two", "second of two")):
    figure.axes[index].set_title(title)
show(figure, "neighbours")

# %% [markdown]
# ## What to try next
# - Replace "river" by a word about money, `[0, 4]`. Where does "bank" move now?
# - Add a third question to the model with two heads: the symbol on the opposite side of
#   the ring. Does a third head help?
# - Remove the positions from `neighbours`. Why can no number of heads help then?
#   [02_positions.py](02_positions.py) has the answer.
#
# Sources: [Bahdanau et al., 2014](https://arxiv.org/abs/1409.0473) align translations
# by attention; [Luong et al., 2015](https://arxiv.org/abs/1508.04025) compare score
# functions; [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.2,
# scale the scores and split heads.
