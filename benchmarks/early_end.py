"""Time to decode a batch whose sentences end at different lengths.

    python benchmarks/early_end.py --beam-width 4

Compares two ways to decode: every sentence stays in the batch until the last one has
ended, or the batch is reduced to the active sentences once a half, three quarters and
seven eighths of them have ended. Prints the milliseconds of a search for each, the
minimum of several calls that alternate, and the ratio of the two.
"""

import argparse
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
from keras import ops

import keras_transformer as kt
from keras_transformer.decoding.runner import SearchRunner

VOCABULARY, SOURCE_LENGTH, ROWS = 8000, 24, 32


@keras.saving.register_keras_serializable(package="benchmark")
class EndsAt(kt.decoding.Processor):
    """Ends each sentence at the length given by its first source id."""

    def bind(self, model, inputs):
        lengths = inputs[:, 0][:, None, None]

        def process(logits, ids, index):
            is_end = np.arange(logits.shape[-1]) == model.end_id
            return ops.where(is_end == (index + 1 >= lengths), logits, -np.inf)

        return process


def batches(max_length):
    """Returns the target lengths of each batch, by the name of the batch."""
    random = np.random.default_rng(0)
    spread = random.integers(max_length // 8, max_length // 2, ROWS)
    spread[-1] = 0.7 * max_length
    return {
        "one long": np.array([max_length // 8] * (ROWS - 1) + [max_length]),
        "spread, one longer": spread,
        "all end together": np.full(ROWS, max_length // 2),
    }


def milliseconds(searches, inputs, calls):
    """Returns the minimum time of each search, after one call to compile it."""
    fastest = [np.inf] * len(searches)
    for call in range(calls + 1):
        for index, find in enumerate(searches):
            start = time.perf_counter()
            find(inputs, {})
            seconds = time.perf_counter() - start
            if call:
                fastest[index] = min(fastest[index], 1000 * seconds)
    return fastest


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--beam-width", type=int, default=1)
    parser.add_argument("--max-length", type=int, default=64)
    parser.add_argument("--calls", type=int, default=7)
    parser.add_argument("--jit-compile", action="store_true")
    settings = parser.parse_args()
    for threading in ("intra", "inter"):
        set_threads = f"set_{threading}_op_parallelism_threads"
        getattr(tf.config.threading, set_threads)(2)
    keras.utils.set_random_seed(0)
    model = kt.models.Transformer(
        VOCABULARY, num_layers=3, hidden_dim=256, num_heads=4, intermediate_dim=1024
    )
    model.compile(jit_compile=settings.jit_compile)
    search = (
        kt.decoding.BeamSearch(settings.beam_width, processors=[EndsAt()])
        if settings.beam_width > 1
        else kt.decoding.GreedySearch([EndsAt()])
    )
    whole, reduced = (
        SearchRunner(model, search, settings.max_length, settings.jit_compile, patience)
        for patience in (np.inf, 0.0)
    )
    random = np.random.default_rng(1)
    for name, lengths in batches(settings.max_length).items():
        inputs = random.integers(4, VOCABULARY, (ROWS, SOURCE_LENGTH), dtype="int32")
        inputs[:, 0] = lengths
        before, after = milliseconds([whole, reduced], inputs, settings.calls)
        print(f"{name:20}{before:8.0f} ms {after:8.0f} ms  {before / after:5.2f}")


if __name__ == "__main__":
    main()
