"""Pairs a second per core from text and from ids, and the memory that they take.

    python benchmarks/input.py multi30k/raw --lines 1000000 10000000

The folder holds the raw text of Multi30k, of which texts of so many lines are made,
each line with a number, so that no two are equal. Every figure is of a process of its
own: processor time, which other programs hardly change, and the largest memory. An
epoch is read up to a million pairs. Ten million lines take an hour on two cores and
4 GB of disk; --folder names where.
"""

import argparse
import gzip
import itertools
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MAX_PAIRS_READ = 1_000_000


def write_text(folder, source, num_lines):
    """Writes `num_lines` pairs in four files a side; returns a pattern for each."""
    for language in ("en", "de"):
        with gzip.open(source / f"train.{language}.gz", "rt", encoding="utf-8") as file:
            lines = itertools.cycle(file.read().splitlines())
        for number in range(4):
            path = folder / f"train-{number}.{language}"
            with path.open("w", encoding="utf-8") as file:
                for index in range(
                    num_lines * number // 4, num_lines * (number + 1) // 4
                ):
                    file.write(f"{next(lines)} {index}\n")


def measure(case, folder):
    """Prints pairs, seconds of processor time and megabytes of a case as JSON."""
    import numpy as np

    import keras_transformer as kt

    sides = [str(folder / f"train-*.{language}") for language in ("en", "de")]
    tokenizer = kt.text.SubwordTokenizer.load(folder / "tokenizer.model")
    both = tokenizer, tokenizer
    start, begun = time.process_time(), time.perf_counter()
    if case == "prepare":
        manifest = kt.text.prepare(*sides, *both, folder / "ids")
        num_pairs = sum(sum(shard["pairs"]) for shard in manifest["shards"])
    else:
        if case == "ids":
            dataset = kt.text.prepared_dataset(folder / "ids")
        else:
            dataset = kt.text.parallel_dataset(*sides, *both)
        waited = time.perf_counter() - begun
        start, begun, num_pairs = time.process_time(), time.perf_counter(), 0
        for _, labels in dataset:
            num_pairs += np.count_nonzero(labels[:, 0])
            if num_pairs >= MAX_PAIRS_READ:
                break
        print(f"{case}: {waited:.1f} s before the first epoch", file=sys.stderr)
    found = {
        "pairs": int(num_pairs),
        "seconds": time.process_time() - start,
        "elapsed": time.perf_counter() - begun,
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(found))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path, help="folder of Multi30k's raw text")
    parser.add_argument("--lines", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--folder", type=Path, help="where to write")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        measure(arguments.case, arguments.source)
        return
    import keras_transformer as kt

    files = [arguments.source / f"train.{language}.gz" for language in ("en", "de")]
    tokenizer = kt.text.SubwordTokenizer.train(files, vocabulary_size=8000)
    print("lines        case     pairs/s of a core   pairs/s   memory, MB")
    for num_lines in arguments.lines:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
            folder = Path(name)
            write_text(folder, arguments.source, num_lines)
            tokenizer.save(folder / "tokenizer.model")
            for case in ("text", "prepare", "ids"):
                command = [sys.executable, __file__, str(folder), "--case", case]
                output = subprocess.run(
                    command, check=True, stdout=subprocess.PIPE, text=True
                ).stdout
                found = json.loads(output)
                print(
                    f"{num_lines:<12,} {case:8} "
                    f"{found['pairs'] / found['seconds']:16,.0f}"
                    f" {found['pairs'] / found['elapsed']:10,.0f}"
                    f" {found['megabytes']:12,.0f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
