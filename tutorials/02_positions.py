# %% [markdown]
# # Positions
#
# Attention compares every word with every other word, but ignores their order: to it,
# "dog bites man" is "man bites dog". So the model has to be told the position of each
# word. This tutorial compares four ways to do so: the sines and cosines of the paper, a
# learned table, rotations, and biases. It shows what each can do and what it cannot.
#
# It takes about a minute on two cores. Numbers in the text are from one run; yours will
# differ a little.

# %%
import os
import tempfile
from pathlib import Path

import keras
import matplotlib.pyplot as plt
import numpy as np

import keras_transformer as kt

EPOCHS = int(os.environ.get("TUTORIAL_EPOCHS", "12"))
FOLDER = Path(os.environ.get("TUTORIAL_FOLDER") or tempfile.mkdtemp())
keras.utils.set_random_seed(1)


def show(figure, name):
    """Saves a figure to FOLDER and returns it, so that a notebook displays it."""
    figure.savefig(FOLDER / f"{name}.png", dpi=100)
    plt.close(figure)
    return figure


# %% [markdown]
# ## Attention ignores order
# Shuffle the input words, and the outputs are shuffled in the same way: each word has
# read exactly what it read before. Once positions are added to the words, this no
# longer holds.

# %%
words = np.random.default_rng(1).normal(size=(1, 5, 32)).astype("float32")
order = [3, 0, 4, 1, 2]
attend = kt.layers.MultiHeadAttention(num_heads=4, key_dim=8)


def ignores_order(words, shuffled_words):
    outputs = np.array(attend(words, words))
    shuffled_outputs = np.array(attend(shuffled_words, shuffled_words))
    return np.allclose(outputs[:, order], shuffled_outputs, atol=1e-5)


shuffled_words = words[:, order]
print("ignores order without positions:", ignores_order(words, shuffled_words))

positions = kt.layers.SinusoidalPositionalEncoding()
is_same = ignores_order(positions(words), positions(shuffled_words))
print("ignores order with positions:", is_same)

# %% [markdown]
# ## Sines and cosines
# A clock writes the time with hands that turn at different speeds. Sinusoidal positions
# do the same: each pair of columns is the sine and the cosine of the angle of one hand.
# The first hands turn fast and distinguish neighbours; the last ones turn slowly and
# distinguish the beginning of a long text from its end. Nothing is learned, and there
# is no last position.

# %%
LENGTH, DIM = 64, 128
sinusoids = kt.layers.SinusoidalPositionalEncoding()
table = np.array(sinusoids(np.zeros((1, LENGTH, DIM), "float32"))[0])
show(kt.plots.position_table(table), "sinusoids")

# %% [markdown]
# Attention compares vectors by dot products, so look at the dot products between
# positions. Each one is a sum of `cos(speed * distance)`. It depends only on the
# distance between two positions, and it is largest at distance zero.

# %%
products = table @ table.T
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
image = left.imshow(products, "RdBu_r", vmin=-DIM / 2, vmax=DIM / 2)
left.set(title="dot products of positions", xlabel="position", ylabel="position")
figure.colorbar(image, ax=left)
for position in (8, 32, 56):
    distances = np.arange(LENGTH) - position
    right.plot(distances, products[position], label=f"from position {position}")
right.set(title="… depend only on the distance", xlabel="distance")
right.legend(frameon=False)
show(figure, "products")

# %% [markdown]
# Moving `k` positions ahead turns each hand by a fixed angle, wherever one starts. One
# matrix, a rotation, can therefore express "three positions ahead". This is why the
# authors expected a network to learn easily to attend by relative position. The
# difference printed below is only float32 rounding.

# %%
speeds = 10000 ** (-np.arange(0, DIM, 2) / DIM)
sines, cosines = np.sin(3 * speeds), np.cos(3 * speeds)
rotated = np.empty_like(table)
rotated[:, 0::2] = table[:, 0::2] * cosines + table[:, 1::2] * sines
rotated[:, 1::2] = table[:, 1::2] * cosines - table[:, 0::2] * sines
difference = np.abs(rotated[:-3] - table[3:]).max()
print(f"rotated by three positions: at most {difference:.1e} from the table")

