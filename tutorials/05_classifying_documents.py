# %% [markdown]
# # Classifying documents
#
# Which of these does a text belong to? To answer, a model has to make one vector of
# many words, and few of them matter. This tutorial lets attention pick them, and draws
# what it picked. Then it takes most labels away, and gets some of the loss back from
# text that has none: by word vectors, and by an encoder that has read before.
#
# The documents are on your disk already: what Python, NumPy, Matplotlib and Keras say
# of their own functions and classes. Numbers in the text are from one run; yours will
# differ, as your versions do. That run took 28 minutes, on two cores that were busy
# with much else.

# %%
import ast
import os
import random
import re
import sysconfig
import tempfile
from importlib.util import find_spec
from pathlib import Path

import keras
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf

import keras_transformer as kt

EPOCHS = int(os.environ.get("TUTORIAL_EPOCHS", "12"))
DOCUMENTS = int(os.environ.get("TUTORIAL_DOCUMENTS", "1400"))  # of each library
FOLDER = Path(os.environ.get("TUTORIAL_FOLDER") or tempfile.mkdtemp())


def show(figure, name):
    """Keeps a figure in FOLDER; a notebook shows it, too."""
    figure.savefig(FOLDER / f"{name}.png", dpi=100)
    plt.close(figure)
    return figure


# %% [markdown]
# ## Documents
# Docstrings, up to where they begin to list arguments: that would give them away by
# their layout. The names of the libraries are taken out, too, or there would be nothing
# to learn.

# %%
LIBRARIES = ["python", "numpy", "matplotlib", "keras"]
NAMES = r"(?i)\b(python|numpy|np|matplotlib|mpl|pyplot|plt|keras|tensorflow|tf)\b"
LISTS = r"\n\s*\n\s*(Arg|Param|Return|Rais|Example|See Also|Note|Ref|Call|Attr|Yield)"
NO_SOURCES = {"site-packages", "dist-packages", "test", "tests"}


def docstrings(library, count):
    """Words of the docstrings of a library, joined by spaces."""
    root = Path(sysconfig.get_path("stdlib"))
    if library != "python":
        root = Path(find_spec(library).origin).parent
    paths = sorted(root.rglob("*.py"))
    paths = [path for path in paths if not NO_SOURCES & {*path.relative_to(root).parts}]
    random.Random(1).shuffle(paths)
    found = {}  # no text twice
    for path in paths:
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                text = re.split(LISTS, ast.get_docstring(node) or "")[0]
                words = re.findall("[a-z]+", re.sub(NAMES, "", text).lower())
                if len(words) >= 8:
                    found[" ".join(words)] = None
        if len(found) >= count:
            break
    return list(found)[:count]


texts, labels = [], []
for label, library in enumerate(LIBRARIES):
    texts += docstrings(library, DOCUMENTS)
    labels += [label] * (len(texts) - len(labels))
    print(f"{library}: {len(texts[-1])} {texts[-1][:70]}")

# %% [markdown]
# Words become numbers: 0 is padding, 1 any word that is not among the commonest. One
# document in five is held out.

