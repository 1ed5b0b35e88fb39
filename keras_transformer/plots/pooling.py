"""Attention pooled over a document: its words, shaded by what each had to say."""

from collections.abc import Sequence

import keras
from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from keras_transformer.plots.layout import direction, readable

# Points.
WIDTH, TALLEST, MARGIN, SCALE = 8 * 72, 14 * 72, 14, 54
SIZES = (11, 9, 7, 5)  # of letters: the largest that is not too tall
# Shares of the size of the letters.
LINE, BOX, PADDING, GAP = 2.0, 1.6, 0.25, 0.2


def pooled_attention(tokens: Sequence[str], weights) -> Figure:
    """Draws a text whose words are shaded by their shares of the attention.

    It shows what `layers.AttentionPooling` reads in a document. Lines wrap; of a text
    in a script that is read from right to left, so do the words.

    Args:
        tokens: The tokens of the document, words or SentencePiece's subwords.
        weights: Array or tensor of shape `(length,)`, the share of each token.

    Returns:
        A `matplotlib.figure.Figure`: the text, and the scale of its shades, from 0 on.

    Raises:
        ValueError: If `weights` has another shape, or does not go with the tokens.

    Example:
        >>> tokens = ["a", "truly", "great", "film"]
        >>> figure = kt.plots.pooled_attention(tokens, [0.1, 0.2, 0.6, 0.1])
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['a', 'truly', 'great', 'film']
    """
    weights = keras.ops.convert_to_numpy(weights).astype("float32")
    if weights.shape != (len(tokens),) or not weights.size:
        raise ValueError(
            "`weights` must have the shape (length,), as many as the tokens, "
            f"{len(tokens)}. Received: weights of shape {weights.shape}."
        )
    labels = readable(tokens)
    figure = Figure((WIDTH / 72, 1), dpi=72)  # a pixel is a point
    axes = figure.add_axes((0, 0, 1, 1))
    style = {"family": labels.families, "parse_math": False, "ha": "center"}
    texts = [axes.text(0, 0, text, **style, va="center") for text in labels.texts]
    lengths = _lengths(figure, texts)
    for size in SIZES:
        places, num_lines = _flow([size * length for length in lengths], size)
        height = size * LINE * num_lines + 2 * MARGIN + SCALE
        if height <= TALLEST:
            break
    figure.set_size_inches(WIDTH / 72, height / 72)
    axes.set(xlim=(0, WIDTH), ylim=(0, height))
    axes.set_axis_off()
    shades = ScalarMappable(Normalize(0, weights.max() or 1), colormaps["Blues"])
    leftward = direction(tokens) == "rtl"
    for text, weight, (start, width, line) in zip(texts, weights, places, strict=True):
        x = WIDTH - start - width if leftward else start
        y = height - MARGIN - size * LINE * (line + 0.5)
        box = (x, y - size * BOX / 2), width, size * BOX
        axes.add_patch(Rectangle(*box, color=shades.to_rgba(weight), linewidth=0))
        text.set(position=(x + width / 2, y), fontsize=size)
        text.set_color("white" if shades.norm(weight) > 0.6 else "black")
    bar = figure.add_axes((0.3, 32 / height, 0.4, 8 / height))
    few = MaxNLocator(4)  # small shares have long numbers
    scale = figure.colorbar(shades, bar, orientation="horizontal", ticks=few)
    scale.set_label("share of attention", fontsize=9)
    scale.outline.set_color("0.8")
    bar.tick_params(labelsize=8)
    return figure


def _lengths(figure, texts):
    """Returns how long each text is, in sizes of its letters."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    return [
        text.get_window_extent(renderer).width / text.get_fontsize() for text in texts
    ]


def _flow(widths, size):
    """Sets boxes in lines.

    Returns:
        Start, width and number of line of each box, and the number of lines.
    """
    start, line, places = MARGIN, 0, []
    for width in widths:
        width += 2 * size * PADDING
        if start + width > WIDTH - MARGIN and start > MARGIN:
            start, line = MARGIN, line + 1
        places.append((start, width, line))
        start += width + size * GAP
    return places, line + 1
