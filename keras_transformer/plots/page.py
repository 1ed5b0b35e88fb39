"""One translation's attention as an interactive HTML page."""

import json
from importlib import resources

import numpy as np

from keras_transformer.plots.layout import direction, words
from keras_transformer.plots.translation import AttendedTranslation

ATTENTION_KINDS = {
    "cross": ("translation → source", "writing", "words of the source"),
    "encoder": ("source → source", "reading", "words of the source"),
    "decoder": ("translation → translation", "writing", "words that it had written"),
}
TOLERANCE = 1e-3  # by which rounding in half precision may lift a weight above 1


def attention_html(seen: AttendedTranslation) -> str:
    """Makes an HTML page that shows the attention weights of every word.

    The reader chooses the kind of attention, then a layer and head, or the mean of a
    layer's heads, from small maps, then a word, with the mouse or the arrow keys. The
    words that it attended to are shaded by their weights. A link can choose too: add,
    for example, `#part=cross&layer=1&head=mean&word=3` to the address of the page.
    Words, and the columns of maps, run from right to left where the script does.

    The page is one file that loads nothing else.

    Args:
        seen: What `translate_with_attention` returns. `seen.scores` may hold any of
            the three kinds.

    Returns:
        The HTML, in ASCII characters only.

    Raises:
        ValueError: If `seen.scores` are not attention weights, or do not fit the
            tokens.

    Example:
        >>> scores = {"cross": np.full((1, 2, 1, 3), 1 / 3)}
        >>> tokens = ["▁a", "▁dog", "</s>"], ["▁Hund"]
        >>> seen = kt.plots.AttendedTranslation("Hund", *tokens, scores)
        >>> html = kt.plots.attention_html(seen)
        >>> pathlib.Path("hund.html").write_text(html)  # doctest: +SKIP
    """
    names = [name for name in ATTENTION_KINDS if name in seen.scores]
    if not names or len(names) < len(seen.scores):
        raise ValueError(
            f"`seen.scores` must hold some of the kinds {tuple(ATTENTION_KINDS)}. "
            f"Received: scores of {tuple(seen.scores)}."
        )
    data = {"text": seen.text, "kinds": [_page_data(name, seen) for name in names]}
    # Escaped, so that no text can close the script element or open a comment in it.
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    page = resources.files(__package__).joinpath("page.html").read_text("ascii")
    return page.replace("{{data}}", text)


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
