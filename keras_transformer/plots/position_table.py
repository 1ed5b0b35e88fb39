"""Positional encodings as an image."""

import keras
import numpy as np
from matplotlib.figure import Figure


def position_table(encoding) -> Figure:
    """Plots positional encodings as an image with a row for each position.

    Args:
        encoding: Array or tensor of shape `(length, encoding_dim)`.

    Returns:
        A `matplotlib.figure.Figure`, in which 0 is white.

    Raises:
        ValueError: If `encoding` has another shape.

    Example:
        >>> layer = kt.layers.SinusoidalPositionalEncoding()
        >>> figure = kt.plots.position_table(layer(np.zeros((1, 50, 64)))[0])
        >>> figure.axes[0].get_ylabel()
        'position'
    """
    encoding = keras.ops.convert_to_numpy(encoding).astype("float32")
    if encoding.ndim != 2 or not encoding.size:
        raise ValueError(
            "`encoding` must have the shape (length, encoding_dim). "
            f"Received: encoding of shape {encoding.shape}."
        )
    figure = Figure((8, 4.5), layout="constrained")
    axes = figure.add_subplot(xlabel="dimension", ylabel="position")
    limit = np.abs(encoding).max()
    image = axes.imshow(encoding, "RdBu_r", vmin=-limit, vmax=limit, aspect="auto")
    figure.colorbar(image, ax=axes, aspect=30, pad=0.02)
    return figure
