# %% [markdown]
# # Positions
#
# Attention compares every word with every other one and does not care where they stand:
# to it, "dog bites man" is "man bites dog". So each word has to carry its position.
# This tutorial looks at four ways to tell positions: the paper's sines and cosines, a
# table that is learned, rotations and biases; and at what each can and cannot do.
#
# On two cores it takes about a minute. Numbers in the text are from one run; yours will
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
    """Keeps a figure in FOLDER; a notebook shows it, too."""
    figure.savefig(FOLDER / f"{name}.png", dpi=100)
    plt.close(figure)
    return figure


# %% [markdown]
# ## Attention sees no order
# Shuffle the words, and what comes out is shuffled in the same way: each word has read
# exactly what it read before. With positions added, that ends.

# %%
words = np.random.default_rng(1).normal(size=(1, 5, 32)).astype("float32")
order = [3, 0, 4, 1, 2]
attend = kt.layers.MultiHeadAttention(num_heads=4, key_dim=8)
read = np.array(attend(words, words))
shuffled = np.array(attend(words[:, order], words[:, order]))
print("shuffled alike:", np.allclose(read[:, order], shuffled, atol=1e-5))

positions = kt.layers.SinusoidalPositionalEncoding()
one, other = positions(words), positions(words[:, order])
read, shuffled = np.array(attend(one, one)), np.array(attend(other, other))
print("with positions:", np.allclose(read[:, order], shuffled, atol=1e-5))

# %% [markdown]
# ## Sines and cosines
# A position is written as a clock writes the time, with hands that turn at different
# speeds: each pair of columns is the sine and the cosine of one hand. The first hands
# turn fast and tell neighbours apart; the last ones turn slowly and tell the beginning
# of a long text from its end. There is nothing to learn, and no last position.

# %%
LENGTH, DIM = 64, 128
sinusoids = kt.layers.SinusoidalPositionalEncoding()
table = np.array(sinusoids(np.zeros((1, LENGTH, DIM), "float32"))[0])
show(kt.plots.position_table(table), "sinusoids")

# %% [markdown]
# Attention compares by dot products, so look at those of positions with each other.
# Each is a sum of `cos(speed * distance)`: it depends on how far apart two positions
# are, not on where they stand, and is largest for neighbours.

# %%
products = table @ table.T
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
image = left.imshow(products, "RdBu_r", vmin=-DIM / 2, vmax=DIM / 2)
left.set(title="dot products", xlabel="position", ylabel="position")
figure.colorbar(image, ax=left)
for position in (8, 32, 56):
    distances = np.arange(LENGTH) - position
    right.plot(distances, products[position], label=f"from position {position}")
right.set(title="… depend on the distance alone", xlabel="distance")
right.legend(frameon=False)
show(figure, "products")

# %% [markdown]
# What is more, going `k` positions on turns every hand by a fixed angle: a rotation
# that is the same wherever one starts. One matrix can thus say "three to the left",
# which is why the authors hoped that a network would learn to attend by distance. What
# remains below is what float32 rounds away of numbers up to 1.

# %%
speeds = 10000 ** (-np.arange(0, DIM, 2) / DIM)
sines, cosines = np.sin(3 * speeds), np.cos(3 * speeds)
turned = np.empty_like(table)
turned[:, 0::2] = table[:, 0::2] * cosines + table[:, 1::2] * sines
turned[:, 1::2] = table[:, 1::2] * cosines - table[:, 0::2] * sines
print("three on is a rotation, but for", np.abs(turned[:-3] - table[3:]).max())

# %% [markdown]
# ## A learned table
# The other way is to give each position a vector of its own and to learn it with the
# rest. It costs weights, and has an end: there is no vector for a position that was
# never seen. Let two small networks learn to name the symbol three places before, one
# with each kind of position, on sequences of 16 symbols.

# %%
SYMBOLS, SHORT, LONG, BACK, WIDTH = 11, 16, 32, 3, 64
draw = np.random.default_rng(1)


def network(encoding=None, positions=None):
    """One block, whose inputs or whose attention tell positions."""
    inputs = keras.Input((None,), dtype="int32")
    states = keras.layers.Embedding(SYMBOLS, WIDTH)(inputs)
    if encoding is not None:
        states = encoding(states)
    states = kt.layers.CausalBlock(4, intermediate_dim=WIDTH, positions=positions)(
        states
    )
    model = keras.Model(inputs, keras.layers.Dense(SYMBOLS)(states))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1)
    model.compile(keras.optimizers.Adam(3e-3), loss)
    return model


def sequences(count, length):
    symbols = draw.integers(SYMBOLS, size=(count, length), dtype="int32")
    before = np.roll(symbols, BACK, axis=1)
    before[:, :BACK] = -1  # there is none
    return symbols, before


def accuracy(model, length):
    symbols, before = sequences(512, length)
    found = model.predict(symbols, verbose=0).argmax(axis=-1)
    return (found == before)[:, BACK:].mean(axis=0)


def train(name, model):
    model.fit(*sequences(8192, SHORT), 64, epochs=EPOCHS, verbose=0)
    print(f"{name}: {accuracy(model, SHORT).mean():.0%} right at length {SHORT}")
    return model


learned = kt.layers.LearnedPositionalEncoding(max_length=SHORT)
learned.build((None, None, WIDTH))
before_training = learned.table.numpy()
fixed = kt.layers.SinusoidalPositionalEncoding()
networks = {
    "learned": train("learned", network(learned)),
    "sinusoidal": train("sinusoidal", network(fixed)),
}

