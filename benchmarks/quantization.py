"""What integers for weights cost in BLEU, and what they save in time and space.

    python benchmarks/quantization.py RUN --data DIR

RUN is a trained run whose recipe names validation text in DIR. The translator is
measured in float32 and quantised by `model.quantize`, here and exported to CTranslate2,
with the search of the recipe and greedily. All translate the validation text in turn.
"""

import argparse
import json
import pathlib
import statistics
import tempfile
import time
import warnings

import ctranslate2
import sentencepiece

import keras_transformer as kt
from keras_transformer.evaluation import moses_tokenized
from keras_transformer.runs import Recipe, Run

BATCH_SIZE = 32


def ours(run, mode, jit_compile, folder):
    """Returns the translator quantised by Keras, and the size of its file."""
    translator = run.translator()
    if mode:
        with warnings.catch_warnings():  # of layers without kernels
            warnings.simplefilter("ignore")
            translator.model.quantize(mode)
    path = folder / f"{mode}.keras"
    translator.model.save(path)
    translator.model.compile(jit_compile=jit_compile)

    def translate(lines, search):
        return translator.translate(lines, search, batch_size=BATCH_SIZE)

    return translate, path.stat().st_size


def theirs(run, mode, folder):
    """Returns the translator exported to CTranslate2, and the size of its file."""
    exports = {}
    for name, search in searches(run).items():
        path = folder / f"{mode}-{name}"
        run.translator().export(path, search, format="ctranslate2", quantization=mode)
        exports[name] = path
    engine = ctranslate2.Translator(str(path), inter_threads=1, intra_threads=2)
    source, target = (
        sentencepiece.SentencePieceProcessor(str(path / f"{side}.model"))
        for side in ("source", "target")
    )
    arguments = {
        name: json.loads((path / "translator.json").read_text("utf-8"))[
            "translate_batch"
        ]
        for name, path in exports.items()
    }

    def translate(lines, search):
        name = "greedy" if isinstance(search, kt.decoding.GreedySearch) else "beam"
        results = engine.translate_batch(
            source.encode(lines, out_type=str),
            max_batch_size=BATCH_SIZE,
            **arguments[name],
        )
        return target.decode([result.hypotheses[0] for result in results])

    return translate, (path / "model.bin").stat().st_size


def searches(run):
    return {"greedy": kt.decoding.GreedySearch(), "beam": run.search()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=pathlib.Path)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jit-compile", action="store_true")
    arguments = parser.parse_args()
    run = Run(arguments.run)
    settings = {"data.folder": str(arguments.data.resolve())}
    data = Recipe.load(run.settings_path, settings).data
    lines, references = (
        [line for path in data.paths("validation", side) for line in _lines(path)]
        for side in ("source", "target")
    )
    tokenized = list(moses_tokenized(references, data.target))
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        makers = {
            f"kt {mode or 'float32'}": ours(run, mode, arguments.jit_compile, folder)
            for mode in (None, "int8", "int4")
        } | {
            f"CTranslate2 {mode or 'float32'}": theirs(run, mode, folder)
            for mode in (None, "int8")
        }
        for name, search in searches(run).items():
            seconds = {engine: [] for engine in makers}
            texts = {}
            for number in range(arguments.rounds + 1):
                for engine, (translate, _) in makers.items():
                    start = time.perf_counter()
                    texts[engine] = translate(lines, search)
                    if number:  # the first round compiles
                        seconds[engine].append(time.perf_counter() - start)
            print(f"\n{name}: {len(lines)} lines, {arguments.rounds} rounds in turn")
            print("| engine | cased BLEU | paper protocol | MB | s | times as fast |")
            print("| --- | --: | --: | --: | --: | --: |")
            median = {x: statistics.median(seconds[x]) for x in seconds}
            for engine, (_, size) in makers.items():
                cased, _ = kt.evaluation.cased_bleu(texts[engine], references)
                paper, _ = kt.evaluation.paper_protocol_bleu(
                    texts[engine], tokenized, data.target
                )
                ratio = median["kt float32"] / median[engine]
                print(
                    f"| {engine} | {cased:.2f} | {paper:.2f} | {size / 1e6:.1f} "
                    f"| {median[engine]:.1f} | {ratio:.2f} |",
                    flush=True,
                )


def _lines(path):
    return list(kt.text.read_lines(path))


if __name__ == "__main__":
    main()
