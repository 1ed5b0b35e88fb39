"""Time to translate a file: our command, and CTranslate2 with the same weights.

    python benchmarks/translate_file.py convert TRANSLATOR FOLDER [--quantization int8]
    time keras-transformer translate TRANSLATOR FILE --output ours.txt --beam-width 1
    time python benchmarks/translate_file.py ctranslate2 FOLDER FILE theirs.txt

TRANSLATOR is the folder of a saved `Translator`. `convert` exports it to FOLDER.
`ctranslate2` needs CTranslate2 and SentencePiece, and nothing of this library.
"""

import argparse
import json
import pathlib
import time


def convert(translator, folder, quantization):
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    subparsers = parser.add_subparsers(dest="command", required=True)
    conversion = subparsers.add_parser("convert")
    conversion.add_argument("translator", type=pathlib.Path)
    conversion.add_argument("folder", type=pathlib.Path)
    conversion.add_argument("--quantization")
    run = subparsers.add_parser("ctranslate2")
    for name in ("folder", "text", "output"):
        run.add_argument(name, type=pathlib.Path)
    run.add_argument("--beam-width", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.command == "convert":
        convert(arguments.translator, arguments.folder, arguments.quantization)
        return
    translate(arguments.folder, arguments.text, arguments.output, arguments.beam_width)


if __name__ == "__main__":
    main()
