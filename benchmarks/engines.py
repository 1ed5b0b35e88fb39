"""Times `translate` in the shell by each engine, and CTranslate2 alone.

    python benchmarks/engines.py RUN TEXT [--lines 10000] [--rounds 3]

TEXT is repeated to so many lines. Every call is a process of its own; those of a
round follow each other. "CTranslate2 alone" tokenizes, translates and detokenizes the
same lines in batches of the same size, without this package.
"""

import argparse
import itertools
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ALONE = """
import json, os, sys
import ctranslate2, sentencepiece
folder, text, size = sys.argv[1:]
settings = json.load(open(f"{folder}/translator.json"))
source, target = (
    sentencepiece.SentencePieceProcessor(f"{folder}/{side}.model")
    for side in ("source", "target")
)
engine = ctranslate2.Translator(folder, inter_threads=os.cpu_count(), intra_threads=1)
pieces = source.encode(open(text).read().splitlines(), out_type=str)
found = engine.translate_batch(
    pieces, max_batch_size=int(size), **settings["translate_batch"]
)
for line in target.decode([x.hypotheses[0] for x in found]):
    print(line)
"""


def seconds(command):
    """Runs a command; returns its time, and what it prints."""
    start = time.monotonic()
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    return time.monotonic() - start, found.stdout


def main() -> None:
    """Prints the least time of each engine."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--lines", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    shell = [sys.executable, "-m", "keras_transformer.cli", "translate", options.run]
    with tempfile.TemporaryDirectory() as folder:
        lines = options.text.read_text("utf-8").splitlines()
        texts = {}
        for count in (1, options.lines):
            texts[count] = Path(folder, f"{count}")
            some = itertools.islice(itertools.cycle(lines), count)
            texts[count].write_text("".join(f"{line}\n" for line in some), "utf-8")
        engine = ["--engine", "ctranslate2"]
        seconds([*shell, texts[1], *engine])  # exports
        made = (options.run / "ctranslate2").iterdir()
        (export,) = (path for path in made if path.is_dir())
        from keras_transformer.interop.ctranslate2_translator import TEXTS_PER_BATCH

        alone = [sys.executable, "-c", ALONE, export]
        best: dict[tuple[str, int], float] = {}
        for _ in range(options.rounds):
            for count, text in texts.items():
                calls = {
                    "CTranslate2 alone": [*alone, text, str(TEXTS_PER_BATCH)],
                    "--engine ctranslate2": [*shell, text, *engine],
                    "--engine tensorflow": [*shell, text, "--engine", "tensorflow"],
                }
                outputs = {}
                for name, command in calls.items():
                    taken, outputs[name] = seconds(command)
                    key = name, count
                    best[key] = min(best.get(key, taken), taken)
                alone_and_engine = [*outputs.values()][:2]
                equal = sum(map(str.__eq__, *map(str.splitlines, alone_and_engine)))
                print(f"{count} lines: {equal} equal", file=sys.stderr)
    print(f"| what translates | 1 line, s | {options.lines:,} lines, s |")
    print("| --- | --: | --: |")
    for name in calls:
        times = " | ".join(f"{best[name, count]:.1f}" for count in texts)
        print(f"| {name} | {times} |")


if __name__ == "__main__":
    main()
