"""One translation's attention as an interactive HTML page."""

import json
from collections.abc import Sequence
from importlib import resources

import numpy as np

from keras_transformer.plots.layout import WORD_START, direction, without_symbols, words
from keras_transformer.plots.translation import AttendedTranslation

ATTENTION_KINDS = {
    "cross": ("translation → source", "writing", "words of the source"),
    "encoder": ("source → source", "reading", "words of the source"),
    "decoder": ("translation → translation", "writing", "words that it had written"),
}
TOLERANCE = 1e-3  # by which rounding in half precision may lift a weight above 1


def attention_html(*seen: AttendedTranslation, names: Sequence[str] = ()) -> str:
    """Creates an HTML page that shows the attention weights of every word.

    The reader chooses the kind of attention; a layer and head, or the mean of a layer's
    heads, from small maps; and a word, with the mouse or the keyboard. The words that
    it attended to are shaded by their weights, and a table lists all weights. Words,
    and the columns of maps, run from right to left if the script does.

    Several translations of a text, by one model or several, are compared, two at a
    time, side by side. Choosing a word on one side also chooses, on the other, the word
    that attended most to the same source word.

    A link can also choose: add, for example, `#part=cross&layer=1&head=mean&word=3` to
    the address of the page, and for two sides `word=3,5&translation=0,2`. The page is a
    single file that loads nothing else.

    Args:
        *seen: The result of `translate_with_attention`, or the results of
            `translate_n_best_with_attention`. Their `scores` may contain any of the
            three kinds, the same ones in all.
        names: A label for each translation, such as the name of its model.

    Returns:
        The HTML, in ASCII characters only.

    Raises:
        ValueError: If there is no translation, or not a name for each, if the `scores`
            are not attention weights, or do not match the tokens, or if a `score` is
            not finite.

    Example:
        >>> scores = {"cross": np.full((1, 2, 1, 3), 1 / 3)}
        >>> tokens = ["\u2581a", "\u2581dog", "</s>"], ["\u2581Hund"]
        >>> seen = kt.plots.AttendedTranslation("Hund", *tokens, scores)
        >>> html = kt.plots.attention_html(seen)
        >>> pathlib.Path("hund.html").write_text(html)  # doctest: +SKIP
    """
    _check(seen, names)
    words_of_source = "".join(without_symbols(seen[0].source_tokens))
    data = {
        "source": words_of_source.replace(WORD_START, " ").strip(),
        "translations": [
            {
                "name": name,
                "text": each.text,
                "score": each.score,
                "kinds": [
                    _page_data(kind, each)
                    for kind in ATTENTION_KINDS
                    if kind in each.scores
                ],
            }
            for each, name in zip(seen, names or [""] * len(seen), strict=True)
        ],
    }
    # Escaped, so that no text can close the script element or open a comment in it.
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    text = text.replace("<", "\\u003c")
    page = resources.files(__package__).joinpath("page.html").read_text("ascii")
    return page.replace("{{data}}", text)


def _check(seen, names):
    if not seen or not all(isinstance(each, AttendedTranslation) for each in seen):
        received = ", ".join(type(each).__name__ for each in seen) or "nothing"
        raise ValueError(
            "`seen` must be one or more of what `translate_with_attention` returns. "
            f"Received: {received}."
        )
    if names and len(names) != len(seen):
        raise ValueError(
            "`names` must hold a name for each translation, or be left out. "
            f"Received: {len(names)} names of {len(seen)} translations."
        )
    for each in seen:
        kinds = set(each.scores)
        if not kinds or kinds - {*ATTENTION_KINDS} or kinds != set(seen[0].scores):
            raise ValueError(
                f"`seen.scores` must hold some of the kinds {tuple(ATTENTION_KINDS)}, "
                "the same kinds of scores in all translations. "
                f"Received: {tuple(each.scores)}, and first {tuple(seen[0].scores)}."
            )


def _page_data(name, seen):
    """Returns what the page needs to show one kind of attention."""
    source, target = seen.source_tokens, seen.target_tokens
    queries = source if name == "encoder" else target
    keys = ["<s>", *target[:-1]] if name == "decoder" else source
    scores = np.asarray(seen.scores[name], "float32")
    shape = (len(queries), len(keys))
    if scores.ndim != 4 or scores.shape[-2:] != shape or not scores.size:
        raise ValueError(
            f"`seen.scores[{name!r}]` must have the shape (layers, heads, query, key), "
            f"where (query, key) are the numbers of tokens, {shape}. "
            f"Received: scores of shape {scores.shape}."
        )
    if not ((scores >= 0) & (scores <= 1 + TOLERANCE)).all():
        raise ValueError(
            f"`seen.scores[{name!r}]` must be attention weights between 0 and 1. "
            f"Received: scores from {scores.min()} to {scores.max()}."
        )
    title, activity, attended_words = ATTENTION_KINDS[name]
    return {
        "name": name,
        "title": f"{name}: {title}",
        "query_heading": f"When {activity} this word, the model attended to …",
        "key_heading": f"… these {attended_words}",
        "queries": {"words": words(queries), "direction": direction(queries)},
        "keys": {"words": words(keys), "direction": direction(keys)},
        "layers": np.rint(1000 * scores).astype(int).tolist(),  # thousandths
    }
