"""A small corpus on disk, and a recipe that trains on it in seconds."""

import json
import random

WORDS = ["ba", "ko", "li", "mu", "ne", "ri", "sa", "to", "vu", "ze"]
SETTINGS = {
    "data": {
        "source": "aa",
        "target": "bb",
        "train": {"source": "train.{source}", "target": "train.{target}"},
        "validation": {"source": "val.{source}", "target": "val.{target}"},
        "test": {
            "source": "val.{source}",
            "target": "val.{target}",
            "tokenized": "val.{target}",
        },
    },
    "tokenizer": {"vocabulary_size": 29},
    "model": {
        "preset": "tiny",
        "num_layers": 1,
        "hidden_dim": 8,
        "num_heads": 2,
        "intermediate_dim": 11,
        "dropout": 0.3,
        "normalize_first": False,
    },
    "training": {
        "epochs": 2,
        "tokens_per_batch": 128,
        "max_length": 16,
        "optimizer": "adam",
        "learning_rate": 1e-3,
        "warmup_steps": 4000,
        "cooldown_epochs": 0,
        "passes_per_epoch": 1,
        "jit_compile": False,
        "bleu_every": 2,
        "bleu_sentences": 3,
    },
    "decoding": {"beam_width": 2, "average": 2},
}


def sentences(count, seed):
    """Returns random sentences of three to five words."""
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(3, 5))) for _ in range(count)]


def write_lines(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def write_corpus(folder):
    """Writes text in three languages: random, the same reversed, and in capitals."""
    for name, count in (("train", 53), ("val", 7)):
        lines = sentences(count, seed=count)
        write_lines(folder / f"{name}.aa", lines)
        write_lines(folder / f"{name}.bb", [line[::-1] for line in lines])
        write_lines(folder / f"{name}.cc", [line.upper() for line in lines])


def write_recipe(path, settings=SETTINGS):
    path.write_text(json.dumps(settings), encoding="utf-8")  # YAML holds JSON
    return path
