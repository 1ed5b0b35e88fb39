"""Time of a Multi30k epoch: a recipe, and the same model built with other libraries.

    python benchmarks/epoch.py kt MULTI30K --ids ids.npz    # writes the ids
    python benchmarks/epoch.py keras-hub MULTI30K --ids ids.npz
    python benchmarks/epoch.py torch MULTI30K --ids ids.npz

The first command trains by multi30k-adam.yaml, and writes the subword ids that the
others train on. Their batches have the mean number of sentences of our batches, in
random order, padded to the longest sentence. They compute no metrics, and only our time
includes reading and tokenising the text. `--steps` times that many steps and scales the
result up to an epoch. Prints the seconds of an epoch without tracing. `torch` needs
only PyTorch and NumPy.
"""

import argparse
import os
import pathlib
import time

os.environ["OMP_NUM_THREADS"] = "2"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

RECIPE = pathlib.Path(__file__).with_name("multi30k-adam.yaml")
VOCABULARY, LENGTH, DROPOUT, SMOOTHING, RATE = 6000, 64, 0.3, 0.1, 1e-3
LAYERS, DIM, HEADS, INNER = 4, 128, 4, 256  # the preset `tiny`
WARMUP = 3  # untimed steps: graphs are traced and memory is allocated


class Clock:
    """Times training steps, each from the end of the previous one."""

    def __init__(self, steps):
        self.steps, self.ends = steps, []

    def tick(self):
        """Records the end of a step; returns whether it was the last one."""
        self.ends.append(time.perf_counter())
        return len(self.ends) == self.steps + WARMUP

    def epoch(self, steps):
        """Returns the estimated seconds of an epoch of so many steps."""
        seconds = self.ends[-1] - self.ends[WARMUP - 1]
        return seconds / (len(self.ends) - WARMUP) * steps


def batches(ids, steps):
    """Yields padded `(source, target)` without end, `steps` batches per epoch."""
    random = np.random.default_rng(0)
    size = round(len(ids["source"]) / steps)
    while True:
        order = random.permutation(len(ids["source"]))
        for start in range(0, len(order) - size + 1, size):
            rows = order[start : start + size]
            yield tuple(
                side[rows][:, : np.count_nonzero(side[rows], axis=1).max()]
                for side in (ids["source"], ids["target"])
            )


def train_ours(folder, path, steps):
    import keras

    import keras_transformer as kt
    from keras_transformer.runs import Recipe

    recipe = Recipe.load(RECIPE, {"data.folder": str(folder)})
    raw = [folder / "raw" / f"train.{side}.gz" for side in ("en", "de")]
    tokenizer = kt.text.SubwordTokenizer.train(
        raw, vocabulary_size=VOCABULARY, model_type="bpe"
    )
    settings = recipe.training
    data = kt.text.parallel_dataset(
        *raw,
        *(tokenizer, tokenizer),
        tokens_per_batch=settings.tokens_per_batch,
        max_length=settings.max_length,
        seed=settings.seed,
    )
    num_batches = int(data.cardinality())
    keras.utils.set_random_seed(settings.seed)
    model = kt.models.Transformer.from_preset(
        recipe.model.preset, VOCABULARY, **recipe.model.arguments()
    )
    block = model.encoder.blocks[0]
    sizes = model.encoder.num_layers, block.num_heads, block.intermediate_dim
    assert sizes == (LAYERS, HEADS, INNER)
    model.compile(
        kt.training.Adam(RATE),
        kt.training.TokenCrossentropy(settings.label_smoothing),
        metrics=[kt.training.TokenAccuracy(), kt.training.Perplexity()],
        jit_compile=settings.jit_compile,
    )
    clock = Clock(steps or num_batches - WARMUP)
    fit(model, data, clock)
    source, target = (
        keras.utils.pad_sequences(side, LENGTH, padding="post")
        for side in zip(*pairs(raw, tokenizer), strict=True)
    )
    np.savez_compressed(path, source=source, target=target, steps=num_batches)
    return clock.epoch(num_batches)


def pairs(paths, tokenizer):
    """Yields the source and target ids of every pair that our recipe trains on."""
    import keras_transformer as kt

    sides = [
        kt.text.encode(list(kt.text.read_lines(path)), tokenizer, 2 * LENGTH)[0].numpy()
        for path in paths
    ]
    for source, target in zip(*sides, strict=True):
        source, target = source[source > 0], target[target > 0]
        if max(len(source), len(target)) < LENGTH:
            yield source, np.concatenate([[2], target])