# %% [markdown]
# ## A learned table
# Another way is to give each position a vector of its own, learned with the rest of the
# model. It costs parameters, and it has a last position: there is no vector for a
# position beyond the table. Train two small networks, one with learned and one with
# sinusoidal positions, to name the symbol three positions back, on sequences of 16
# symbols.

# %%
SYMBOLS, SHORT, LONG, DISTANCE, HIDDEN_DIM = 11, 16, 32, 3, 64
rng = np.random.default_rng(1)


def network(encoding=None, positions=None):
    """Returns a model of one block, with positions in its inputs or its attention."""
    inputs = keras.Input((None,), dtype="int32")
    states = keras.layers.Embedding(SYMBOLS, HIDDEN_DIM)(inputs)
    if encoding is not None:
        states = encoding(states)
    block = kt.layers.CausalBlock(4, intermediate_dim=HIDDEN_DIM, positions=positions)
    model = keras.Model(inputs, keras.layers.Dense(SYMBOLS)(block(states)))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1)
    model.compile(keras.optimizers.Adam(3e-3), loss)
    return model


def sequences(count, length):
    """Returns random symbols, and for each the symbol three positions before."""
    symbols = rng.integers(SYMBOLS, size=(count, length), dtype="int32")
    labels = np.roll(symbols, DISTANCE, axis=1)
    labels[:, :DISTANCE] = -1  # nothing stands there: the loss ignores it
    return symbols, labels


def accuracy(model, length):
    """Returns the accuracy at each position from `DISTANCE` on."""
    symbols, labels = sequences(512, length)
    predicted = model.predict(symbols, verbose=0).argmax(axis=-1)
    return (predicted == labels)[:, DISTANCE:].mean(axis=0)


def train(name, model):
    model.fit(*sequences(8192, SHORT), 64, epochs=EPOCHS, verbose=0)
    print(f"{name}: {accuracy(model, SHORT).mean():.0%} correct at length {SHORT}")
    return model


learned = kt.layers.LearnedPositionalEncoding(max_length=SHORT)
learned.build((None, None, HIDDEN_DIM))
before_training = learned.table.numpy()
fixed = kt.layers.SinusoidalPositionalEncoding()
networks = {
    "learned": train("learned", network(learned)),
    "sinusoidal": train("sinusoidal", network(fixed)),
}

# %% [markdown]
# At first the learned vectors are unrelated. Nothing tells the model which positions
# are neighbours, so it has to learn that too.


# %%
def cosine_similarities(vectors):
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors @ vectors.T


tables = {
    "learned, before training": before_training,
    "learned, after training": learned.table.numpy(),
    "sinusoidal": np.array(fixed(np.zeros((1, SHORT, HIDDEN_DIM), "float32"))[0]),
}
figure, panels = plt.subplots(1, 3, figsize=(10, 3.3), layout="constrained")
for axes, (title, vectors) in zip(panels, tables.items(), strict=True):
    image = axes.imshow(cosine_similarities(vectors), "RdBu_r", vmin=-1, vmax=1)
    axes.set(title=title, xlabel="position")
figure.colorbar(image, ax=panels, label="cosine similarity")
show(figure, "learned")

# %% [markdown]
# ## Added or concatenated
# Positions are usually added to the word vectors, so both use the same columns. If
# positions are concatenated instead, the two stay separate, but the states get wider.

# %%
concatenate = kt.layers.SinusoidalPositionalEncoding(
    merge="concatenate", encoding_dim=16
)
print(words.shape, "→", concatenate(words).shape)

# %% [markdown]
# ## Positions inside attention
# Attention needs the distance between two words rather than their positions. Two later
# methods put the distance directly into the scores, in every layer, and leave the word
# vectors unchanged.
#
# *Rotary* positions ([Su et al., 2021](https://arxiv.org/abs/2104.09864)) rotate each
# pair of columns of query and key, as the hands of the clock above turn. The dot
# product of two rotated vectors depends only on the difference of their angles, that
# is, on the distance. In this figure every position has the same query and the same
# key, so only the distance can make a difference: each diagonal has one colour.

