# %% [markdown]
# # A translator from parallel text, end to end
#
# Two text files that are translations of each other go in; a model that translates
# strings comes out, ready for TF Serving. The text here is made on the spot: dates,
# amounts and names as English and German write them, from Unicode CLDR. With your own
# files, leave the first step out.
#
# On two cores this takes about three minutes.

# %%
import os
import tempfile
from pathlib import Path

import keras
import matplotlib.pyplot as plt
import tensorflow as tf

import keras_transformer as kt

EPOCHS = int(os.environ.get("TUTORIAL_EPOCHS", "10"))
PHRASES = int(os.environ.get("TUTORIAL_PHRASES", "20000"))
FOLDER = Path(os.environ.get("TUTORIAL_FOLDER") or tempfile.mkdtemp())


def show(figure, name):
    """Keeps a figure in FOLDER; a notebook shows it, too."""
    figure.savefig(FOLDER / f"{name}.png", dpi=100)
    plt.close(figure)
    return figure


# %% [markdown]
# ## Parallel text
# One sentence a line; line *n* of the one file translates line *n* of the other.

# %%
phrases = kt.datasets.locale_phrases("en", "de", train=PHRASES)
for split in ("train", "validation"):
    for language, lines in zip(("en", "de"), getattr(phrases, split), strict=True):
        (FOLDER / f"{split}.{language}").write_text("\n".join(lines) + "\n", "utf-8")
print(phrases.train.source[0], "→", phrases.train.target[0])

# %% [markdown]
# ## Subwords
# A network reads numbers, not words. SentencePiece splits text into frequent pieces,
# so that any word can be spelled with a small vocabulary. One vocabulary serves both
# languages: names and numbers are then the same pieces on both sides.

# %%
files = [FOLDER / "train.en", FOLDER / "train.de"]
tokenizer = kt.text.SubwordTokenizer.train(
    files, vocabulary_size=2000, split_digits=True
)
print(tokenizer.pieces(tokenizer(["in 265 hours"])[0]))

# %% [markdown]
# ## Batches
# Sentences of about the same length share a batch, so that little is padding. Batches
# are counted in tokens and come in a few fixed shapes. The decoder is given the target
# up to a position, and asked for the next token: `target_ids` begin with the start
# symbol, `labels` are the same one step ahead and finish with the end symbol.

# %%
settings = {"tokens_per_batch": 2048, "max_length": 32}
train_data = kt.text.parallel_dataset(*files, tokenizer, tokenizer, **settings)
validation_data = kt.text.parallel_dataset(
    FOLDER / "validation.en",
    FOLDER / "validation.de",
    tokenizer,
    tokenizer,
    shuffle=False,
    **settings,
)
inputs, labels = next(iter(train_data))
print({name: ids.shape for name, ids in inputs.items()}, labels.shape)

# %% [markdown]
# ## The model
# The encoder-decoder of "Attention is all you need", small, and normalised before each
# sub-layer rather than after it, which trains with less care.

# %%
keras.utils.set_random_seed(1)
model = kt.models.Transformer.from_preset(
    "tiny", tokenizer.vocabulary_size, num_layers=2, normalize_first=True, dropout=0.0
)
schedule = kt.training.InverseSquareRootSchedule.with_peak(
    2e-3, hidden_dim=128, warmup_steps=200
)
model.compile(
    kt.training.Adam(schedule),
    kt.training.TokenCrossentropy(),
    metrics=[kt.training.TokenAccuracy()],
)
history = model.fit(
    train_data,
    validation_data=validation_data,
    epochs=EPOCHS,
    shuffle=False,  # the dataset does it
    verbose=2,
)
show(kt.plots.training_curves(history), "translator")

# %% [markdown]
# What counts is the curve of the text that the model has not trained on: while it goes
# on falling, so may the training.
#
# ## Strings in, strings out

# %%
translator = kt.Translator(model, tokenizer, max_source_length=32)
held_out = phrases.test.source[:8]
for source, translation in zip(held_out, translator.translate(held_out), strict=True):
    print(source, "→", translation)

# %% [markdown]
# ## Served
# The SavedModel takes strings and returns strings: subwords, model and beam search are
# all inside. TF Serving loads it as it is; so does TensorFlow, without this package.
# `saved_models/README.md` shows the requests.

# %%
translator.export(FOLDER / "saved_models" / "en-de" / "1")
served = tf.saved_model.load(FOLDER / "saved_models" / "en-de" / "1")
answer = served.signatures["serving_default"](text=tf.constant(held_out[:2]))
print([text.decode() for text in answer["translation"].numpy()])

# %% [markdown]
# ## What to try next
# - Other languages: `locale_phrases("en", "fr")` changes nothing else.
# - `kt.decoding.Sampling(temperature=0.7, seed=1)` as the `search` of `translate`.
# - Your own text, and `keras-transformer train`, which adds checkpoints, BLEU,
#   TensorBoard and resuming to what stands here.
