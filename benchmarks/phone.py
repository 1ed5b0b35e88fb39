"""Sizes and tokens a second of translators exported to LiteRT, one sentence at a time.

    python benchmarks/phone.py MODEL TEXT --lines 100 --threads 1

MODEL is a run, a translator's folder or "hf://user/model", and TEXT a file with one
sentence a line. The search is greedy. `generate` is measured beside LiteRT, and the
last column says how many translations are those of `generate`.
"""

import argparse
import pathlib
import tempfile
import time

from ai_edge_litert.interpreter import Interpreter

import keras_transformer as kt
from keras_transformer.cli.loading import load_translator

GREEDY = kt.decoding.GreedySearch()


def measure(name, megabytes, find, sources, expected):
    """Prints a row of the table, and returns the ids that were found."""
    find(sources[0])  # which compiles, or allocates memory
    start = time.perf_counter()
    found = [find(source) for source in sources]
    seconds = time.perf_counter() - start
    found = [[x for x in row.tolist() if x] for row in found]
    same = sum(x == y for x, y in zip(found, expected or found, strict=True))
    speed = sum(map(len, found)) / seconds
    print(f"| {name} | {megabytes:.1f} | {speed:.0f} | {same / len(found):.0%} |")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--lines", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1, help="of LiteRT")
    arguments = parser.parse_args()
    translator = load_translator(arguments.model)
    lines = arguments.text.read_text("utf-8").splitlines()[: arguments.lines]
    sources = [translator.encode([line])[0].numpy() for line in lines if line.strip()]
    model, longest = translator.model, 2 * translator.max_source_length

    def generate(source):
        return model.generate(source, GREEDY, min(longest, 64)).ids[0, 0]

    print("| | MB | tokens a second | same as `generate` |\n| --- | --: | --: | --: |")
    megabytes = 4e-6 * model.count_params()
    expected = measure("`generate`", megabytes, generate, sources, None)
    with tempfile.TemporaryDirectory() as folder:
        for quantization in (None, "int8"):
            path = pathlib.Path(folder) / f"{quantization or 'float32'}"
            given = {"format": "litert", "quantization": quantization}
            translator.export(path, GREEDY, min(longest, 64), **given)
            file = path / "model.tflite"
            interpreter = Interpreter(str(file), num_threads=arguments.threads)
            search = interpreter.get_signature_runner()

            def find(source, search=search):
                return search(input_ids=source)["ids"][0, 0]

            megabytes = file.stat().st_size / 1e6
            measure(f"LiteRT, {path.name}", megabytes, find, sources, expected)


if __name__ == "__main__":
    main()
