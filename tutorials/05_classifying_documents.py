# %% [markdown]
# # Classifying documents
#
# To classify a document, a model has to turn many words into one vector, although only
# a few of the words matter. This tutorial lets attention choose them, and plots its
# choice. Then it removes most of the labels, and recovers part of the accuracy from
# unlabelled text: first with word vectors, then with a pre-trained encoder.
#
# The documents are already on your disk: the docstrings of Python, NumPy, Matplotlib
# and Keras. The model has to tell which of the four a docstring belongs to. Numbers in
# the text are from one run, which took five minutes on two busy cores. Yours will
# differ with the versions of these packages.

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
DOCUMENTS = int(os.environ.get("TUTORIAL_DOCUMENTS", "1400"))  # from each library
FOLDER = Path(os.environ.get("TUTORIAL_FOLDER") or tempfile.mkdtemp())


def show(figure, name):
    """Saves a figure to FOLDER and returns it, so that a notebook displays it."""
    figure.savefig(FOLDER / f"{name}.png", dpi=100)
    plt.close(figure)
    return figure


# %% [markdown]
# ## Documents
# Each document is a docstring up to its first section, such as its list of arguments,
# because the layout of these sections would reveal the library. The names of the
# libraries are removed for the same reason.

# %%
LIBRARIES = ["python", "numpy", "matplotlib", "keras"]
NAMES = r"(?i)\b(python|numpy|np|matplotlib|mpl|pyplot|plt|keras|tensorflow|tf)\b"
SECTION = r"\n\s*\n\s*(Arg|Param|Return|Rais|Example|See Also|Note|Ref|Call|Attr|Yield)"
EXCLUDED_FOLDERS = {"site-packages", "dist-packages", "test", "tests"}


def docstrings(library, count):
    """Returns docstrings of a library: lowercase words joined by spaces."""
    root = Path(sysconfig.get_path("stdlib"))
    if library != "python":
        root = Path(find_spec(library).origin).parent
    paths = sorted(root.rglob("*.py"))
    paths = [
        path for path in paths if not EXCLUDED_FOLDERS & {*path.relative_to(root).parts}
    ]
    random.Random(1).shuffle(paths)
    found = {}  # keys without duplicates, in order
    for path in paths:
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                text = re.split(SECTION, ast.get_docstring(node) or "")[0]
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
# Words become ids: 0 is padding, 1 is any word outside the vocabulary. One document in
# five is held out.

