"""The numbers behind `docs/scaling.md`, counted or measured on this machine.

    python benchmarks/scaling.py multi30k/raw

The folder holds the raw text of Multi30k, on which the input pipeline is timed.
"""

import sys
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import keras_transformer as kt

VOCABULARY, LENGTH, TOKENS_PER_STEP = 37_000, 32, 25_000


def multiply_adds(model, length):
    """Counts the multiply-adds of the matrix products per source and target token.

    A forward pass takes two FLOPs for each, a training step six.
    """
    config = model.get_config()
    dim, wide, layers = (
        config[name] for name in ("hidden_dim", "intermediate_dim", "num_layers")
    )
    feed_forward = 2 * dim * wide
    # Query, key, value and output projections; scores and outputs for `length` keys.
    projections, attention = 4 * dim**2, 2 * dim * length
    # The decoder projects the source tokens to keys and values.
    source = layers * (projections + attention + feed_forward + 2 * dim**2)
    target = layers * (projections + 2 * attention + 2 * dim**2 + feed_forward)
    vocabulary = config["target_vocabulary_size"] or config["source_vocabulary_size"]
    return source, target + dim * vocabulary


def pairs_per_core_second(folder):
    """Returns sentence pairs per second of processor time.

    Unlike wall time, it hardly depends on other programs.
    """
    files = [folder / f"train.{language}.gz" for language in ("en", "de")]
    tokenizer = kt.text.SubwordTokenizer.train(files, vocabulary_size=8000)
    dataset = kt.text.parallel_dataset(*files, tokenizer, tokenizer)
    start, rows = time.process_time(), 0
    for _, labels in dataset:
        rows += np.count_nonzero(labels[:, 0])
    return rows / (time.process_time() - start)


def milliseconds_per_step():
    """Returns the processor time of a `model.fit` step with almost no computation."""
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
    parameters = model.count_params()
    source, target = multiply_adds(model, LENGTH)
    step = 6 * TOKENS_PER_STEP * (source + target)
    print(f"parameters of the base model       {parameters:,}")
    print(f"bytes of its gradient              {4 * parameters:,}")
    print(f"multiply-adds per source token     {source:,}")
    print(f"multiply-adds per target token     {target:,}")
    print(f"FLOPs of a step of 25k + 25k       {step:.3g}")
    pairs = pairs_per_core_second(Path(sys.argv[1]))
    print(f"pairs per second of one core       {pairs:,.0f}")
    print(f"core-ms of an empty step of fit    {milliseconds_per_step():.2f}")


if __name__ == "__main__":
    main()
