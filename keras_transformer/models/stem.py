"""Where a model puts its positions: beside its embedding, or into its attention."""

from typing import Any, NamedTuple

import keras

from keras_transformer.layers.layer_arguments import layer_config
from keras_transformer.layers.positions import (
    acts_on_inputs,
    position_layer,
)


class PlacedPositions(NamedTuple):
    """A scheme of positions as a model with embeddings takes it up.

    Attributes:
        setting: The scheme, as a config holds it.
        on_inputs: The layer to be called on embeddings, or None.
        in_attention: The layer to be passed to stacks, or None.
        embedding_dim: What an encoding that is concatenated leaves of
            `hidden_dim`; all of it for other schemes.
    """

    setting: Any
    on_inputs: keras.layers.Layer | None
    in_attention: keras.layers.Layer | None
    embedding_dim: int


def place_positions(positions, hidden_dim: int, dtype, max_length: int | None = None):
    """Makes the layer of a scheme, and says where it goes.

    Args:
        positions: See `layers.position_schemes.position_layer`.
        hidden_dim: Width of the states.
        dtype: Dtype policy of the layer.
        max_length: Number of positions, where that is known.

    Returns:
        `PlacedPositions`.

    Raises:
        ValueError: If there is no such scheme, or an encoding that is
            concatenated leaves no room for the embedding.
    """
    layer = position_layer(positions, dtype, max_length)
    encoding_dim = getattr(layer, "encoding_dim", None) or 0
    if encoding_dim >= hidden_dim:
        raise ValueError(
            "`hidden_dim` must leave room for the embedding beside the positions. "
            f"Received: hidden_dim={hidden_dim}, encoding_dim={encoding_dim}."
        )
    is_on_inputs = acts_on_inputs(layer)
    return PlacedPositions(
        setting=positions if isinstance(positions, str) else layer_config(layer),
        on_inputs=layer if is_on_inputs else None,
        in_attention=None if is_on_inputs else layer,
        embedding_dim=hidden_dim - encoding_dim,
    )
