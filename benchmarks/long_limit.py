"""Cost of a large `max_length` when the sentences turn out short.

    python benchmarks/long_limit.py --beam-width 5

A Transformer with random weights decodes a batch of sentences that end after 24
tokens, for several values of `max_length`. Compares a cache that grows as it fills up
with one that holds `max_length` tokens from the start. Prints the minimum time of
several calls that alternate, after everything is compiled.
"""

import argparse
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

import keras_transformer as kt
from keras_transformer.layers import cache

MIN_ENTRIES = cache.MIN_ENTRIES


def searcher(model, search, source_ids, max_length, min_entries):
    """Returns a function that times a search; its cache begins with `min_entries`."""

    def find():
        cache.MIN_ENTRIES = min_entries
        start = time.perf_counter()
        model.generate(source_ids, search, max_length)
        return time.perf_counter() - start

    return find


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--beam-width", type=int, default=5)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--jit", action="store_true", help="compile with XLA")
    parser.add_argument("--calls", type=int, default=7)
    args = parser.parse_args()
    source_ids = np.random.default_rng(1).integers(4, 8000, (args.batch, 24))
    search = kt.decoding.BeamSearch(
        args.beam_width, processors=[kt.decoding.MaximumLength(1.0)]
    )
    print("| max_length | full cache, ms | growing cache, ms | times as fast |")
    print("| --: | --: | --: | --: |")
    for max_length in (32, 64, 128, 256):
        searchers = []
        for min_entries in (10**9, MIN_ENTRIES):
            keras.utils.set_random_seed(1)
            model = kt.models.Transformer.from_preset("tiny", 8000)
            model.compile(jit_compile=args.jit)
            find = searcher(model, search, source_ids, max_length, min_entries)
            find()  # compiles
            searchers.append(find)
        times = [[find() for find in searchers] for _ in range(args.calls)]
        full, growing = 1000 * np.min(times, axis=0)
        ratio = full / growing
        print(f"| {max_length} | {full:.0f} | {growing:.0f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