# %%
MOST_WORDS, LENGTH = 2000, 48
order = np.random.default_rng(1).permutation(len(texts))
texts, labels = np.array(texts, object)[order], np.array(labels, "int32")[order]
held_out, train = slice(len(texts) // 5), slice(len(texts) // 5, None)
vectorize = keras.layers.TextVectorization(MOST_WORDS, output_sequence_length=LENGTH)
vectorize.adapt(texts[train])
words = [*vectorize.get_vocabulary(), "[mask]"]  # the last for what is hidden later
ids = vectorize(texts).numpy().astype("int32")
print(ids[train].shape, len(words))

# %% [markdown]
# ## An encoder, and one question
# In `TextClassifier` an encoder lets the words read each other. Then
# `AttentionPooling` asks all of them one question, a query that it has learned, and
# mixes them by how well they answer
# ([Yang et al., 2016](https://aclanthology.org/N16-1174)). From the mixture a linear
# layer tells the class. Four times through all labels, and about 83% of the held-out
# documents are told right; guessing would give a quarter.
#
# The encoder has one layer only: the more words read each other, the less each is
# itself, and the less a picture of words can tell.

# %%
SIZES = {
    "num_layers": 2,
    "hidden_dim": 64,
    "num_heads": 4,
    "intermediate_dim": 128,
    "dropout": 0.2,
    "normalize_first": True,
}


def fit(model, learn_from, epochs, rate=1e-3):
    """Returns the share of held-out documents told right after each epoch."""
    model.compile(
        keras.optimizers.Adam(rate),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    held_out_data = ids[held_out], labels[held_out]
    history = model.fit(
        ids[learn_from],
        labels[learn_from],
        epochs=epochs,
        validation_data=held_out_data,
        verbose=0,
    )
    return history.history["val_accuracy"]


keras.utils.set_random_seed(1)
model = kt.models.TextClassifier(
    len(words), len(LIBRARIES), **SIZES | {"num_layers": 1}
)
everything = fit(model, train, min(EPOCHS, 4), 5e-3)[-1]
print(f"all labels: {everything:.0%} right")

# %% [markdown]
# ## What it went by
# The shares that the query gave to the words of one held-out document:

# %%
lengths = (ids > 0).sum(axis=1)
logits = model.predict(ids[held_out], verbose=0)
right = logits.argmax(axis=1) == labels[held_out]
fits = right & (lengths[held_out] > 30) & (lengths[held_out] < LENGTH)
sure = np.where(fits, logits.max(axis=1), -np.inf).argmax()
print("told to be of", LIBRARIES[labels[sure]])
weights = np.array(model.pooling_scores(ids[sure][None]))[0, : lengths[sure]]
show(kt.plots.pooled_attention(texts[sure].split()[:LENGTH], weights), "pooled")

# %% [markdown]
# One picture proves nothing. So over all held-out documents: which words get most, and
# which least, where 1 is what they would get if all shares were equal? In our run
# "distribution", "weights", "slice" and "ndarray" had 1.4 or more, "the", "to" and "by"
# 0.8. That is a choice, but no sharp one: the encoder has told each word of the others.

# %%
pooled = np.concatenate(
    [
        np.array(model.pooling_scores(batch))
        for batch in np.array_split(ids[held_out], 9)
    ]
)
times = np.bincount(ids[held_out].ravel(), minlength=len(words))
shares = pooled * lengths[held_out][:, None]
means = np.bincount(ids[held_out].ravel(), shares.ravel(), len(words))
means = np.where(times >= 10, means / np.maximum(times, 1), 0)
means[:2] = 0  # padding, and words without a number
ranked = [word for word in np.argsort(-means) if means[word]]
for part in (ranked[:10], ranked[-10:]):
    print(", ".join(f"{words[word]} {means[word]:.1f}" for word in part))

# %% [markdown]
# ## Few labels
# Labels cost somebody's time, text is free. Let only 200 documents have a label. A
# classifier that begins from nothing, words included, got 54% right.

# %%
FEW = slice(train.start, train.start + 200)
keras.utils.set_random_seed(1)
classifier = kt.models.TextClassifier(len(words), len(LIBRARIES), **SIZES)
curves = {"from nothing": fit(classifier, FEW, EPOCHS)}

# %% [markdown]
# ## Word vectors
# Words that stand among the same words mean something similar. That needs no label: it
# can be counted. Below, how much more often than by chance two words stand within four
# words of each other, and the 64 directions that tell most of it
# ([Levy and Goldberg, 2014](https://proceedings.neurips.cc/paper/2014/hash/feab05aa91085b7a8012516bc3533958-Abstract.html)).
# Others have done so, or much the same, for the words of whole libraries:
# `load_word_vectors` reads the text format of word2vec, GloVe and fastText, which this
# writes.

# %%
counts = np.zeros((len(words), len(words)))
for distance in range(1, 5):
    pairs = np.stack([ids[train][:, :-distance], ids[train][:, distance:]]).reshape(
        2, -1
    )
    np.add.at(counts, tuple(pairs[:, (pairs > 1).all(axis=0)]), 1)
counts += counts.T
expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / counts.sum()
together = np.log(np.maximum(counts / np.maximum(expected, 1e-9), 1))
sizes, directions = np.linalg.eigh(together)
directions = directions[:, -64:] * np.sqrt(np.maximum(sizes[-64:], 0))
norms = np.linalg.norm(directions, axis=1, keepdims=True)
directions = 8 * directions / np.maximum(norms, 1e-9)  # about 1 in each column
with open(FOLDER / "vectors.txt", "w", encoding="utf-8") as file:
    for word, vector in zip(words, directions, strict=True):
        if vector.any():
            print(word, *vector.round(4), file=file)

# %%
vectors = kt.text.load_word_vectors(FOLDER / "vectors.txt", words)
for word in ("file", "tensor", "axes"):
    if word in words:
        nearest = np.argsort(-vectors @ vectors[words.index(word)])[1:7]
        print(f"{word}:", ", ".join(words[near] for near in nearest))

# %% [markdown]
# `set_word_vectors` puts them into the embedding of a model, to be trained on or, with
# `trainable=False`, to stay. With them it got 63% right.

# %%
keras.utils.set_random_seed(1)
classifier = kt.models.TextClassifier(len(words), len(LIBRARIES), **SIZES)
kt.text.set_word_vectors(classifier.encoder.embedding, vectors)
curves["from word vectors"] = fit(classifier, FEW, EPOCHS)

# %% [markdown]
# ## An encoder that has read before
# A word vector is the same wherever the word stands. More is to be had from an encoder
# that has learned to read: hide 15% of the words of a text and let it say what stood
# there ([Devlin et al., 2018](https://arxiv.org/abs/1810.04805)). It has all 4,459
# training texts for that, of which it needs no label. `masked_dataset` hides other
# words in every epoch. In the end it named 17% of those hidden in the held-out texts.

# %%
SPECIAL = (0, 1)  # never hidden
MASK = words.index("[mask]")
keras.utils.set_random_seed(1)
reader = kt.models.MaskedLanguageModel(len(words), **SIZES | {"dropout": 0.1})
kt.text.set_word_vectors(reader.encoder.embedding, vectors)
reader.compile(
    keras.optimizers.Adam(3e-3),
    kt.training.TokenCrossentropy(),
    metrics=[kt.training.TokenAccuracy()],
)
batches = tf.data.Dataset.from_tensor_slices(ids[train]).shuffle(10_000, seed=1)
masked = kt.text.masked_dataset(
    batches.batch(32, drop_remainder=True), len(words), MASK, SPECIAL, seed=1
)
masked_once = kt.text.mask_tokens(ids[held_out], (1, 2), len(words), MASK, SPECIAL)
history = reader.fit(
    masked,
    validation_data=masked_once,
    epochs=EPOCHS,
    shuffle=False,  # the dataset does it
    verbose=0,
)
show(kt.plots.training_curves(history), "reading")

# %%
for text in (
    "return the [mask] of the array",
    "raise an [mask] if the file is missing",
):
    places = [words.index(word) if word in words else 1 for word in text.split()]
    guesses = np.array(reader(np.array([places])))[0, places.index(MASK)]
    print(text, "→", ", ".join(words[guess] for guess in np.argsort(-guesses)[:6]))

# %% [markdown]
# `from_encoder` builds a classifier on the encoder that has read: the same object, so
# that to train the one is to train the other. It got 69% right.

# %%
keras.utils.set_random_seed(1)
classifier = kt.models.TextClassifier.from_encoder(reader.encoder, len(LIBRARIES))
curves["… that has read"] = fit(classifier, FEW, EPOCHS)

figure = plt.figure(figsize=(7, 3.2), layout="constrained")
axes = figure.add_subplot(xlabel="epoch", ylabel="share of right answers")
for name, right in curves.items():
    print(f"{name}: {right[-1]:.0%} right")
    axes.plot(np.arange(len(right)) + 1, right, ".-", label=name)
axes.axhline(everything, color="0.6", linestyle="--", label="all labels, from nothing")
axes.axhline(1 / len(LIBRARIES), color="0.6", linestyle=":", label="guessing")
axes.set_ylim(0, 1)
axes.legend(frameon=False, fontsize=8, ncols=2)
show(figure, "few_labels")

# %% [markdown]
# ## What to try next
# - Word vectors of others: download GloVe or fastText, make `hidden_dim` as wide as
#   they are, and load those. Do they know what an axis is to Matplotlib?
# - Keep the encoder as it has read: `reader.encoder.trainable = False` before
#   `from_encoder`. With how few labels is that the better choice?
# - Leave the names of the libraries in, and look at the pooled attention again.
# - Attention shows where the model read, not why it decided: take the darkest words out
#   of a document. Does it change its mind?
#
# Sources: [Mikolov et al., 2013](https://arxiv.org/abs/1310.4546) and
# [Pennington et al., 2014](https://aclanthology.org/D14-1162) for word vectors;
# [Liu et al., 2019](https://arxiv.org/abs/1907.11692) hide other words in every epoch.
