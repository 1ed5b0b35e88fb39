"""Precision and recall of the flags on translations that look wrong.

    python benchmarks/flags.py MODEL DATA [--split val]

DATA is the folder of Multi30k. MODEL, as the shell takes it, counts subwords, and its
own translations of the text are flagged too. A sixth of the pairs stays as it is, and
so does a sixth in which two pairs are joined. The others are spoiled:

- `loop`: the last words, one to four of them, are repeated three to nine times;
- `length`: only the first third of the words is left, or another translation is added;
- `dropped sentence`: of two sentences, one is translated.

The thresholds were chosen on the split `val`. Recall is the share of the translations
spoiled in a way that are flagged for it. Precision is the share of those flagged for a
reason that are spoiled in any way.
"""

import argparse
import gzip
import random
from pathlib import Path

import keras_transformer as kt
from keras_transformer.cli.loading import load_translator
from keras_transformer.translator import flags

REASONS = ["loop", "length", "dropped sentence"]


def read(path):
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return file.read().splitlines()


def spoiled(pairs, seed=0):
    """Returns a source, its translation, and how that was spoiled, for each pair."""
    draw, cases = random.Random(seed), []
    for number, (source, target) in enumerate(pairs):
        other_source, other_target = draw.choice(pairs)
        words = target.split()
        two = f"{source} {other_source}", f"{target} {other_target}"
        how = number % 6
        if how == 0:
            cases.append((source, target, None))
        elif how == 1:
            cases.append((*two, None))
        elif how == 2:
            tail = " ".join(words[-draw.randint(1, 4) :])
            looped = " ".join([target, *[tail] * draw.randint(3, 9)])
            cases.append((source, looped, "loop"))
        elif how == 3:
            short = " ".join(words[: len(words) // 3])
            cases.append((source, short, "length"))
        elif how == 4:
            cases.append((source, two[1], "length"))
        else:
            kept = draw.choice([target, other_target])
            cases.append((two[0], kept, "dropped sentence"))
    return cases


def flagged(translator, sources, targets):
    """Returns the flags of translations of any origin."""
    counts = [
        tokenizer(texts).row_lengths().numpy() + 1
        for tokenizer, texts in (
            (translator.source_tokenizer, sources),
            (translator.target_tokenizer, targets),
        )
    ]
    return [flags(*one) for one in zip(sources, targets, *counts, strict=True)]


def measure(translator, pairs):
    """Returns the precision and the recall of each reason, and the shares flagged."""
    sources, targets, ways = map(list, zip(*spoiled(pairs), strict=True))
    found = flagged(translator, sources, targets)
    rows = {}
    for reason in REASONS:
        by_reason = [way for way, one in zip(ways, found, strict=True) if reason in one]
        hits = by_reason.count(reason)
        rows[reason] = (
            sum(way is not None for way in by_reason) / max(1, len(by_reason)),
            hits / ways.count(reason),
        )
    is_any = [way for way, one in zip(ways, found, strict=True) if one]
    num_right = len(is_any) - is_any.count(None)
    num_spoiled = len(ways) - ways.count(None)
    rows["any"] = num_right / max(1, len(is_any)), num_right / num_spoiled
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("data", type=Path)
    parser.add_argument("--split", default="test_2016_flickr")
    arguments = parser.parse_args()
    names = (f"{arguments.split}.{side}.gz" for side in ("en", "de"))
    sources, targets = (read(arguments.data / "raw" / name) for name in names)
    translator = load_translator(arguments.model)
    measured = measure(translator, list(zip(sources, targets, strict=True)))
    print(f"{'reason':18} precision  recall")
    for reason, (precision, recall) in measured.items():
        print(f"{reason:18} {precision:9.3f}  {recall:6.3f}")
    found = translator.translate_n_best(sources, kt.decoding.BeamSearch(4))
    for text, (best, *_) in zip(sources, found, strict=True):
        if best.flags:
            print(f"{', '.join(best.flags)}: {text!r} -> {best.text!r}")
    print(f"{sum(bool(best.flags) for best, *_ in found)} of {len(found)} translations")


if __name__ == "__main__":
    main()
