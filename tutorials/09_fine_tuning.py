# %% [markdown]
# # Fine-tuning: a translator learns a new domain
#
# A pretrained translator knows one domain. Your text belongs to another, and you have a
# few hundred translated sentences of it. *Fine-tuning* continues the training on them.
# The translator then learns the new domain within a minute, and may forget the old one
# just as fast. This tutorial measures both, and shows what preserves the old domain:
# mixing in old text, with all weights, with a frozen encoder, or with low-rank
# adaptation (LoRA).
#
# It takes about ten minutes on two busy cores. A quarter of that is spent training the
# translator to fine-tune.

# %%
import os
import random
import tempfile
from pathlib import Path

import keras
import matplotlib.pyplot as plt
import numpy as np

import keras_transformer as kt

EPOCHS = int(os.environ.get("TUTORIAL_EPOCHS", "7"))
PHRASES = int(os.environ.get("TUTORIAL_PHRASES", "10000"))
SEED = 1
FOLDER = Path(os.environ.get("TUTORIAL_FOLDER") or tempfile.mkdtemp())


def show(figure, name):
    """Saves a figure to FOLDER and returns it, so that a notebook displays it."""
    figure.savefig(FOLDER / f"{name}.png", dpi=100)
    plt.close(figure)
    return figure


# %% [markdown]
# ## Two domains
# The *old* domain, on which the translator is pretrained, has 10,000 phrases: dates,
# times, durations, and lists of countries and languages. The *new* one has 500: amounts
# of money and of other units. Both are written with the same letters and digits. Most
# words of the new domain are new, and so are its conventions: English numbers have a
# decimal point, German ones a comma.

# %%
KINDS = {
    "old": [
        "date",
        "part_of_date",
        "date_and_time",
        "date_interval",
        "time",
        "time_interval",
        "relative_time",
        "duration",
        "countries",
        "languages",
    ],
    "new": ["named_money", "quantity"],
}
SIZES = {"old": PHRASES, "new": min(500, PHRASES)}
domains = {
    name: kt.datasets.locale_phrases(
        "en", "de", SIZES[name], validation=1, test=200, seed=SEED, kinds=kinds
    )
    for name, kinds in KINDS.items()
}


def write(name, pairs):
    """Writes pairs of phrases as two files of lines, and returns their paths."""
    paths = [FOLDER / f"{name}.{language}" for language in ("en", "de")]
    for path, lines in zip(paths, zip(*pairs, strict=True), strict=True):
        path.write_text("\n".join(lines) + "\n", "utf-8")
    return paths


pairs = {name: list(zip(*data.train, strict=True)) for name, data in domains.items()}
files = {name: write(name, domain_pairs) for name, domain_pairs in pairs.items()}
for name, domain_pairs in pairs.items():
    for source, target in domain_pairs[:3]:
        print(f"{name}: {source} → {target}")

# %% [markdown]
# ## A pretrained translator
# You would download one. Here, a small one is trained on the old domain, as in the
# tutorial on [a translator](03_translator.py), and saved. The tokenizer learns its
# subwords from both domains, so that no character is unknown. Pretrained tokenizers
# usually know all characters of their languages.

# %%
tokenizer = kt.text.SubwordTokenizer.train(
    files["old"] + files["new"], vocabulary_size=500, split_digits=True
)


def batches(paths, translator):
    tokenizers = translator.source_tokenizer, translator.target_tokenizer
    return kt.text.parallel_dataset(
        *paths, *tokenizers, tokens_per_batch=1024, max_length=48
    )


def compile_model(model, learning_rate):
    model.compile(
        kt.training.Adam(learning_rate),
        kt.training.TokenCrossentropy(0.1, pad_id=model.pad_id),
        jit_compile=False,
    )


