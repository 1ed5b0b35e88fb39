"""Peak memory of reading, translating and evaluating texts of several sizes.

    python benchmarks/memory.py --lines 10000,100000,1000000

Each measurement is a process of its own, whose peak resident memory it prints. The
text is generated: lines of three to twelve words. The translator is so small, and has
learnt to say so little, that translating a million lines takes minutes; what is held
of a text does not depend on that.
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
    """Writes the two sides of a corpus, made from the same few words."""
    import numpy as np

    folder.mkdir()
    draw = np.random.default_rng(1)
    words = np.array(["".join(draw.choice(list("aeioklmnst"), 5)) for _ in range(997)])
    for side in ("aa", "bb"):
        with open(folder / f"text.{side}", "w") as file:
            for _ in range(0, num_lines, 1000):
                lengths = draw.integers(3, 13, 1000)
                picked = iter(words[draw.integers(0, 997, lengths.sum())])
                for length in lengths:
                    file.write(" ".join(next(picked) for _ in range(length)) + "\n")
    (folder / "recipe.yaml").write_text(RECIPE)


def write_translator(text, folder):
    """Trains a translator to end every sentence at once."""
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
    """Makes the batches of one epoch, shuffled."""
    import keras_transformer as kt

    tokenizer = kt.Translator.load(translator).source_tokenizer
    files = text / "text.aa", text / "text.bb"
    for _ in kt.text.parallel_dataset(*files, tokenizer, tokenizer):
        pass


def shell(*arguments):
    from keras_transformer.cli import app

    app([*map(str, arguments), "--beam-width", "1", "--batch-size", "1024"])


def translate(text, translator):
    shell("translate", translator, text / "text.aa", "--output", os.devnull)


def evaluate(text, translator):
    recipe = text / "recipe.yaml"
    shell("evaluate", translator, "--recipe", recipe, "--data", text)


def peak_of_process():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # KiB


def measure(work, text, translator):
    """Returns the peak memory in MB and the seconds of one work, in a process."""
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
        except SystemExit as end:  # of the shell
            if end.code:
                raise
        print(peak_of_process())
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