# %% [markdown]
# At first the learned vectors have nothing to do with each other. Nobody tells them
# which positions are neighbours; they have to find out.


# %%
def cosines_of(vectors):
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors @ vectors.T


tables = {
    "learned, before": before_training,
    "learned, after": learned.table.numpy(),
    "sinusoidal": np.array(fixed(np.zeros((1, SHORT, WIDTH), "float32"))[0]),
}
figure, panels = plt.subplots(1, 3, figsize=(10, 3.3), layout="constrained")
for axes, (title, vectors) in zip(panels, tables.items(), strict=True):
    image = axes.imshow(cosines_of(vectors), "RdBu_r", vmin=-1, vmax=1)
    axes.set(title=title, xlabel="position")
figure.colorbar(image, ax=panels, label="cosine")
show(figure, "learned")

# %% [markdown]
# ## Added or concatenated
# Positions are mostly added to the words, and share their columns with them. Given
# columns of their own, they stay apart from the words, at the price of wider states.

# %%
beside = kt.layers.SinusoidalPositionalEncoding(merge="concatenate", encoding_dim=16)
print(words.shape, "→", beside(words).shape)

# %% [markdown]
# ## Positions in the scores
# What attention needs to know is not where two words stand but how far apart. Two later
# ways write just that into the scores, in every layer, and leave the words alone.
#
# *Rotary* positions ([Su et al., 2021](https://arxiv.org/abs/2104.09864)) turn each
# pair of columns of query and key as the clock above turns its hands. The dot product
# of two vectors that are both turned depends only on the angle between the turns: on
# the distance. Here the query is one and the same at all positions, and so is the key:
# what is left in the picture are the diagonals.

# %%
rotary = kt.layers.RotaryEmbedding()
query, key = draw.standard_normal((2, DIM), "float32")
queries, keys = (np.tile(each, (LENGTH, 1)) for each in (query, key))
products = np.array(rotary(queries)) @ np.array(rotary(keys)).T
print("distance alone:", np.allclose(products[1:, 1:], products[:-1, :-1], atol=1e-3))
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
most = np.abs(products).max()
image = left.imshow(products, "RdBu_r", vmin=-most, vmax=most)
left.set(title="one query, one key, turned", xlabel="key at", ylabel="query at")
figure.colorbar(image, ax=left)
for position in (8, 32, 56):
    right.plot(np.arange(LENGTH) - position, products[position], label=f"at {position}")
right.set(title="… depend on the distance alone", xlabel="distance")
right.legend(frameon=False)
show(figure, "rotary")

# %% [markdown]
# *Linear biases* (ALiBi, [Press et al., 2021](https://arxiv.org/abs/2108.12409)) take
# from each score the distance times a slope. Heads with a steep slope see what is
# close, heads with a gentle one see far. Drawn here for a decoder, which looks back
# only, with scores that are otherwise all alike: the first four of eight heads.

# %%
NEAR = 12
biases = kt.layers.LinearPositionBias()
alike = np.zeros((1, 8, NEAR, NEAR), "float32")  # (batch, heads, query, key)
shares = kt.layers.masked_softmax(biases(alike), kt.layers.causal_mask(NEAR))
tokens = [str(place) for place in range(NEAR)]
show(kt.plots.attention_map(tokens, tokens, shares[0, :4]), "linear_biases")

# %% [markdown]
# Any layer and model takes either as its `positions`: in the network from above, in
# place of what was added to the words.

# %%
networks["rotary"] = train("rotary", network(positions="rotary"))
networks["linear bias"] = train("linear bias", network(positions="linear_bias"))

# %% [markdown]
# ## Longer than ever seen
# All that was trained on 16 symbols now reads 32. The learned table refuses. The
# sinusoids go on, but that a position *has* a vector does not mean that the network
# knows what to do with it: it has never met those vectors, and guesses. Rotary
# positions do not care: three places are three places anywhere, and all answers are
# right. Linear biases go on as well as they began, which in this task is not well (83%
# right at 16 symbols, 59% beyond): to them near is more than far, and "exactly three"
# is hard to say. Their authors measure them on language, where near is mostly what
# counts.

# %%
try:
    learned.encoding(LONG)
except ValueError as error:
    print(error)

figure = plt.figure(figsize=(7, 3), layout="constrained")
axes = figure.add_subplot(xlabel="position", ylabel="share of right answers")
for name in ("sinusoidal", "rotary", "linear bias"):
    right = accuracy(networks[name], LONG)
    beyond = right[SHORT - BACK :]
    print(f"{name}: {beyond.mean():.0%} right beyond position {SHORT}")
    axes.plot(np.arange(BACK, LONG), right, ".-", label=name)
axes.axvline(SHORT - 0.5, color="0.6", linestyle="--", label="longest in training")
axes.axhline(1 / SYMBOLS, color="0.6", linestyle=":", label="guessing")
axes.set_ylim(0, 1.05)
axes.legend(frameon=False)
show(figure, "longer")

# %% [markdown]
# ## What to try next
# - Give `SinusoidalPositionalEncoding` another `max_wavelength`, and look at the table
#   and its dot products again. Which is too small for 64 positions?
# - Train `network` on sequences of 32 symbols, then ask it about 64. Does it help that
#   it has seen longer ones?
# - Let the network name the *most frequent* symbol instead. Does it need positions?
#
# Sources: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.5;
# [Gehring et al., 2017](https://arxiv.org/abs/1705.03122) learn positions.
