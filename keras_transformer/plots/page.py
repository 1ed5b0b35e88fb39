"""One translation's attention as a page of HTML, to explore by hand."""

import json
from importlib import resources

import numpy as np

from keras_transformer.plots.layout import direction, words
from keras_transformer.plots.translation import AttendedTranslation

PARTS = {
    "cross": (
        "translation → source",
        "Writing this word, the model looked at …",
        "… these words of the source",
    ),
    "encoder": (
        "source → source",
        "Reading this word, the model looked at …",
        "… these words of the source",
    ),
    "decoder": (
        "translation → translation",
        "Writing this word, the model looked at …",
        "… these words that it had written",
    ),
}
MARGIN = 1e-3  # by which a share in half precision may exceed 1


def attention_html(seen: AttendedTranslation) -> str:
    """Makes a page on which a person sees what every word looked at.

    Part of the model, layer and head, or the mean of a layer's heads, are picked from
    small maps; then any word, with the mouse or by the arrow keys. What it looked at
    is shaded by its share. A link can pick too: add, for example,
    `#part=cross&layer=1&head=mean&word=3` to the address of the page. Words, and the
    columns of maps, run from the right to the left where the text does.

    The page is one file that fetches nothing.

    Args:
        seen: What `translate_with_attention` returns. Any one of the three parts in
            `seen.scores` will do.

    Returns:
        The HTML, of ASCII characters only.

    Raises:
        ValueError: If `seen.scores` are not shares, or do not go with the tokens.

    Example:
        >>> scores = {"cross": np.full((1, 2, 1, 3), 1 / 3)}
        >>> tokens = ["▁a", "▁dog", "</s>"], ["▁Hund"]
        >>> seen = kt.plots.AttendedTranslation("Hund", *tokens, scores)
        >>> html = kt.plots.attention_html(seen)
        >>> pathlib.Path("hund.html").write_text(html)  # doctest: +SKIP
    """
    names = [name for name in PARTS if name in seen.scores]
    if not names or len(names) < len(seen.scores):
        raise ValueError(
            f"`seen.scores` must be of some of the parts {tuple(PARTS)}. "
            f"Received: scores of {tuple(seen.scores)}."
        )
    data = {"text": seen.text, "parts": [_part(name, seen) for name in names]}
    # No text can end the element that holds it, or begin a comment there.
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    page = resources.files(__package__).joinpath("page.html").read_text("ascii")
    return page.replace("{{data}}", text)


def _part(name, seen):
    """Returns what the page knows of one part of the model."""
    queries = seen.source_tokens if name == "encoder" else seen.target_tokens
    keys = seen.source_tokens
    if name == "decoder":
        keys = ["<s>", *seen.target_tokens[:-1]]
    scores = np.asarray(seen.scores[name], "float32")
    shape = (len(queries), len(keys))
    if scores.ndim != 4 or scores.shape[-2:] != shape or not scores.size:
        raise ValueError(
            f"`seen.scores[{name!r}]` must have the shape (layers, heads, query, key), "
            f"with (query, key) as many as the tokens, {shape}. "
            f"Received: scores of shape {scores.shape}."
        )
    if not ((scores >= 0) & (scores <= 1 + MARGIN)).all():
        raise ValueError(
            f"`seen.scores[{name!r}]` must be shares between 0 and 1. "
            f"Received: scores from {scores.min()} to {scores.max()}."
        )
    title, looking, looked_at = PARTS[name]
    return {
        "name": name,
        "title": f"{name}: {title}",
        "looking": looking,
        "looked_at": looked_at,
        "queries": {"words": words(queries), "direction": direction(queries)},
        "keys": {"words": words(keys), "direction": direction(keys)},
        "layers": np.rint(1000 * scores).astype(int).tolist(),  # thousandths
    }
