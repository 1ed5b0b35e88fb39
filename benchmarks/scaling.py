"""What training on more GPUs costs: what can be counted, and measured on this machine.

    python benchmarks/scaling.py multi30k/raw

The folder is Multi30k's raw text, which the rate of the input is measured on. What
the figures say of a run like the paper's stands in `docs/scaling.md`.
"""

import sys
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import keras_transformer as kt

VOCABULARY, LENGTH, TOKENS_PER_STEP = 37_000, 32, 25_000


def multiplications(model, length):
    """Matrix multiplications and additions, as one, of a source and a target token.

    Twice that are the FLOPs of a forward pass, six times those of a training step.
    """
    config = model.get_config()
    dim, wide, layers = (
        config[name] for name in ("hidden_dim", "intermediate_dim", "num_layers")
    )
    feed_forward = 2 * dim * wide
    # Query, key, value and output; scores and mixtures read `length` positions.
    attention, reading = 4 * dim**2, 2 * dim * length
    # The decoder reads its keys and values off the source tokens.
    source = layers * (attention + reading + feed_forward + 2 * dim**2)
    target = layers * (attention + reading + 2 * dim**2 + reading + feed_forward)
    vocabulary = config["target_vocabulary_size"] or config["source_vocabulary_size"]
    return source, target + dim * vocabulary


def pairs_per_core_second(folder):
    """Pairs a second of processor time, which other programs do not change."""
    files = [folder / f"train.{language}.gz" for language in ("en", "de")]
    tokenizer = kt.text.SubwordTokenizer.train(files, vocabulary_size=8000)
    dataset = kt.text.parallel_dataset(*files, tokenizer, tokenizer)
    start, rows = time.process_time(), 0
    for _, labels in dataset:
        rows += np.count_nonzero(labels[:, 0])
    return rows / (time.process_time() - start)


def milliseconds_per_step():
    """Processor time of a step of `model.fit` that computes next to nothing."""
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    batch = np.ones((2, 2), "float32"), np.ones((2, 1), "float32")
    data = tf.data.Dataset.from_tensors(batch).repeat(1000)
    model.fit(data, verbose=0)
    start = time.process_time()
    model.fit(data, verbose=0)
    return time.process_time() - start


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    model = kt.models.Transformer.from_preset("base", VOCABULARY)
    weights = model.count_params()
    source, target = multiplications(model, LENGTH)
    step = 6 * TOKENS_PER_STEP * (source + target)
    print(f"weights of the base model          {weights:,}")
    print(f"bytes of its gradient              {4 * weights:,}")
    print(f"products of a source, target token {source:,}, {target:,}")
    print(f"FLOPs of a step of 25k + 25k       {step:.3g}")
    pairs = pairs_per_core_second(Path(sys.argv[1]))
    print(f"pairs a second of one core         {pairs:,.0f}")
    print(f"core-ms of an empty step of fit    {milliseconds_per_step():.2f}")


if __name__ == "__main__":
    main()
