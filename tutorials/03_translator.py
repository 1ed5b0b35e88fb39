# %% [markdown]
# # A translator from parallel text, end to end
#
# Start with two text files that are translations of each other, and end with a model
# that translates strings and can be served by TF Serving. The text used here is
# generated: dates, amounts and names as they are written in English and German, from
# Unicode CLDR. To use your own files, skip that step.
#
# This takes about three minutes on two cores.

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
    """Saves a figure to FOLDER and returns it, so that a notebook displays it."""
    figure.savefig(FOLDER / f"{name}.png", dpi=100)
    plt.close(figure)
    return figure


# %% [markdown]
# ## Parallel text
# Each line is one sentence; line *n* of one file is the translation of line *n* of the
# other.

# %%
phrases = kt.datasets.locale_phrases("en", "de", train=PHRASES)
for split in ("train", "validation"):
    for language, lines in zip(("en", "de"), getattr(phrases, split), strict=True):
        (FOLDER / f"{split}.{language}").write_text("\n".join(lines) + "\n", "utf-8")
print(phrases.train.source[0], "→", phrases.train.target[0])

# %% [markdown]
# ## Subwords
# A network reads numbers, not words. SentencePiece splits text into frequent pieces, so
# a small vocabulary can spell any word. Both languages share one vocabulary, so names
# and numbers are the same pieces on both sides.

# %%
files = [FOLDER / "train.en", FOLDER / "train.de"]
tokenizer = kt.text.SubwordTokenizer.train(
    files, vocabulary_size=2000, split_digits=True
)
print(tokenizer.pieces(tokenizer(["in 265 hours"])[0]))

# %% [markdown]
# ## Batches
# Sentences of similar length share a batch, which keeps padding low. The size of a
# batch is counted in tokens, and batches have a few fixed shapes. The decoder reads the
# target up to each position and predicts the next token: `target_ids` begin with the
# start token, and `labels` are the same tokens shifted by one, ending with the end
# token.

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
# This is the encoder-decoder of "Attention is all you need" in a small size. Layer
# normalisation comes before each sub-layer rather than after it, which makes training
# easier.

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
    shuffle=False,  # the dataset shuffles already
    verbose=2,
)
show(kt.plots.training_curves(history), "translator")

# %% [markdown]
# Watch the validation loss: as long as it falls, more epochs help.
#
# ## Strings in, strings out

# %%
translator = kt.Translator(model, tokenizer, max_source_length=32)
texts = phrases.test.source[:8]
for source, translation in zip(texts, translator.translate(texts), strict=True):
    print(source, "→", translation)

# %% [markdown]
# ## Serving
# The exported SavedModel takes strings and returns strings: it contains the tokenizer,
# the model and the beam search. TF Serving loads it directly, and so does TensorFlow
# without this package. `saved_models/README.md` shows the requests.

# %%
translator.export(FOLDER / "saved_models" / "en-de" / "1")
loaded = tf.saved_model.load(FOLDER / "saved_models" / "en-de" / "1")
outputs = loaded.signatures["serving_default"](text=tf.constant(texts[:2]))
print([text.decode() for text in outputs["translation"].numpy()])

# %% [markdown]
# ## What to try next
# - Another language: `locale_phrases("en", "fr")`. The rest of the code stays the same.
# - Another `search` for `translate`: `kt.decoding.Sampling(temperature=0.7, seed=1)`.
# - Your own text, with `keras-transformer train`: it adds checkpoints, BLEU,
#   TensorBoard and resuming.
