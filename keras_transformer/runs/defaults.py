"""Settings that follow from the size of the training text, if a recipe names none.

The rules were chosen on texts of 300 to 29,000 pairs; `benchmarks/QUALITY.md` compares
them with settings that were chosen by hand.
"""

import math
import unicodedata
from collections import Counter
from typing import Any, NamedTuple

from keras_transformer.models.presets import PRESETS
from keras_transformer.runs.recipe import FOLLOWING, Recipe
from keras_transformer.text_files import Files, paired_files, read_pairs

# Beyond so many words, counted on both sides, a text is worth the preset `base`.
_WORDS_OF_BASE = 5_000_000
_EPOCHS = 15  # enough for a curve, for a cooldown, and to average checkpoints


class TextSize(NamedTuple):
    """The size of a parallel text.

    Attributes:
        pairs: Number of sentence pairs.
        words: Number of words, on both sides together.
        characters: Number of different characters.
    """

    pairs: int
    words: int
    characters: int


def measure(source_files: Files, target_files: Files) -> TextSize:
    """Reads a parallel text once, and returns its size.

    A file counts as often as it is named.

    Raises:
        ValueError: If the text is faulty; the message names file and line.
    """
    pairs, words, length = 0, 0, 0
    characters: set[str] = set()
    for files, weight in Counter(paired_files(source_files, target_files)).items():
        for pair in read_pairs([files]):
            text = unicodedata.normalize("NFKC", f"{pair.source} {pair.target}")
            pairs += weight
            words += weight * len(text.split())
            length += weight * len(text)
            characters.update(text)
    # Where no spaces separate words, characters are counted instead.
    return TextSize(pairs, max(words, length // 8), len(characters))


def settings_for(recipe: Recipe, text: TextSize) -> dict[str, Any]:
    """Returns the settings that follow from the text, by their dotted names.

    What the recipe names stays as it is, and the others follow from it: a third of the
    named epochs is the cooldown, for example. A pretrained model keeps its sizes,
    dropout and tokenizers.

    Args:
        recipe: A recipe.
        text: Size of its training text.

    Returns:
        The settings that the recipe does not name.

    Example:
        >>> recipe = Recipe.load("demo", {"training.epochs": 9})
        >>> found = settings_for(recipe, TextSize(20_000, 130_000, 150))
        >>> found["training.passes_per_epoch"]
        1
    """
    tokenizer, model, training = recipe.tokenizer, recipe.model, recipe.training
    rules: dict[str, Any] = {}
    if model.pretrained is None:
        words = text.words if tokenizer.shared else text.words / 2
        least = 1.2 * text.characters + 20 + 256 * tokenizer.byte_fallback
        size = min(max(12 * math.sqrt(words), least), max(32_000, least))
        rules["tokenizer.vocabulary_size"] = _rounded(size)
        preset = model.preset or ("base" if text.words > _WORDS_OF_BASE else "tiny")
        rules["model.preset"] = preset
        # The preset's 0.3 is for 29,000 sentences; short phrases need less.
        is_tiny = preset == "tiny"
        rules["model.dropout"] = 0.2 if is_tiny else PRESETS[preset]["dropout"]
        width = model.hidden_dim or PRESETS[preset]["hidden_dim"]
        accumulates = training.batches_per_update > 1
        optimizer = "muon" if is_tiny and not accumulates else "adam"
        peak = 6e-3 if (training.optimizer or optimizer) == "muon" else 4e-3
        rate, num_steps = peak * min(1.0, 128 / width), 10 * math.sqrt(text.words)
        num_steps = min(max(num_steps, 600), 100_000)
    else:
        optimizer = "adam"
        rate = 5e-5 if model.lora_rank is None else 1e-3
        num_steps = min(max(math.sqrt(text.words), 60), 10_000)
    rules["training.optimizer"] = optimizer
    rules["training.learning_rate"] = rate
    batch = 256 * round(8 * math.sqrt(text.words / 1e6))
    batch = max(min(max(batch, 1024), 16_384), training.max_length)
    rules["training.tokens_per_batch"] = batch
    # About so many tokens has a side: subwords, end tokens and padding.
    tokens = max(0.75 * text.words + text.pairs, 12 * text.pairs)
    passes = num_steps * (training.tokens_per_batch or batch) / tokens
    at_once = training.passes_per_epoch or max(1, round(passes / _EPOCHS))
    if (training.epochs or training.validate_every) and not training.passes_per_epoch:
        at_once = 1
    rules["training.passes_per_epoch"] = at_once
    per_epoch = float(at_once)
    if training.validate_every:
        per_epoch = passes * training.validate_every / num_steps
    epochs = training.num_epochs or max(1, round(passes / per_epoch))
    if not training.steps:
        rules["training.epochs"] = epochs
    rules["training.cooldown_epochs"] = epochs // 3
    num_steps *= epochs * per_epoch / passes  # of the epochs that are named
    rules["training.warmup_steps"] = _rounded(min(max(num_steps / 8, 1), 4000))
    return {name: value for name, value in rules.items() if recipe.get(name) is None}


def left_out(recipe: Recipe, begun: Recipe) -> dict[str, Any]:
    """Returns the settings of a run that the recipe to resume it does not name."""
    names = {*FOLLOWING, "training.steps"}
    if recipe.training.epochs or recipe.training.steps:
        names -= {"training.epochs", "training.steps"}
    values = {name: begun.get(name) for name in names if recipe.get(name) is None}
    return {name: value for name, value in values.items() if value is not None}


def table_of(named: Recipe, recipe: Recipe, text: TextSize) -> str:
    """Returns a table of the settings that follow from the text if they are not named.

    Args:
        named: The recipe as it was given.
        recipe: The same with all settings.
        text: Size of the training text.
    """
    rows = [("setting", "value", "from")]
    for name in FOLLOWING:
        is_named, value = named.get(name) is not None, recipe.get(name)
        origin = "recipe" if is_named else f"follows from {text.pairs:,} pairs"
        if value is not None:
            shown = f"{value:,}" if isinstance(value, int) else f"{value}"
            rows.append((name, str(value) if value is True else shown, origin))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return "\n".join(f"{a:{widths[0]}}  {b:>{widths[1]}}  {c}" for a, b, c in rows)


def _rounded(number: float) -> int:
    """Returns a number with two significant digits."""
    return int(float(f"{number:.1e}"))
