"""How often alignments are wrong, beside manual alignments of Greek and English verses.

    pip install --no-deps bible-alignments
    python benchmarks/alignments.py FOLDER

trains a translator from Greek (the New Testament, SBLGNT) to English (the Berean
Standard Bible) in a new FOLDER, or reads the one that is there. It prints the alignment
error rate of the attention of each layer and head on validation verses, and that of
`Translator.align`, of a diagonal and of chance on test verses. QUALITY.md has the
figures.

Every 16th verse is a test verse, and the one after it a validation verse. All manual
links are sure ones, so the alignment error rate is 1 - F1 of the links between words.
"""

import argparse
import csv
import json
import random
from importlib.resources import files
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from keras_transformer.cli.loading import load_tensorflow
from keras_transformer.cli.train import parse_settings

LANGUAGES = "el", "en"
EVERY = 16


class Verse(NamedTuple):
    """A verse in Greek and in English, and the links between their words."""

    source: str
    target: str
    links: set[tuple[int, int]]


def read_verses() -> list[Verse]:
    """Returns the verses of the New Testament in their order."""
    data = files("data")
    greek, english = {}, {}
    for name, column, verses in (
        ("sources/SBLGNT.tsv", "id", greek),
        ("eng/targets/BSB/nt_BSB.tsv", "source_verse", english),
    ):
        with data.joinpath(name).open(encoding="utf-8") as file:
            for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
                verse = row[column].removeprefix("n")[:8]
                ending = "" if row.get("skip_space_after") else " "
                verses.setdefault(verse, {})[row["id"]] = row["text"] + ending
    records = data / "eng/alignments/BSB/SBLGNT-BSB-manual.json"
    links = {}
    for record in json.loads(records.read_text("utf-8"))["records"]:
        for source in record["source"]:
            pairs = [(source, target) for target in record["target"]]
            links.setdefault(source[1:9], []).extend(pairs)
    return [
        as_verse(greek[verse], english[verse], links[verse])
        for verse in greek
        if verse in english and verse in links
    ]


def as_verse(source, target, links) -> Verse:
    """Makes a verse of its tokens, by id, and of links between ids."""
    # A comma is a token of its own, and part of the word before it.
    positions = []
    for tokens in (source, target):
        spaces = accumulate(token.endswith(" ") for token in tokens.values())
        positions.append(dict(zip(tokens, [0, *spaces][:-1], strict=True)))
    first, second = positions
    found = {(first[a], second[b]) for a, b in links if a in first and b in second}
    return Verse(*("".join(x.values()).strip() for x in (source, target)), found)


def splits(verses) -> dict[str, list[Verse]]:
    """Splits verses into training, validation and test verses."""
    names = {0: "test", 1: "validation"}
    found = {"train": [], "validation": [], "test": []}
    for number, verse in enumerate(verses):
        found[names.get(number % EVERY, "train")].append(verse)
    return found


def train(folder: Path, text, settings: dict) -> None:
    """Trains with the settings that follow from the size of the text."""
    import keras_transformer as kt

    folder.mkdir(parents=True)
    for name, verses in text.items():
        for language, side in zip(LANGUAGES, ("source", "target"), strict=True):
            lines = "".join(f"{getattr(verse, side)}\n" for verse in verses)
            (folder / f"{name}.{language}").write_text(lines, "utf-8")
    path = folder / "recipe.yaml"
    data = dict(zip(("source", "target"), LANGUAGES, strict=True))
    for name in ("train", "validation"):
        data[name] = {side: f"{name}.{{{side}}}" for side in ("source", "target")}
    path.write_text(json.dumps({"data": data}), "utf-8")  # YAML holds JSON
    recipe = kt.runs.Recipe.load(path, {"data.folder": str(folder), **settings})
    kt.runs.train(recipe, folder / "run")


def error_rate(verses, all_links) -> float:
    """Returns the alignment error rate of links between words."""
    right = made = wanted = 0
    for verse, links in zip(verses, all_links, strict=True):
        right += len(verse.links & set(links))
        made += len(set(links))
        wanted += len(verse.links)
    return 1 - 2 * right / (made + wanted)


def baselines(verses) -> dict[str, float]:
    """Returns the error rates of a diagonal, and of links drawn at random."""
    draw, diagonal, chance = random.Random(0), [], []
    for verse in verses:
        last = len(verse.source.split()) - 1
        words = range(len(verse.target.split()))
        step = last / max(1, len(words) - 1)
        diagonal.append([(round(step * word), word) for word in words])
        chance.append([(draw.randint(0, last), word) for word in words])
    return {
        "a diagonal": error_rate(verses, diagonal),
        "chance": error_rate(verses, chance),
    }


def candidates(translator, verses) -> dict[str, float]:
    """Returns the error rates of each layer, head and step."""
    import numpy as np

    from keras_transformer.translator import word_links
    from keras_transformer.translator.alignment import aligned_pairs

    model = translator.model
    heads = {}
    for layer in range(len(model.decoder.blocks)):
        heads[f"layer {layer}"] = np.s_[layer : layer + 1]
        for head in range(model.settings["num_heads"]):
            heads[f"layer {layer}, head {head}"] = np.s_[layer : layer + 1, :, [head]]
    heads["all layers"], heads["all layers but the first"] = np.s_[:], np.s_[1:]
    links = {(name, step): [] for name in heads for step in ("predicts", "reads")}
    for start in range(0, len(verses), 32):
        batch = verses[start : start + 32]
        texts, targets = ([getattr(x, y) for x in batch] for y in ("source", "target"))
        source_ids = translator.encode(texts)[0]
        labels = translator.encode_targets(targets)
        target_ids = np.pad(labels, [(0, 0), (1, 0)], constant_values=model.start_id)
        # (layers, batch, heads, 1 + target_length, source_length)
        scores = model.attention_scores(source_ids, target_ids)["cross"].numpy()
        spans = [x.numpy() for x in translator.encoded_spans(texts, targets)]
        is_end = source_ids.numpy() == translator.source_tokenizer.end_id
        for (name, step), found in links.items():
            weights = scores[heads[name]].mean(axis=(0, 2))
            weights = weights[:, 1:] if step == "reads" else weights[:, :-1]
            pairs = aligned_pairs(weights, *spans, is_end)
            found += map(word_links, texts, targets, pairs)
    return {
        f"{name}, the step that {step} a subword": error_rate(verses, found)
        for (name, step), found in links.items()
    }


def main() -> None:
    """Trains, and prints the error rates in percent."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--set", action="append", metavar="NAME=VALUE")
    options = parser.parse_args()
    load_tensorflow()
    import keras_transformer as kt
    from keras_transformer.translator import word_links

    text = splits(read_verses())
    print({name: len(verses) for name, verses in text.items()})
    if not options.folder.exists():
        train(options.folder, text, parse_settings(options.set))
    translator = kt.Translator.load(options.folder / "run" / "translator")
    print("Validation verses:")
    found = candidates(translator, text["validation"])
    for name, rate in sorted(found.items(), key=lambda item: item[1]):
        print(f"{rate:7.1%}  {name}")
    print("Test verses:")
    verses = text["test"]
    sides = [[verse.source for verse in verses], [verse.target for verse in verses]]
    pairs = translator.align(*sides)
    ours = error_rate(verses, map(word_links, *sides, pairs))
    for name, rate in {"Translator.align": ours, **baselines(verses)}.items():
        print(f"{rate:7.1%}  {name}")


if __name__ == "__main__":
    main()
