# %% [markdown]
# # Looking at attention
#
# A translator writes word by word, and for each word it looks at the source, at what it
# has written, and, in its encoder, at the source from the source. All of these looks
# can be drawn. This tutorial trains a small translator, as
# [03_translator.py](03_translator.py) does in more words, and then watches it.
#
# On two cores it takes about two minutes.

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
    """Keeps a figure in FOLDER; a notebook shows it, too."""
    figure.savefig(FOLDER / f"{name}.png", dpi=100)
    plt.close(figure)
    return figure


# %% [markdown]
# ## A small translator
# From English dates, amounts and names to German ones.

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
# ## Who was translated from where
# The cross-attention of the last layer, averaged over its heads, is close to an
# alignment: a row for each piece that was written, dark where it came from. That is the
# picture with which attention entered the field
# ([Bahdanau et al., 2014](https://arxiv.org/abs/1409.0473), figure 3).

# %%
phrase = "Tuesday, March 14, 2023"
show(kt.plots.translation_attention(translator, phrase), "alignment")

# %% [markdown]
# ## Each head, each layer
# `translate_with_attention` keeps all of it: tokens, and for encoder, decoder and
# cross-attention scores of shape `(layers, heads, query, key)`. Index them to choose:
# one head, the heads of a layer, or all layers.

# %%
seen = kt.plots.translate_with_attention(translator, phrase)
print(seen.text, {name: scores.shape for name, scores in seen.scores.items()})
source, target = seen.source_tokens, seen.target_tokens
show(kt.plots.attention_map(target, source, seen.scores["cross"][-1]), "heads")

# %%
show(kt.plots.attention_map(source, source, seen.scores["encoder"]), "encoder")

# %% [markdown]
# The decoder reads what it has written, one step behind: the row of a piece holds the
# pieces before it. The first can look at nothing but the start symbol.

# %%
written = ["<s>", *target[:-1]]
show(kt.plots.attention_map(target, written, seen.scores["decoder"]), "decoder")

# %% [markdown]
# ## A page to explore
# With layers times heads times words, pictures soon are too many. The page picks: open
# it in a browser, choose a map, then point at a word. It is one file that needs no
# network; in a notebook, `IPython.display.IFrame` shows it. From the shell:
# `keras-transformer plot attention MODEL "..." -o page.html`.

# %%
page = FOLDER / "attention.html"
page.write_text(kt.plots.attention_html(seen), "ascii")
print(page.as_uri())

# %% [markdown]
# ## From looking to measuring
# One sentence proves nothing. A guess that came from a picture, such as "this head
# looks at the piece before", is worth something once it is counted over many sentences:
# the share that each head gives, on average, to the piece at each distance.

# %%
FURTHEST = 4
offsets = np.arange(-FURTHEST, FURTHEST + 1)
sums, counts = 0, np.zeros(len(offsets))
for text in phrases.test.source[:20]:
    scores = kt.plots.translate_with_attention(translator, text).scores["encoder"]
    diagonals = [np.diagonal(scores, offset, 2, 3) for offset in offsets]
    sums += np.stack([each.sum(axis=-1) for each in diagonals], axis=-1)
    counts += [each.shape[-1] for each in diagonals]
shares = (sums / counts).reshape(-1, len(offsets))  # (layers * heads, offsets)

layers, heads = seen.scores["encoder"].shape[:2]
names = [
    f"layer {layer}, head {head}" for layer in range(layers) for head in range(heads)
]
figure = plt.figure(figsize=(6, 3.5), layout="constrained")
axes = figure.add_subplot(title="where the encoder's heads look", xlabel="distance")
image = axes.imshow(shares, "Blues", vmin=0, aspect="auto")
axes.set_xticks(range(len(offsets)), [f"{offset:+d}" for offset in offsets])
axes.set_yticks(range(len(names)), names)
figure.colorbar(image, ax=axes, label="mean share")
show(figure, "distances")

# %% [markdown]
# ## What to try next
# - Pick on the page a word that the model got wrong. Where did it look?
# - Switch one head off: set its rows of the output projection to zero. Which heads can
#   the translation do without?
# - Attention shows where information *could* flow, not that it was used: read
#   [Jain and Wallace, 2019](https://arxiv.org/abs/1902.10186) and the answer by
#   [Wiegreffe and Pinter, 2019](https://arxiv.org/abs/1908.04626).