# %%
VOCABULARY_SIZE, LENGTH = 2000, 48
order = np.random.default_rng(1).permutation(len(texts))
texts, labels = np.array(texts, object)[order], np.array(labels, "int32")[order]
held_out, train = slice(len(texts) // 5), slice(len(texts) // 5, None)
vectorize = keras.layers.TextVectorization(
    VOCABULARY_SIZE, output_sequence_length=LENGTH
)
vectorize.adapt(texts[train])
words = [*vectorize.get_vocabulary(), "[mask]"]  # "[mask]" will hide words
ids = vectorize(texts).numpy().astype("int32")
print(ids[train].shape, len(words))

# %% [markdown]
# ## An encoder and one learned query
# In `TextClassifier` an encoder lets the words read each other. Then `AttentionPooling`
# averages them under the attention weights of one query, which is learned
# ([Yang et al., 2016](https://aclanthology.org/N16-1174)). A linear layer computes the
# classes from this average. After four epochs on all labels, about 83% of the held-out
# documents are classified correctly; guessing would give a quarter.
#
# This encoder has only one layer. With more layers, each position holds more of the
# other words, and a plot of single words explains less.

# %%
SIZES = {
    "num_layers": 2,
    "hidden_dim": 64,
    "num_heads": 4,
    "intermediate_dim": 128,
    "dropout": 0.2,
    "normalize_first": True,
}


def fit(model, rows, epochs, learning_rate=1e-3):
    """Trains on some documents; returns the held-out accuracy after each epoch."""
    model.compile(
        keras.optimizers.Adam(learning_rate),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    history = model.fit(
        ids[rows],
        labels[rows],
        epochs=epochs,
        validation_data=(ids[held_out], labels[held_out]),
        verbose=0,
    )
    return history.history["val_accuracy"]


keras.utils.set_random_seed(1)
model = kt.models.TextClassifier(
    len(words), len(LIBRARIES), **SIZES | {"num_layers": 1}
)
accuracy_all_labels = fit(model, train, min(EPOCHS, 4), 5e-3)[-1]
print(f"all labels: {accuracy_all_labels:.0%} correct")

# %% [markdown]
# ## What it attended to
# The figure shows one held-out document, each word shaded by its attention weight:


# %%
def pooled_attention(words, weights, words_per_line=10):
    """Draws words, each in a box as dark as its attention weight is large."""
    rows = -(-len(words) // words_per_line)
    figure = plt.figure(figsize=(10, 0.35 * rows + 0.8), layout="constrained")
    axes = figure.add_subplot(xlim=(0, words_per_line), ylim=(rows, 0))
    axes.set_axis_off()
    grid = np.zeros(rows * words_per_line)
    grid[: len(words)] = weights
    image = axes.pcolormesh(grid.reshape(rows, -1), cmap="Blues", vmin=0)
    for index, (word, weight) in enumerate(zip(words, weights, strict=True)):
        row, column = divmod(index, words_per_line)
        color = "white" if weight > 0.6 * max(weights) else "black"
        axes.text(
            *(column + 0.5, row + 0.5, word[:13]),
            **{"ha": "center", "va": "center", "fontsize": 8, "color": color},
            parse_math=False,
        )
    scale = figure.colorbar(image, orientation="horizontal", shrink=0.4, aspect=40)
    scale.set_label("attention weight", fontsize=9)
    return figure


lengths = (ids > 0).sum(axis=1)
logits = model.predict(ids[held_out], verbose=0)
is_correct = logits.argmax(axis=1) == labels[held_out]
fits = is_correct & (lengths[held_out] > 30) & (lengths[held_out] < LENGTH)
example = np.where(fits, logits.max(axis=1), -np.inf).argmax()
print("classified as", LIBRARIES[labels[example]])
weights = np.array(model.pooling_scores(ids[example][None]))[0, : lengths[example]]
show(pooled_attention(texts[example].split()[:LENGTH], weights), "pooled")

# %% [markdown]
# One picture proves nothing. So compute the mean weight of each word over all held-out
# documents, relative to equal weights: 1 is what a word would get if the query made no
# difference. In our run "masked", "figure", "expression" and "order" had 1.4 or
# more, and "the", "to" and "by" had 0.8. The query does choose, but not sharply: in the
# encoder, every word has already read the others.

# %%
batches = np.array_split(ids[held_out], 9)
weights = np.concatenate([model.pooling_scores(batch) for batch in batches])
relative = weights * lengths[held_out][:, None]
counts = np.bincount(ids[held_out].ravel(), minlength=len(words))
sums = np.bincount(ids[held_out].ravel(), relative.ravel(), len(words))
means = np.where(counts >= 10, sums / np.maximum(counts, 1), 0)
means[:2] = 0  # padding and unknown words
ranked = [word for word in np.argsort(-means) if means[word]]
for selected in (ranked[:10], ranked[-10:]):
    print(", ".join(f"{words[word]} {means[word]:.1f}" for word in selected))

# %% [markdown]
# ## Few labels
# Labels take someone's time, but text is free. Suppose that only 200 documents have a
# label. A classifier trained from scratch on these, with its word embeddings,
# classified 56% correctly.

# %%
FEW = slice(train.start, train.start + 200)
keras.utils.set_random_seed(1)
classifier = kt.models.TextClassifier(len(words), len(LIBRARIES), **SIZES)
curves = {"from scratch": fit(classifier, FEW, EPOCHS)}

# %% [markdown]
# ## Word vectors
# Words that occur near the same words have similar meanings. This can be counted
# without labels. The code below counts how often two words occur within four words of
# each other, compares this with chance (positive pointwise mutual information), and
# keeps the 64 strongest directions of that matrix ([Levy and Goldberg,
# 2014](https://proceedings.neurips.cc/paper/2014/hash/feab05aa91085b7a8012516bc3533958-Abstract.html)).
# For many languages such vectors have been published, trained on far more text.
# `load_word_vectors` reads the text format of word2vec, GloVe and fastText, which this
# code also writes.

# %%
counts = np.zeros((len(words), len(words)))
for distance in range(1, 5):
    first, second = ids[train][:, :-distance].ravel(), ids[train][:, distance:].ravel()
    is_known = (first > 1) & (second > 1)
    np.add.at(counts, (first[is_known], second[is_known]), 1)
counts += counts.T
expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / counts.sum()
pmi = np.log(np.maximum(counts / np.maximum(expected, 1e-9), 1))
eigenvalues, eigenvectors = np.linalg.eigh(pmi)
word_vectors = eigenvectors[:, -64:] * np.sqrt(np.maximum(eigenvalues[-64:], 0))
norms = np.linalg.norm(word_vectors, axis=1, keepdims=True)
word_vectors = 8 * word_vectors / np.maximum(norms, 1e-9)  # a mean square of 1
with open(FOLDER / "vectors.txt", "w", encoding="utf-8") as file:
    for word, vector in zip(words, word_vectors, strict=True):
        if vector.any():
            print(word, *vector.round(4), file=file)

# %%
vectors = kt.text.load_word_vectors(FOLDER / "vectors.txt", words)
for word in ("file", "tensor", "axes"):
    if word in words:
        nearest = np.argsort(-vectors @ vectors[words.index(word)])[1:7]
        print(f"{word}:", ", ".join(words[each] for each in nearest))

# %% [markdown]
# `set_word_vectors` copies them into the embedding of a model. There they are trained
# further, or kept fixed with `trainable=False`. With word vectors the classifier
# reached 65%.

# %%
keras.utils.set_random_seed(1)
classifier = kt.models.TextClassifier(len(words), len(LIBRARIES), **SIZES)
kt.text.set_word_vectors(classifier.encoder.embedding, vectors)
curves["with word vectors"] = fit(classifier, FEW, EPOCHS)

# %% [markdown]
# ## A pre-trained encoder
# A word vector is the same in every sentence. An encoder can learn more: hide 15% of
# the words of a text, and train it to predict them
# ([Devlin et al., 2018](https://arxiv.org/abs/1810.04805)). It can use all 4,459
# training texts, because this needs no labels. `masked_dataset` hides different words
# in every epoch. In the end the encoder predicted 17% of the hidden words of held-out
# texts correctly.

# %%
SPECIAL_IDS = (0, 1)  # padding and unknown words are never hidden
MASK_ID = words.index("[mask]")
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
    batches.batch(32, drop_remainder=True), len(words), MASK_ID, SPECIAL_IDS, seed=1
)
masked_held_out = kt.text.mask_tokens(
    ids[held_out], (1, 2), len(words), MASK_ID, SPECIAL_IDS
)
history = reader.fit(
    masked,
    validation_data=masked_held_out,
    epochs=EPOCHS,
    shuffle=False,  # the dataset shuffles already
    verbose=0,
)
show(kt.plots.training_curves(history), "reading")

# %%
for text in (
    "return the [mask] of the array",
    "raise an [mask] if the file is missing",
):
    text_ids = [words.index(word) if word in words else 1 for word in text.split()]
    logits = np.array(reader(np.array([text_ids])))[0, text_ids.index(MASK_ID)]
    print(text, "→", ", ".join(words[each] for each in np.argsort(-logits)[:6]))

# %% [markdown]
# `from_encoder` builds a classifier on the pre-trained encoder. It uses the same
# object, so training the classifier also trains this encoder. It reached 69%.

# %%
keras.utils.set_random_seed(1)
classifier = kt.models.TextClassifier.from_encoder(reader.encoder, len(LIBRARIES))
curves["pre-trained encoder"] = fit(classifier, FEW, EPOCHS)

figure = plt.figure(figsize=(7, 3.2), layout="constrained")
axes = figure.add_subplot(xlabel="epoch", ylabel="accuracy")
for name, accuracy in curves.items():
    print(f"{name}: {accuracy[-1]:.0%} correct")
    axes.plot(np.arange(len(accuracy)) + 1, accuracy, ".-", label=name)
axes.axhline(
    accuracy_all_labels, color="0.6", linestyle="--", label="all labels, from scratch"
)
axes.axhline(1 / len(LIBRARIES), color="0.6", linestyle=":", label="guessing")
axes.set_ylim(0, 1)
axes.legend(frameon=False, fontsize=8, ncols=2)
show(figure, "few_labels")

# %% [markdown]
# ## What to try next
# - Published word vectors: download GloVe or fastText, set `hidden_dim` to their width,
#   and load those. Do they know what an axis is in Matplotlib?
# - Freeze the pre-trained encoder: set `reader.encoder.trainable = False` before
#   `from_encoder`. With how few labels is that the better choice?
# - Leave the names of the libraries in, and look at the pooled attention again.
# - Attention shows where the model read, not why it decided. Remove the darkest words
#   from a document: does the model change its answer?
#
# Sources: [Mikolov et al., 2013](https://arxiv.org/abs/1310.4546) and
# [Pennington et al., 2014](https://aclanthology.org/D14-1162) for word vectors;
# [Liu et al., 2019](https://arxiv.org/abs/1907.11692) hide different words in every
# epoch.