keras.utils.set_random_seed(SEED)
model = kt.models.Transformer.from_preset(
    "tiny", tokenizer.vocabulary_size, num_layers=2, normalize_first=True, dropout=0.0
)
translator = kt.Translator(model, tokenizer, search=kt.decoding.GreedySearch())
old_data = batches(files["old"], translator)
schedule = keras.optimizers.schedules.CosineDecay(
    0.0, EPOCHS * len(old_data), warmup_target=2e-3, warmup_steps=100
)
compile_model(model, schedule)
model.fit(old_data, epochs=EPOCHS, shuffle=False, verbose=2)
translator.save(FOLDER / "pretrained")

# %% [markdown]
# From here on, everything works as with a translator trained by others.
# `kt.Translator.from_preset` reads the saved folder, or a model from the Hugging Face
# Hub: you could pass `"hf://Helsinki-NLP/opus-mt-en-de"` instead of the folder.


# %%
def load_pretrained():
    # Or "hf://Helsinki-NLP/opus-mt-en-de", after
    # `pip install ".[hub]"` in a checkout.
    return kt.Translator.from_preset(FOLDER / "pretrained", dropout=0.1)


def bleu(translator):
    """Returns the BLEU of a translator on each domain."""
    scores = {}
    for name, data in domains.items():
        translations = translator.translate(data.test.source, batch_size=64)
        scores[name], _ = kt.evaluation.cased_bleu(translations, data.test.target)
        print(f"{name}: BLEU {scores[name]:.1f}")
        for i in range(3):
            print(f"  {data.test.source[i]} → {translations[i]}")
    return scores


table = {"before": bleu(load_pretrained())}

# %% [markdown]
# *BLEU* measures how closely the translations match correct ones, from 0 to 100. The
# translator is almost perfect on its own domain. On the new one it scores less than 1:
# it has learned neither the words nor how to copy a long number.
#
# ## All weights
# The simplest way is to continue training with only the new phrases. Large models need
# a low learning rate: for one from Hugging Face, start with `3e-5`. Our small model
# needs a higher rate: the rates for all weights and for LoRA were chosen on validation
# phrases; training only the decoder uses the rate for all weights. `compile_model`
# passes the model's `pad_id` to the loss, because Hugging Face's models do not pad with
# 0.

# %%
trained = {}


def fine_tune(name, translator, paths, learning_rate, epochs):
    """Trains whatever is trainable, and adds a row to the table."""
    model = translator.model
    compile_model(model, learning_rate)
    model.fit(batches(paths, translator), epochs=epochs, shuffle=False, verbose=0)
    trained[name] = sum(np.prod(weight.shape) for weight in model.trainable_weights)
    table[name] = bleu(translator)


translator = load_pretrained()
fine_tune("all weights", translator, files["new"], 1e-3, 2 * EPOCHS)

# %% [markdown]
# The model has learned most of the new domain from 500 phrases, and lost the old one:
# even simple dates are garbled. This is *catastrophic forgetting*. The same weights
# serve both domains, and the loss no longer contains any dates.
#
# ## What keeps the old domain
# **Old text, mixed in.** Here there are two old phrases for each new one. If the
# pretraining text is not available, use other text of the same kind. The loss then
# covers both domains.
#
# **Frozen layers.** Frozen weights need no gradients and no optimizer state. Here the
# encoder is frozen.
#
# **Low-rank adaptation (LoRA).** All pretrained weights are frozen. A product of two
# narrow matrices is added to each adapted kernel, and only these matrices are trained.
# By default, `enable_lora` adapts the queries and values of attention. That suits a
# large model that already knows the words. Ours has to learn new words, so we adapt all
# projections, and train the embedding as well.
#
# All three are trained on the mixed text.


# %%
def add_lora(model):
    projections = ("query", "key", "value", "output", "widen", "narrow")
    model.enable_lora(8, projections=projections)
    model.source_embedding.trainable = True  # it is the target embedding, too


some_old = random.Random(SEED).sample(pairs["old"], min(1000, PHRASES))
files["mixed"] = write("mixed", pairs["new"] + some_old)

translator = load_pretrained()
fine_tune("all weights, mixed text", translator, files["mixed"], 1e-3, 2 * EPOCHS)