# %%
rotary = kt.layers.RotaryEmbedding()
query, key = rng.standard_normal((2, DIM), "float32")
queries, keys = (np.tile(each, (LENGTH, 1)) for each in (query, key))
products = np.array(rotary(queries)) @ np.array(rotary(keys)).T
is_relative = np.allclose(products[1:, 1:], products[:-1, :-1], atol=1e-3)
print("products depend only on the distance:", is_relative)
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
largest = np.abs(products).max()
image = left.imshow(products, "RdBu_r", vmin=-largest, vmax=largest)
left.set(title="products after rotation", xlabel="key at", ylabel="query at")
figure.colorbar(image, ax=left)
for position in (8, 32, 56):
    distances = np.arange(LENGTH) - position
    right.plot(distances, products[position], label=f"query at {position}")
right.set(title="… depend only on the distance", xlabel="distance")
right.legend(frameon=False)
show(figure, "rotary")

# %% [markdown]
# *Linear biases* (ALiBi, [Press et al., 2021](https://arxiv.org/abs/2108.12409))
# subtract the distance times a slope from each score. Heads with a steep slope attend
# to nearby words, heads with a gentle slope reach far. The figure shows the first four
# of eight heads in a decoder, which attends only to earlier positions, when all scores
# are otherwise equal.

# %%
SHOWN = 12
biases = kt.layers.LinearPositionBias()
scores = np.zeros((1, 8, SHOWN, SHOWN), "float32")  # (batch, heads, query, key)
weights = kt.layers.masked_softmax(biases(scores), kt.layers.causal_mask(SHOWN))
tokens = [str(position) for position in range(SHOWN)]
show(kt.plots.attention_map(tokens, tokens, weights[0, :4]), "linear_biases")

# %% [markdown]
# Blocks and models take either method as their `positions`. Here the network from above
# uses them instead of adding positions to its inputs.

# %%
networks["rotary"] = train("rotary", network(positions="rotary"))
networks["linear bias"] = train("linear bias", network(positions="linear_bias"))

# %% [markdown]
# ## Longer than in training
# Networks trained on 16 symbols now read 32. The learned table raises an error.
# Sinusoidal vectors exist for every position, but the network has never seen those
# beyond 16, and it falls to the level of guessing. Rotary positions depend only on the
# distance, which is three everywhere: all answers are correct. Linear biases continue
# without a break, but this task does not suit them: 84% of the answers are correct up
# to 16 symbols and 60% beyond. They favour near positions over far ones, which makes
# "exactly three before" hard to express. Their authors measure them on language, where
# near words usually matter most.

# %%
try:
    learned.encoding(LONG)
except ValueError as error:
    print(error)

figure = plt.figure(figsize=(7, 3), layout="constrained")
axes = figure.add_subplot(xlabel="position", ylabel="accuracy")
for name in ("sinusoidal", "rotary", "linear bias"):
    by_position = accuracy(networks[name], LONG)
    beyond = by_position[SHORT - DISTANCE :].mean()
    print(f"{name}: {beyond:.0%} correct beyond the first {SHORT} positions")
    axes.plot(np.arange(DISTANCE, LONG), by_position, ".-", label=name)
axes.axvline(SHORT - 0.5, color="0.6", linestyle="--", label="end of training length")
axes.axhline(1 / SYMBOLS, color="0.6", linestyle=":", label="guessing")
axes.set_ylim(0, 1.05)
axes.legend(frameon=False)
show(figure, "longer")

# %% [markdown]
# ## What to try next
# - Give `SinusoidalPositionalEncoding` another `max_wavelength`, and plot the table and
#   its dot products again. Which value is too small for 64 positions?
# - Train `network` on sequences of 32 symbols, then test it on 64. Do longer training
#   sequences help it to go beyond them?
# - Train the network to name the *most frequent* symbol instead. Does that need
#   positions?
#
# Sources: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.5;
# [Gehring et al., 2017](https://arxiv.org/abs/1705.03122) learn positions.
