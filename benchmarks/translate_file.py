"""Time to translate a file: our command beside CTranslate2 with the same weights.

    python benchmarks/translate_file.py compare TRANSLATOR FILE --rounds 3
    python benchmarks/translate_file.py compare TRANSLATOR FILE --beam-width 5

TRANSLATOR is the folder of a saved `Translator`. Both sides are timed from the start of
the process to its end, in turn. `convert` exports a translator, and `ctranslate2`
translates with the export; it needs CTranslate2 and SentencePiece, and nothing of this
library.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time


def convert(translator, folder, quantization=None):
    import keras_transformer as kt

    translator = kt.Translator.load(translator)
    translator.export(folder, format="ctranslate2", quantization=quantization)


def translate(folder, text, output, beam_width):
    import ctranslate2
    import sentencepiece

    start = time.perf_counter()
    source, target = (
        sentencepiece.SentencePieceProcessor(str(folder / f"{side}.model"))
        for side in ("source", "target")
    )
    settings = json.loads((folder / "translator.json").read_text("utf-8"))
    arguments = {**settings["translate_batch"], "max_decoding_length": 128}
    translator = ctranslate2.Translator(str(folder), inter_threads=1, intra_threads=2)
    lines = text.read_text("utf-8").splitlines()
    arguments |= {"beam_size": beam_width, "num_hypotheses": 1, "max_batch_size": 32}
    results = translator.translate_batch(
        source.encode(lines, out_type=str), **arguments
    )
    pieces = [result.hypotheses[0] for result in results]
    output.write_text("".join(f"{line}\n" for line in target.decode(pieces)), "utf-8")
    print(f"{len(lines)} lines, {time.perf_counter() - start:.1f} s after imports")


def compare(translator, text, beam_width, rounds):
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        convert(translator, scratch / "ctranslate2")
        outputs = {name: scratch / name for name in ("ours", "theirs")}
        shell = (sys.executable, "-m", "keras_transformer.cli", "translate")
        beam = ("--beam-width", str(beam_width))
        commands = {
            "ours": (*shell, translator, text, "--output", outputs["ours"], *beam),
            "theirs": (
                *(sys.executable, __file__, "ctranslate2", scratch / "ctranslate2"),
                *(text, outputs["theirs"], *beam),
            ),
        }
        seconds = {name: [] for name in commands}
        for _ in range(rounds):
            for name, command in commands.items():
                start = time.perf_counter()
                done = subprocess.run(command, capture_output=True, text=True)
                if done.returncode:
                    sys.exit(done.stderr)
                seconds[name].append(time.perf_counter() - start)
                print(f"{name:8}{seconds[name][-1]:7.1f} s", flush=True)
        ours, theirs = (x.read_text("utf-8").splitlines() for x in outputs.values())
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    different = sum(one != other for one, other in zip(ours, theirs, strict=True))
    print(
        f"{len(ours)} lines, beam width {beam_width}: {medians['ours']:.1f} s beside "
        f"{medians['theirs']:.1f}, {medians['ours'] / medians['theirs']:.2f} times as "
        f"long; {different} translations differ"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    subparsers = parser.add_subparsers(dest="command", required=True)
    conversion = subparsers.add_parser("convert")
    conversion.add_argument("translator", type=pathlib.Path)
    conversion.add_argument("folder", type=pathlib.Path)
    conversion.add_argument("--quantization")
    comparison = subparsers.add_parser("compare")
    comparison.add_argument("translator", type=pathlib.Path)
    comparison.add_argument("text", type=pathlib.Path)
    comparison.add_argument("--rounds", type=int, default=3)
    run = subparsers.add_parser("ctranslate2")
    for name in ("folder", "text", "output"):
        run.add_argument(name, type=pathlib.Path)
    for search in (comparison, run):
        search.add_argument("--beam-width", type=int, default=1)
    given = parser.parse_args()
    if given.command == "convert":
        convert(given.translator, given.folder, given.quantization)
    elif given.command == "compare":
        compare(given.translator, given.text, given.beam_width, given.rounds)
    else:
        translate(given.folder, given.text, given.output, given.beam_width)


if __name__ == "__main__":
    main()
