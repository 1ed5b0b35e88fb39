"""Attention weights as a heat map of queries and keys."""

from collections.abc import Sequence

import keras
from matplotlib.figure import Figure

from keras_transformer.plots.layout import direction, grid, label_axis, readable


def attention_map(
    query_tokens: Sequence[str], key_tokens: Sequence[str], scores
) -> Figure:
    """Plots attention weights as maps: a row for each query, a column for each key.

    The shape of `scores` determines the plot. Given the weights of all layers,
    `scores[-1, 2]` is one head of the last layer, `scores[-1]` all its heads, and
    `scores[-1].mean(axis=0)` their average. Heads and layers are numbered from 0. All
    maps of a figure share one scale, which starts at 0.

    SentencePiece's mark "\u2581" is removed from subwords that begin a word; subwords
    that continue one get a dot. Columns run from right to left where the script of the
    keys does.

    Args:
        query_tokens: The tokens that attend, a list of str.
        key_tokens: The tokens that they attend to, a list of str.
        scores: Attention weights, an array or tensor of shape `(query, key)`, plotted
            as one map; `(heads, query, key)`, a map for each head; or
            `(layers, heads, query, key)`, a row of maps for each layer.

    Returns:
        A `matplotlib.figure.Figure`. Its axes are the maps, in order, and then their
        color scale.

    Raises:
        ValueError: If `scores` has another shape, or does not match the tokens.

    Example:
        >>> scores = np.full((5, 2, 3), 1 / 3)
        >>> figure = kt.plots.attention_map(["a", "dog"], ["ein", "Hund", "."], scores)
        >>> figure.axes[4].get_title()
        'head 4'
        >>> figure.savefig("attention.png", dpi=150)  # doctest: +SKIP
    """
    scores = keras.ops.convert_to_numpy(scores).astype("float32")
    shape = (len(query_tokens), len(key_tokens))
    if scores.ndim not in (2, 3, 4) or scores.shape[-2:] != shape or not scores.size:
        raise ValueError(
            "`scores` must have the shape (query, key), (heads, query, key) or "
            "(layers, heads, query, key), where (query, key) are the numbers of "
            f"tokens, {shape}. Received: scores of shape {scores.shape}."
        )
    maps = scores.reshape(-1, *shape)
    rows, columns = scores.shape[:2] if scores.ndim == 4 else grid(len(maps), 4)
    # In inches. Cells are square unless that would make a map too narrow to read.
    cell = min(0.32, 14 / (rows * shape[0]), 14 / (columns * shape[1]))
    height, width = (max(1.5, cell * count) for count in shape)
    queries, keys = readable(query_tokens), readable(key_tokens)
    figure = Figure((width * columns + 2.2, height * rows + 1.5), layout="constrained")
    for index, each in enumerate(maps):
        row, column = divmod(index, columns)
        axes = figure.add_subplot(rows, columns, index + 1, xticks=[], yticks=[])
        highest = scores.max() or 1
        image = axes.imshow(each, "Blues", vmin=0, vmax=highest, aspect="auto")
        axes.spines[:].set_color("0.8")
        axes.tick_params(length=0, labeltop=True, labelbottom=False)
        axes.tick_params(axis="x", labelrotation=90)
        if direction(key_tokens) == "rtl":
            axes.invert_xaxis()
        if row == 0:
            label_axis(axes.xaxis, *keys, width)
        if column == 0:
            label_axis(axes.yaxis, *queries, height)
        if scores.ndim == 3 or (scores.ndim == 4 and row == 0):
            axes.set_title(f"head {index}")
        if scores.ndim == 4 and column == 0:
            axes.set_ylabel(f"layer {row}")
    aspect = 5 * figure.get_figheight()  # equally thin in figures of any height
    scale = figure.colorbar(image, ax=figure.axes, aspect=aspect, pad=0.02)
    scale.outline.set_color("0.8")
    figure.supxlabel("key")
    figure.supylabel("query")
    return figure
