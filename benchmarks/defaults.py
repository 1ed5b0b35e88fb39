"""What the settings that follow from a text achieve, beside others.

    python benchmarks/defaults.py FOLDER phrases en-de 2000
    python benchmarks/defaults.py FOLDER DIR en-de 2000 --set training.epochs=10

trains on the first pairs of the built-in task, or of Multi30k (DIR is its data/task1),
in a new FOLDER, and prints the fraction of the test text that is translated exactly
and its cased BLEU. QUALITY.md has the figures.
"""

import argparse
import json
import time
from itertools import islice
from pathlib import Path

from keras_transformer.cli.loading import load_tensorflow
from keras_transformer.cli.train import parse_settings

SPLITS = {"train": "train", "validation": "val", "test": "test_2016_flickr"}
HELD_OUT = 500


def write_text(folder: Path, task: str, languages: list[str], pairs: int) -> None:
    """Writes the three splits into a folder, a file for each language."""
    import keras_transformer as kt

    if task == "phrases":
        held_out = min(HELD_OUT, max(50, pairs // 10))
        text = kt.datasets.locale_phrases(
            *languages, train=pairs, validation=held_out, test=HELD_OUT
        )._asdict()
    else:
        files = {
            split: [Path(task, "raw", f"{name}.{x}.gz") for x in languages]
            for split, name in SPLITS.items()
        }
        text = {split: map(kt.text.read_lines, each) for split, each in files.items()}
    for split, sides in text.items():
        for language, lines in zip(languages, sides, strict=True):
            first = islice(lines, pairs if split == "train" else None)
            path = folder / f"{split}.{language}"
            path.write_text("".join(f"{line}\n" for line in first), "utf-8")


def main() -> None:
    """Trains, and prints what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("task")
    parser.add_argument("languages")
    parser.add_argument("pairs", type=int)
    parser.add_argument("--set", action="append", metavar="NAME=VALUE")
    options = parser.parse_args()
    load_tensorflow()
    import keras_transformer as kt

    folder, languages = options.folder, options.languages.split("-")
    folder.mkdir(parents=True)
    write_text(folder, options.task, languages, options.pairs)
    path = folder / "recipe.yaml"
    data = dict(zip(("source", "target"), languages, strict=True))
    for name in ("train", "validation"):
        data[name] = {side: f"{name}.{{{side}}}" for side in ("source", "target")}
    path.write_text(json.dumps({"data": data}), "utf-8")  # YAML holds JSON
    settings = {"data.folder": str(folder), **parse_settings(options.set)}
    start = time.monotonic(), time.process_time()
    recipe = kt.runs.Recipe.load(path, settings)
    run = kt.runs.train(recipe, folder / "run")
    minutes = [
        (now - then) / 60
        for now, then in zip(
            (time.monotonic(), time.process_time()), start, strict=True
        )
    ]
    sources, references = (
        list(kt.text.read_lines(folder / f"test.{x}")) for x in languages
    )
    translations = run.translator().translate(sources)
    right = sum(a == b for a, b in zip(translations, references, strict=True))
    found = {
        "exact": right / len(references),
        "bleu": kt.evaluation.cased_bleu(translations, references)[0],
        "val_perplexity": float(run.log.rows()[-1]["val_perplexity"]),
        "minutes": minutes[0],
        "minutes_of_cpu": minutes[1],
    }
    print(json.dumps({name: round(value, 3) for name, value in found.items()}))


if __name__ == "__main__":
    main()
