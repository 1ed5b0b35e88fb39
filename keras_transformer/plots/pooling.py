"""The words of a document, shaded by their weights in attention pooling."""

from collections.abc import Sequence
from typing import Any

import keras
from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from keras_transformer.plots.layout import direction, readable

# In points.
WIDTH, MAX_HEIGHT, MARGIN, SCALE_HEIGHT = 8 * 72, 14 * 72, 14, 54
FONT_SIZES = (11, 9, 7, 5)  # The first that keeps to `MAX_HEIGHT` is used.
# In multiples of the font size.
LINE_HEIGHT, BOX_HEIGHT, PADDING, GAP = 2.0, 1.6, 0.25, 0.2


def pooled_attention(tokens: Sequence[str], weights) -> Figure:
    """Draws a text with each word shaded by its attention weight.

    It shows which words `layers.AttentionPooling` attends to in a document. Lines wrap.
    Words run from right to left where the script does.

    Args:
        tokens: The tokens of the document, words or SentencePiece's subwords.
        weights: Array or tensor of shape `(length,)`, the weight of each token.

    Returns:
        A `matplotlib.figure.Figure`: the text, and the scale of its shades from 0.

    Raises:
        ValueError: If `weights` has another shape, or does not fit the tokens.

    Example:
        >>> tokens = ["a", "truly", "great", "film"]
        >>> figure = kt.plots.pooled_attention(tokens, [0.1, 0.2, 0.6, 0.1])
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['a', 'truly', 'great', 'film']
    """
    weights = keras.ops.convert_to_numpy(weights).astype("float32")
    if weights.shape != (len(tokens),) or not weights.size:
        raise ValueError(
            "`weights` must have the shape (length,), where length is the number of "
            f"tokens, {len(tokens)}. Received: weights of shape {weights.shape}."
        )
    labels = readable(tokens)
    figure = Figure((WIDTH / 72, 1), dpi=72)  # a pixel is a point
    axes = figure.add_axes((0, 0, 1, 1))
    style: dict[str, Any] = {
        "family": labels.families,
        "parse_math": False,
        "ha": "center",
    }
    texts = [axes.text(0, 0, text, **style, va="center") for text in labels.texts]
    renderer = FigureCanvasAgg(figure).get_renderer()
    widths = (text.get_window_extent(renderer).width for text in texts)
    font_size = texts[0].get_fontproperties().get_size_in_points()
    lengths = [width / font_size for width in widths]
    for size in FONT_SIZES:
        places, num_lines = _flow([size * length for length in lengths], size)
        height = size * LINE_HEIGHT * num_lines + 2 * MARGIN + SCALE_HEIGHT
        if height <= MAX_HEIGHT:
            break
    figure.set_size_inches(WIDTH / 72, height / 72)
    axes.set(xlim=(0, WIDTH), ylim=(0, height))
    axes.set_axis_off()
    largest = weights.max() or 1
    shades = ScalarMappable(Normalize(0, largest), colormaps["Blues"])
    is_rtl = direction(tokens) == "rtl"
    for text, weight, (start, width, line) in zip(texts, weights, places, strict=True):
        x = WIDTH - start - width if is_rtl else start
        y = height - MARGIN - size * LINE_HEIGHT * (line + 0.5)
        box = (x, y - size * BOX_HEIGHT / 2), width, size * BOX_HEIGHT
        axes.add_patch(Rectangle(*box, color=shades.to_rgba(weight), linewidth=0))
        text.set(position=(x + width / 2, y), fontsize=size)
        text.set_color("white" if weight > 0.6 * largest else "black")
    bar = figure.add_axes((0.3, 32 / height, 0.4, 8 / height))
    few = MaxNLocator(4)  # Small weights have long labels.
    scale = figure.colorbar(shades, bar, orientation="horizontal", ticks=few)
    scale.set_label("attention weight", fontsize=9)
    scale.outline.set_color("0.8")
    bar.tick_params(labelsize=8)
    return figure


def _flow(widths, size):
    """Returns start, width and line number of each box, and the number of lines."""
    start, line, places = MARGIN, 0, []
    for width in widths:
        width += 2 * size * PADDING
        if start + width > WIDTH - MARGIN and start > MARGIN:
            start, line = MARGIN, line + 1
        places.append((start, width, line))
        start += width + size * GAP
    return places, line + 1
