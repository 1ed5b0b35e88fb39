# %% [markdown]
# # A language model
#
# A language model answers one question over and over: what comes next? Nobody has to
# label anything, because any text holds the answers. This tutorial trains a small model
# on plain text, lets it write, and measures how well it predicts a text that is longer
# than its window.
#
# It takes about a minute on two cores.

# %%
import os
import tempfile
from pathlib import Path
from pydoc_data.topics import topics

import keras
import matplotlib.pyplot as plt
import numpy as np

import keras_transformer as kt

EPOCHS = int(os.environ.get("TUTORIAL_EPOCHS", "10"))
TOPICS = int(os.environ.get("TUTORIAL_TOPICS", "1000"))  # at most
FOLDER = Path(os.environ.get("TUTORIAL_FOLDER") or tempfile.mkdtemp())


def show(figure, name):
    """Saves a figure to FOLDER and returns it, so that a notebook displays it."""
    figure.savefig(FOLDER / f"{name}.png", dpi=100)
    plt.close(figure)
    return figure


# %% [markdown]
# ## Plain text
# Python comes with half a megabyte of its reference manual, in about 80 topics: they
# are what `help("for")` shows. One topic in eight is held out. Each line of a file is
# one topic. The subword vocabulary is learned from the training topics only.

# %%
names = sorted(topics)[:TOPICS]
splits = {
    "test": names[::8],
    "train": [name for name in names if name not in names[::8]],
}
files = {split: FOLDER / f"{split}.txt" for split in splits}
for split, split_names in splits.items():
    lines = [" ".join(topics[name].split()) for name in split_names]
    files[split].write_text("\n".join(lines), "utf-8")
tokenizer = kt.text.SubwordTokenizer.train(files["train"], vocabulary_size=1000)
print({split: len(names) for split, names in splits.items()}, "topics")

# %% [markdown]
# ## What comes next
# `language_dataset` joins all topics into one long sequence, puts a start and an end
# token around each, and cuts the sequence into windows. The labels are the same tokens
# shifted by one: each window asks 96 questions at once, and a causal mask hides the
# answers. Files may be of any size, and each epoch has the windows in a different
# order.

# %%
LENGTH, BATCH = 96, 16
train = kt.text.language_dataset(files["train"], tokenizer, LENGTH, BATCH)
test = kt.text.language_dataset(files["test"], tokenizer, LENGTH, BATCH, shuffle=False)
ids, labels = next(iter(test))
print(tokenizer.pieces(ids[0, :9].numpy()))
print(tokenizer.pieces(labels[0, :9].numpy()))

keras.utils.set_random_seed(1)
model = kt.models.LanguageModel(
    tokenizer.vocabulary_size,
    num_layers=2,
    hidden_dim=128,
    num_heads=4,
    intermediate_dim=512,
)
schedule = keras.optimizers.schedules.CosineDecay(
    0.0, EPOCHS * len(train), warmup_target=3e-3, warmup_steps=100
)
model.compile(
    kt.training.Adam(schedule),
    kt.training.TokenCrossentropy(),
    metrics=[kt.training.Perplexity()],
)
history = model.fit(
    train, epochs=EPOCHS, validation_data=test, shuffle=False, verbose=2
)
show(kt.plots.training_curves(history), "language_model")

# %% [markdown]
# *Perplexity* measures how uncertain the model is: a perplexity of 50 means that it is
# as uncertain as if it had to choose between 50 equally likely subwords. A model that
# knows nothing has 1,000, the size of the vocabulary. Ours ended at 53 on the held-out
# topics.
#
# ## What it expects
# After the first words of a sentence, every subword has a probability. These are the
# twelve most likely ones:


# %%
def prompt_ids(text):
    """Returns the ids of a text after the start token, of shape `(1, length)`."""
    return np.array([[tokenizer.start_id, *tokenizer([text])[0].numpy()]])


prompt = "If the object is"
logits = np.array(model(prompt_ids(prompt)))[0, -1]
probabilities = np.exp(logits - np.logaddexp.reduce(logits))
likely = np.argsort(-probabilities)[:12]
figure = plt.figure(figsize=(7, 3), layout="constrained")
axes = figure.add_subplot(title=f"{prompt} …", ylabel="probability")
axes.bar(range(len(likely)), probabilities[likely])
pieces = [piece.replace("\u2581", "␣") for piece in tokenizer.pieces(likely)]
axes.set_xticks(range(len(likely)), pieces, rotation=45)
show(figure, "expected")

# %% [markdown]
# ## Let it write
# To write, choose one subword, append it, and ask again. How to choose is up to the
# search, any of `kt.decoding`. `generate` keeps what it has computed for the text so
# far in a cache. The score of each continuation is its log-probability.
#
# - Greedy search takes the most likely *subword* each time. It soon repeats itself.
# - Beam search looks for the most likely *text* and keeps several candidates. Its texts
#   are more likely than those of greedy search, and duller.
# - Sampling draws a subword by its probability. A `temperature` below 1 makes likely
#   subwords more likely, and `top_p` excludes the long tail of unlikely ones.