translator = load_pretrained()
translator.model.encoder.trainable = False
fine_tune("decoder, mixed text", translator, files["mixed"], 1e-3, 2 * EPOCHS)

adapted = load_pretrained()
add_lora(adapted.model)
fine_tune("LoRA, mixed text", adapted, files["mixed"], 4e-3, 2 * EPOCHS)

# %%
print(f"{'BLEU':24} {'old':>6} {'new':>6} {'weights trained':>16}")
figure = plt.figure(figsize=(6, 4), layout="constrained")
axes = figure.add_subplot(xlabel="BLEU, old domain", ylabel="BLEU, new domain")
for name, scores in table.items():
    old_bleu, new_bleu = scores["old"], scores["new"]
    print(f"{name:24} {old_bleu:6.1f} {new_bleu:6.1f} {trained.get(name, 0):16,}")
    axes.plot(old_bleu, new_bleu, "o", label=name)
axes.set(xlim=(-5, 105), ylim=(-5, 105))
axes.legend(frameon=False, loc="lower left")
show(figure, "fine_tuning")

# %% [markdown]
# The best place is the upper right corner, where a translator is good at both domains.
#
# - The old text decides what is kept. Without it, BLEU on the old domain falls below
#   15. With it, all three ways keep more than 80.
# - Remembering has a cost: from the mixed text, all three learn somewhat less of the
#   new domain than training all weights on the new text alone.
# - LoRA trains a fifth of the weights and is not far from the others. Which of the
#   three is best changes with the seed.
#
# ## Save, go on, export
# A saved translator keeps its adaptation. It is loaded with the same weights frozen, so
# after `compile`, `fit` continues the fine-tuning. Most of the saved folder is the
# pretrained model. To keep adaptations for many domains, save only each domain's
# trained weights, and load them into the pretrained translator.

# %%
adapted.save(FOLDER / "adapted")
again = kt.Translator.from_preset(FOLDER / "adapted", dropout=0.1)
print(again.model.count_params(), "weights, of which are trained:")
print(sum(np.prod(weight.shape) for weight in again.model.trainable_weights))

values = [weight.numpy() for weight in adapted.model.trainable_weights]
np.savez(FOLDER / "adaptation.npz", *values)
for path in (FOLDER / "adapted" / "model.keras", FOLDER / "adaptation.npz"):
    print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB")

translator = load_pretrained()
add_lora(translator.model)
with np.load(FOLDER / "adaptation.npz") as file:
    for weight, value in zip(
        translator.model.trainable_weights, file.values(), strict=True
    ):
        weight.assign(value)
texts = domains["new"].test.source[:8]
print(translator.translate(texts) == adapted.translate(texts))

# %% [markdown]
# `merge_lora` returns a model without adaptations: the products are added to its
# kernels. It has the size and the speed of the pretrained one. `export` merges
# automatically.

# %%
merged = kt.Translator(
    adapted.model.merge_lora(), tokenizer, search=kt.decoding.GreedySearch()
)
print(merged.translate(texts) == adapted.translate(texts))
print(adapted.export(FOLDER / "saved_models" / "en-de" / "1"))

# %% [markdown]
# ## What to try next
# - LoRA or a frozen encoder, with the new text only. Is less forgotten because fewer
#   weights are trained?
# - LoRA with a frozen embedding: how much of the new domain can it learn?
# - 100 phrases of the new domain, or 2,000.
# - Another mixture: one old phrase for each new one, or four.
# - In the shell, `keras-transformer train recipe.yaml --from MODEL` fine-tunes with
#   checkpoints, early stopping and resuming: see [Pretrained
#   translators](../docs/pretrained.md).
#
# Sources: [Luong and Manning, 2015](https://aclanthology.org/2015.iwslt-evaluation.11/)
# fine-tune translators; [Chu et al., 2017](https://aclanthology.org/P17-2061/) mix both
# domains; [Hu et al., 2021](https://arxiv.org/abs/2106.09685) introduce LoRA;
# [Biderman et al., 2024](https://arxiv.org/abs/2405.09673) measure that it learns less
# and forgets less.
