# %% [markdown]
# # Looking at attention
#
# A translator writes one piece after another. For each piece it attends to the source
# and to what it has written so far; before that, its encoder lets the pieces of the
# source attend to each other. All of this attention can be plotted. This tutorial
# trains a small translator, with fewer explanations than
# [03_translator.py](03_translator.py), and then looks inside it.
#
# It takes about two minutes on two cores.

# %%
import os
import tempfile
from pathlib import Path

import keras
import matplotlib.pyplot as plt
import numpy as np

import keras_transformer as kt

EPOCHS = int(os.environ.get("TUTORIAL_EPOCHS", "10"))
PHRASES = int(os.environ.get("TUTORIAL_PHRASES", "12000"))
FOLDER = Path(os.environ.get("TUTORIAL_FOLDER") or tempfile.mkdtemp())


def show(figure, name):
    """Saves a figure to FOLDER and returns it, so that a notebook displays it."""
    figure.savefig(FOLDER / f"{name}.png", dpi=100)
    plt.close(figure)
    return figure


# %% [markdown]
# ## A small translator
# It translates English dates, amounts and names to German.

# %%
phrases = kt.datasets.locale_phrases("en", "de", train=PHRASES)
files = [FOLDER / "train.en", FOLDER / "train.de"]
for file, lines in zip(files, phrases.train, strict=True):
    file.write_text("\n".join(lines) + "\n", "utf-8")
tokenizer = kt.text.SubwordTokenizer.train(
    files, vocabulary_size=1000, split_digits=True
)
dataset = kt.text.parallel_dataset(
    *files, tokenizer, tokenizer, tokens_per_batch=2048, max_length=48
)
keras.utils.set_random_seed(1)
model = kt.models.Transformer(
    tokenizer.vocabulary_size,
    num_layers=2,
    hidden_dim=96,
    num_heads=4,
    intermediate_dim=192,
    dropout=0.0,
    normalize_first=True,
)
schedule = kt.training.InverseSquareRootSchedule.with_peak(
    3e-3, hidden_dim=96, warmup_steps=150
)
model.compile(
    keras.optimizers.Adam(schedule, beta_2=0.98, epsilon=1e-9),
    kt.training.TokenCrossentropy(),
    metrics=[kt.training.TokenAccuracy()],
)
model.fit(dataset, epochs=EPOCHS, shuffle=False, verbose=2)
translator = kt.Translator(model, tokenizer, max_source_length=48)

# %% [markdown]
# ## Alignment
# The cross-attention, averaged over the heads of all layers but the first, is close to
# an alignment: each row is a piece of the translation, and its dark cells show which
# pieces of the source it attended to. Attention was introduced with such a picture
# ([Bahdanau et al., 2014](https://arxiv.org/abs/1409.0473), figure 3). It is close, but
# not the same: "März" may attend more to the blank after "March" than to "March", since
# the encoder has mixed the states of neighbours.

# %%
phrase = "Tuesday, March 14, 2023"
show(kt.plots.translation_attention(translator, phrase), "alignment")

# %% [markdown]
# ## Every head of every layer
# `translate_with_attention` returns the tokens and all attention scores (Keras's name
# for the weights after the softmax). For the encoder, the decoder and the
# cross-attention they have the shape `(layers, heads, query, key)`. Index them to draw
# one head, all heads of a layer, or all layers.

# %%
attended = kt.plots.translate_with_attention(translator, phrase)
print(attended.text, {name: scores.shape for name, scores in attended.scores.items()})
source, target = attended.source_tokens, attended.target_tokens
show(kt.plots.attention_map(target, source, attended.scores["cross"][-1]), "heads")

# %%
show(kt.plots.attention_map(source, source, attended.scores["encoder"]), "encoder")

# %% [markdown]
# The decoder reads its own output, shifted by one: each piece attends to the pieces
# before it. The first piece can attend only to the start token.

# %%
inputs = ["<s>", *target[:-1]]
show(kt.plots.attention_map(target, inputs, attended.scores["decoder"]), "decoder")

# %% [markdown]
# ## A page to explore
# Layers times heads times words soon make too many figures. The HTML page below lets
# you choose: open it in a browser, select a map, then point at a word. It is a single
# file and needs no network; in a notebook, display it with `IPython.display.IFrame`.
# The shell makes the same page:
# `keras-transformer plot attention MODEL "..." -o page.html`.

# %%
page = FOLDER / "attention.html"
page.write_text(kt.plots.attention_html(attended), "ascii")
print(page.as_uri())

# %% [markdown]
# ## From looking to measuring
# One sentence proves nothing. A picture may suggest that "this head looks at the piece
# before"; to know, measure it over many sentences. Here we compute the mean attention
# score that each head gives to the piece at each distance.

# %%
MAX_DISTANCE = 4
offsets = np.arange(-MAX_DISTANCE, MAX_DISTANCE + 1)
sums, counts = 0, np.zeros(len(offsets))
for text in phrases.test.source[:20]:
    scores = kt.plots.translate_with_attention(translator, text).scores["encoder"]
    diagonals = [np.diagonal(scores, offset, 2, 3) for offset in offsets]
    sums += np.stack([each.sum(axis=-1) for each in diagonals], axis=-1)
    counts += [each.shape[-1] for each in diagonals]
means = (sums / counts).reshape(-1, len(offsets))  # (layers * heads, offsets)

layers, heads = attended.scores["encoder"].shape[:2]
names = [
    f"layer {layer}, head {head}" for layer in range(layers) for head in range(heads)
]
figure = plt.figure(figsize=(6, 3.5), layout="constrained")
axes = figure.add_subplot(title="where the encoder's heads look", xlabel="distance")
image = axes.imshow(means, "Blues", vmin=0, aspect="auto")
axes.set_xticks(range(len(offsets)), [f"{offset:+d}" for offset in offsets])
axes.set_yticks(range(len(names)), names)
figure.colorbar(image, ax=axes, label="mean attention score")
show(figure, "distances")

# %% [markdown]
# ## What to try next
# - On the page, choose a word that the model got wrong. Where did it look?
# - Turn off one head: set its rows of the output projection to zero. Which heads can
#   the translation do without?
# - Attention shows where information *could* flow, not that it was used: read
#   [Jain and Wallace, 2019](https://arxiv.org/abs/1902.10186) and the reply by
#   [Wiegreffe and Pinter, 2019](https://arxiv.org/abs/1908.04626).