# %%
searches = {
    "greedy": kt.decoding.GreedySearch(),
    "beam": kt.decoding.BeamSearch(4, length_penalty=0.0),
    "sampling": kt.decoding.Sampling(seed=1),
    "sampling, cooler": kt.decoding.Sampling(temperature=0.6, top_p=0.9, seed=1),
}
for prompt in ("The for statement", "If the object is"):
    print(f"\n{prompt} …")
    for name, search in searches.items():
        ids, scores = model.generate(prompt_ids(prompt), search, max_length=40)
        text = tokenizer.detokenize(ids[0, 0]).numpy().decode()
        print(f"{name:>16} {scores[0, 0]:6.1f}  … {text}")

# %% [markdown]
# The model has learned which words go together, and nothing about Python. That is what
# half a million parameters can learn in a minute. Processors prevent repetition, for
# example `GreedySearch(processors=[kt.decoding.NoRepeatNgram(3)])`.
#
# ## A text longer than the window
# How well does the model predict a long text when it sees only 96 subwords at a time?
# If the text is cut into separate windows, as above, the first label of each window is
# predicted from a single subword. Instead, let the window *slide* by a *stride*, and
# score only the subwords that no earlier window has scored. After the first window,
# each prediction then has at least `window - stride` subwords before it. This takes
# longer, and shows better what the model can do: a stride of 64 reduced the perplexity
# from 52.9 to 50.7 here, and shorter strides did not reduce it further. See [Baevski
# and Auli, 2019](https://arxiv.org/abs/1809.10853), section 4.2, and [Press et al.,
# 2021](https://arxiv.org/abs/2012.15832), section 2.


# %%
def sliding_window_perplexity(model, ids, window, stride):
    """The perplexity of a long text, each token but the first scored once."""
    inputs, labels, num_scored, num_labels = [], [], 0, len(ids) - 1
    while num_scored < num_labels:
        begin = len(inputs) * stride
        end = min(begin + window, num_labels)
        padding = (0, window - (end - begin))
        inputs.append(np.pad(ids[begin:end], padding, constant_values=model.pad_id))
        scored = np.full(window, model.pad_id)
        scored[num_scored - begin : end - begin] = ids[num_scored + 1 : end + 1]
        labels.append(scored)
        num_scored = end
    inputs, labels = np.array(inputs), np.array(labels)
    logits = model.predict(inputs, batch_size=8, verbose=0)
    losses = keras.ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    losses = keras.ops.convert_to_numpy(losses)[labels != model.pad_id]
    return float(np.exp(losses.mean(dtype="float64")))


ids, labels = (np.concatenate(side) for side in zip(*test, strict=True))
text_ids = ids[ids != tokenizer.pad_id]  # of all windows, in order
strides = [96, 64, 48, 24, 12]
perplexities = [
    sliding_window_perplexity(model, text_ids, LENGTH, stride) for stride in strides
]
print(dict(zip(strides, np.round(perplexities, 1).tolist(), strict=True)))

# %% [markdown]
# Where does the difference come from? The first positions of a window have little text
# before them, and their perplexity is the highest. Further on, it depends more on the
# text itself.

# %%
is_full = labels.all(axis=1)
ids, labels = ids[is_full], labels[is_full]
logits = model.predict(ids, verbose=0)
logits -= np.logaddexp.reduce(logits, axis=-1, keepdims=True)
losses = -np.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
groups = np.array_split(losses, 12, axis=1)  # eight positions each
figure = plt.figure(figsize=(7, 3), layout="constrained")
axes = figure.add_subplot(xlabel="position in the window", ylabel="perplexity")
axes.plot(4 + 8 * np.arange(12), [np.exp(each.mean()) for each in groups], ".-")
axes.set_ylim(bottom=0)
show(figure, "places")

# %% [markdown]
# ## What to try next
# - Your own text: any file with one document per line, plain or gzipped.
# - Twice the layers, or twice the epochs. Which of the two curves in the first figure
#   shows when more training no longer helps?
# - Other temperatures, from 0.3 to 1.5. From which one on does the text stop making
#   sense?
# - `model.attention_scores(ids)["decoder"]` in `kt.plots.attention_map`: what does a
#   closing quotation mark attend to?
#
# Sources:
# [Radford et al., 2018](https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf)
# train such a model and call it GPT;
# [Holtzman et al., 2020](https://arxiv.org/abs/1904.09751) explain why the most likely
# text is dull; [Baevski and Auli, 2019](https://arxiv.org/abs/1809.10853) slide the
# window.