def fit(model, data, clock):
    import keras

    class Tick(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            float(logs["loss"])  # waits until the step is done
            if clock.tick():
                self.model.stop_training = True

    model.fit(data, callbacks=[Tick()], verbose=0, shuffle=False, epochs=2)


def train_keras_hub(ids, steps):
    import keras
    import keras_hub
    import tensorflow as tf
    from keras import ops

    keras.utils.set_random_seed(1)
    layers = keras_hub.layers
    embedding = layers.TokenAndPositionEmbedding(
        VOCABULARY, LENGTH + 1, DIM, mask_zero=True
    )
    source, target = (keras.Input((None,), dtype="int32") for _ in range(2))
    blocks = {"dropout": DROPOUT, "normalize_first": True}
    x = keras.layers.Dropout(DROPOUT)(embedding(source))
    for _ in range(LAYERS):
        x = layers.TransformerEncoder(INNER, HEADS, **blocks)(x)
    x = keras.layers.LayerNormalization()(x)
    y = keras.layers.Dropout(DROPOUT)(embedding(target))
    for _ in range(LAYERS):
        y = layers.TransformerDecoder(INNER, HEADS, **blocks)(y, x)
    y = keras.layers.LayerNormalization()(y)
    model = keras.Model([source, target], embedding.token_embedding(y, reverse=True))

    def loss(target, logits):
        truth = ops.one_hot(target, VOCABULARY) * (1 - SMOOTHING)
        truth = truth + SMOOTHING / VOCABULARY
        losses = ops.categorical_crossentropy(truth, logits, from_logits=True)
        kept = ops.cast(target != 0, losses.dtype)
        return ops.sum(losses * kept) / ops.sum(kept)

    model.compile(keras.optimizers.Adam(RATE), loss, jit_compile=False)

    def examples():
        for source, target in batches(ids, int(ids["steps"])):
            yield (source, target[:, :-1]), target[:, 1:]

    rows = tf.TensorSpec([None, None], tf.int32)
    data = tf.data.Dataset.from_generator(
        examples, output_signature=((rows, rows), rows)
    )
    clock = Clock(steps or int(ids["steps"]))
    fit(model, data.prefetch(2), clock)
    return clock.epoch(int(ids["steps"]))


def train_torch(ids, steps):
    import torch
    from torch import nn

    torch.set_num_threads(2)
    torch.manual_seed(1)
    tokens, positions = nn.Embedding(VOCABULARY, DIM), nn.Embedding(LENGTH + 1, DIM)
    nn.init.normal_(tokens.weight, std=DIM**-0.5)
    dropout = nn.Dropout(DROPOUT)
    body = nn.Transformer(
        *(DIM, HEADS, LAYERS, LAYERS, INNER, DROPOUT),
        batch_first=True,
        norm_first=True,
    )
    parameters = [x for y in (tokens, positions, body) for x in y.parameters()]
    optimizer = torch.optim.Adam(parameters, RATE, fused=True)

    def embed(x):
        return dropout(tokens(x) * DIM**0.5 + positions.weight[: x.shape[1]])

    clock = Clock(steps or int(ids["steps"]))
    for source, target in batches(ids, int(ids["steps"])):
        source, target = (torch.from_numpy(x).long() for x in (source, target))
        inputs, labels = target[:, :-1], target[:, 1:]
        length = inputs.shape[1]
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        outputs = body(
            *(embed(source), embed(inputs)),
            tgt_mask=future,
            tgt_is_causal=True,
            src_key_padding_mask=source == 0,
            tgt_key_padding_mask=inputs == 0,
            memory_key_padding_mask=source == 0,
        )
        logits = nn.functional.linear(outputs, tokens.weight)
        loss = nn.functional.cross_entropy(
            logits.flatten(0, 1),
            labels.flatten(),
            ignore_index=0,
            label_smoothing=SMOOTHING,
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
        if clock.tick():
            break
    return clock.epoch(int(ids["steps"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", choices=("kt", "keras-hub", "torch"))
    parser.add_argument("data", type=pathlib.Path, help="folder of Multi30k")
    parser.add_argument("--ids", type=pathlib.Path, default="ids.npz")
    parser.add_argument("--steps", type=int, help="number to time; default: all")
    arguments = parser.parse_args()
    if arguments.library == "kt":
        seconds = train_ours(arguments.data, arguments.ids, arguments.steps)
    else:
        ids = dict(np.load(arguments.ids))
        train = train_torch if arguments.library == "torch" else train_keras_hub
        seconds = train(ids, arguments.steps)
    print(f"{arguments.library}: {seconds:.0f} s per epoch")


if __name__ == "__main__":
    main()
