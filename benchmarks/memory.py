"""Peak memory of reading, translating and evaluating texts of several sizes.

    python benchmarks/memory.py --lines 10000,100000,1000000

Each measurement runs in its own process and prints its peak resident memory. The text
is generated: lines of three to twelve words. The translator is tiny and trained to end
every sentence at once, so a million lines take only minutes; the memory that a text
takes does not depend on that.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

WORKS = ("read", "translate", "evaluate")
RECIPE = """
data:
  source: aa
  target: bb
  train: {source: "text.{source}", target: "text.{target}"}
  validation: {source: "text.{source}", target: "text.{target}"}
  test: {source: "text.{source}", target: "text.{target}"}
"""


def write_text(folder, num_lines):
    """Writes both sides of a corpus of random words, and a recipe for it."""
    import numpy as np

    folder.mkdir()
    rng = np.random.default_rng(1)
    words = np.array(["".join(rng.choice(list("aeioklmnst"), 5)) for _ in range(997)])
    for side in ("aa", "bb"):
        with open(folder / f"text.{side}", "w") as file:
            for _ in range(0, num_lines, 1000):
                lengths = rng.integers(3, 13, 1000)
                sampled = iter(words[rng.integers(0, 997, lengths.sum())])
                for length in lengths:
                    file.write(" ".join(next(sampled) for _ in range(length)) + "\n")
    (folder / "recipe.yaml").write_text(RECIPE)


def write_translator(text, folder):
    """Trains and saves a translator that ends every sentence at once."""
    import keras
    import numpy as np

    import keras_transformer as kt

    tokenizer = kt.text.SubwordTokenizer.train(text / "text.aa", vocabulary_size=500)
    model = kt.models.Transformer(
        500, num_layers=1, hidden_dim=16, num_heads=2, intermediate_dim=16, dropout=0
    )
    model.compile(keras.optimizers.Adam(0.01), kt.training.TokenCrossentropy())
    ids = np.random.default_rng(1).integers(4, 500, (256, 16))
    starts, ends = np.full((256, 1), model.start_id), np.full((256, 1), model.end_id)
    inputs = {"source_ids": ids, "target_ids": starts}
    model.fit(inputs, ends, epochs=20, verbose=0)
    kt.Translator(model, tokenizer).save(folder)


def read(text, translator):
    """Reads the shuffled batches of one epoch."""
    import keras_transformer as kt

    tokenizer = kt.Translator.load(translator).source_tokenizer
    files = text / "text.aa", text / "text.bb"
    for _ in kt.text.parallel_dataset(*files, tokenizer, tokenizer):
        pass


def run_command(*arguments):
    """Runs a command of the shell, such as `translate`, in this process."""
    from keras_transformer.cli import app

    app([*map(str, arguments), "--beam-width", "1", "--batch-size", "1024"])


def translate(text, translator):
    files = text / "text.aa", "--output", os.devnull
    run_command("translate", translator, *files, "--engine", "tensorflow")


def evaluate(text, translator):
    recipe = text / "recipe.yaml"
    run_command("evaluate", translator, "--recipe", recipe, "--data", text)


def peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # KiB


def measure(work, text, translator):
    """Runs one of WORKS in a process of its own; returns its peak MB and seconds."""
    start = time.monotonic()
    command = [sys.executable, __file__, "--work", work, text, translator]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout.splitlines()[-1]), time.monotonic() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", default="10000,1000000")
    parser.add_argument("--works", default=",".join(WORKS))
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work, text, translator = arguments.work
        try:
            {"read": read, "translate": translate, "evaluate": evaluate}[work](
                Path(text), Path(translator)
            )
        except SystemExit as end:  # raised at the end of every command
            if end.code:
                raise
        print(peak_mb())
        return
    sizes = [int(size) for size in arguments.lines.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        texts = {size: Path(folder, str(size)) for size in sizes}
        for size, text in texts.items():
            write_text(text, size)
        translator = Path(folder, "translator")
        write_translator(texts[sizes[0]], translator)
        print("| work | lines | peak MB | seconds |\n| --- | --: | --: | --: |")
        for work in arguments.works.split(","):
            for size, text in texts.items():
                peak, seconds = measure(work, text, translator)
                print(f"| {work} | {size:,} | {peak:.0f} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
