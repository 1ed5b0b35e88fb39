# %% [markdown]
# # A language model
#
# A language model is asked one question over and over: what comes next? Nobody has to
# label anything, for every text is full of answers. This tutorial trains a small one on
# plain text, lets it write, and measures how well it foretells a text that is longer
# than it can see at once.
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
    """Keeps a figure in FOLDER; a notebook shows it, too."""
    figure.savefig(FOLDER / f"{name}.png", dpi=100)
    plt.close(figure)
    return figure


# %% [markdown]
# ## Plain text
# Python brings half a megabyte of its own reference manual with it, in about 80 topics:
# what `help("for")` shows. One topic in eight is held out. A file holds a topic a line;
# subwords are learned from the one to train on.

# %%
names = sorted(topics)[:TOPICS]
parts = {
    "test": names[::8],
    "train": [name for name in names if name not in names[::8]],
}
files = {part: FOLDER / f"{part}.txt" for part in parts}
for part, some in parts.items():
    lines = [" ".join(topics[name].split()) for name in some]
    files[part].write_text("\n".join(lines), "utf-8")
tokenizer = kt.text.SubwordTokenizer.train(files["train"], vocabulary_size=1000)
print({part: len(some) for part, some in parts.items()}, "topics")

# %% [markdown]
# ## What comes next
# The topics stand one after the other in a long row, each between a start and an end
# symbol, and the row is cut into windows. What the model is to say at each place is
# what stands one place on: 96 questions a window, all asked at once. A causal mask
# keeps it from looking at the answers. `language_dataset` does this with files of any
# size, and brings the windows of each epoch in an order of its own.

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
# The *perplexity* is between how many subwords, all equally likely, the model might as
# well have to choose. One that knows nothing has 1,000, as many as there are. Ours
# ended at 53 on the topics that it has not read.
#
# ## What it expects
# After the first words of a sentence, each subword has a probability.


# %%
def ids_of(text):
    return np.array([[tokenizer.start_id, *tokenizer([text])[0].numpy()]])


prompt = "If the object is"
logits = np.array(model(ids_of(prompt)))[0, -1]
shares = np.exp(logits - np.logaddexp.reduce(logits))
likely = np.argsort(-shares)[:12]
figure = plt.figure(figsize=(7, 3), layout="constrained")
axes = figure.add_subplot(title=f"{prompt} …", ylabel="probability")
axes.bar(range(len(likely)), shares[likely])
pieces = [piece.replace("\u2581", "␣") for piece in tokenizer.pieces(likely)]
axes.set_xticks(range(len(likely)), pieces, rotation=45)
show(figure, "expected")

# %% [markdown]
# ## Let it write
# To go on, one subword is chosen, put at the end, and the question asked again. How to
# choose is a matter of the search, any of `kt.decoding`. `generate` keeps what it has
# computed of the text so far in a cache, and gives each continuation the log of its
# probability as its score.
#
# - The likeliest subword, always: greedy search. It soon goes in circles.
# - The likeliest *text*: beam search keeps several going. It finds likelier texts than
#   greedy search, and duller ones.
# - Drawn by its probability: sampling. A `temperature` below 1 makes the likely
#   likelier, `top_p` leaves out the long tail of what hardly ever comes.

# %%
searches = {
    "greedy": kt.decoding.GreedySearch(),
    "beam": kt.decoding.BeamSearch(4, length_penalty=0.0),
    "sampling": kt.decoding.Sampling(seed=1),
    "cooler": kt.decoding.Sampling(temperature=0.6, top_p=0.9, seed=1),
}
for prompt in ("The for statement", "If the object is"):
    print(f"\n{prompt} …")
    for name, search in searches.items():
        ids, scores = model.generate(ids_of(prompt), search, max_length=40)
        text = tokenizer.detokenize(ids[0, 0]).numpy().decode()
        print(f"{name:>9} {scores[0, 0]:6.1f}  … {text}")

# %% [markdown]
# It knows which words go together, and nothing of Python: what fits into half a million
# weights after a minute. Against going in circles there are processors, such as
# `GreedySearch(processors=[kt.decoding.NoRepeatNgram(3)])`.
#
# ## A text longer than the window
# How well does it foretell a long text, of which it sees 96 subwords at a time? Cut
# into windows, as above, the first word of each is foretold from nothing. Let the
# window *slide*, and score only what no window before has scored: then each word has
# at least `window - stride` before it. It takes longer, and is closer to what the
# model can do: half a window at a time brought 52.9 down to 51.1 here, and shorter
# strides no further.

# %%
ids, labels = (np.concatenate(side) for side in zip(*test, strict=True))
text = ids[ids != tokenizer.pad_id]  # the windows, one after the other
strides = [96, 64, 48, 24, 12]
perplexities = [
    kt.training.sliding_window_perplexity(model, text, LENGTH, stride)
    for stride in strides
]
print(dict(zip(strides, np.round(perplexities, 1).tolist(), strict=True)))

# %% [markdown]
# Where does the difference come from? Mostly from the first places of a window, which
# have little before them. After these it matters more what the text says.

# %%
is_full = labels.all(axis=1)
ids, labels = ids[is_full], labels[is_full]
logits = model.predict(ids, verbose=0)
logits -= np.logaddexp.reduce(logits, axis=-1, keepdims=True)
losses = -np.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
groups = np.array_split(losses, 12, axis=1)  # of eight places
figure = plt.figure(figsize=(7, 3), layout="constrained")
axes = figure.add_subplot(xlabel="place in the window", ylabel="perplexity")
axes.plot(4 + 8 * np.arange(12), [np.exp(each.mean()) for each in groups], ".-")
axes.set_ylim(bottom=0)
show(figure, "places")

# %% [markdown]
# ## What to try next
# - Your own text: any file of one document a line, plain or gzipped.
# - Twice the layers, or twice the epochs. Which of the two curves above says when more
#   training does not help any more?
# - Other temperatures, from 0.3 to 1.5. Where does it stop to make sense?
# - `model.attention_scores(ids)["decoder"]` in `kt.plots.attention_map`: what does a
#   closing quotation mark look at?
#
# Sources: [Radford et al., 2018](https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf)
# train such a model and call it GPT; [Holtzman et al., 2020](https://arxiv.org/abs/1904.09751)
# on why the likeliest text is a dull one;
# [Baevski and Auli, 2019](https://arxiv.org/abs/1809.10853) slide the window.
