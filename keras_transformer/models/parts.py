"""The layers that models consist of."""

import keras

from keras_transformer.checks import check_positive_integers
from keras_transformer.layers.embeddings import TokenEmbedding
from keras_transformer.layers.positions import position_layer_of
from keras_transformer.layers.saving import (
    Activation,
    Dtype,
    Positions,
    layer_config,
    policy_config,
)
from keras_transformer.layers.weights import WeightOptions, sub_seed


class Parts:
    """Creates the layers of a model from its settings; seeds derive from their names.

    Args:
        arguments: Keyword arguments of the model. Weight options are taken out.
        hidden_dim: As in `Transformer`, and so are the next four.
        weight_kinds: Kinds of weights that have options.
        **stack: The other arguments of encoders and decoders.

    Attributes:
        embedding_dim: Width of embeddings: `hidden_dim` less a concatenated encoding.
        settings: All settings, as a config holds them.

    Raises:
        ValueError: If the encoding leaves no width for the embedding.
    """

    def __init__(
        self,
        arguments: dict,
        hidden_dim: int,
        activation: Activation,
        positions: Positions,
        dtype: Dtype,
        seed: int | None,
        weight_kinds=("kernel", "bias", "embeddings"),
        **stack,
    ):
        check_positive_integers(hidden_dim=hidden_dim)
        self.dtype_policy = keras.dtype_policies.get(dtype)
        self.weight_options = WeightOptions(arguments, weight_kinds)
        layer = position_layer_of(positions, self.dtype_policy)
        encoding_dim = getattr(layer, "encoding_dim", None) or 0
        if encoding_dim >= hidden_dim:
            raise ValueError(
                "`hidden_dim` must be greater than the `encoding_dim` of concatenated "
                f"positions. Received: hidden_dim={hidden_dim}, "
                f"encoding_dim={encoding_dim}."
            )
        self.embedding_dim = hidden_dim - encoding_dim
        activation = keras.activations.get(activation)
        self._stack = {**stack, "activation": activation, "positions": layer}
        self.settings = {
            **stack,
            "hidden_dim": hidden_dim,
            "activation": keras.activations.serialize(activation),
            "positions": positions
            if isinstance(positions, str)
            else layer_config(layer),
            "seed": seed,
            "dtype": policy_config(self.dtype_policy),
        }

    def stack(self, stack_class, name: str, **changes):
        """Makes an encoder or a decoder, with some settings changed."""
        settings = {**self._stack, "seed": sub_seed(self.settings["seed"], name)}
        return self.make(stack_class, name, **{**settings, **changes})

    def embedding(self, name: str, vocabulary_size: int, pad_id: int, scale=True):
        """Makes an embedding of tokens."""
        settings = vocabulary_size, self.embedding_dim, pad_id, scale
        return self.make(TokenEmbedding, name, *settings, kinds=["embeddings"])

    def narrow(self):
        """Makes the map from states to the width of embeddings; None if it is equal."""
        if self.embedding_dim == self.settings["hidden_dim"]:
            return None
        return self.dense("narrow", self.embedding_dim)

    def dense(self, name: str, units: int, **settings):
        """Makes a dense layer."""
        return self.make(keras.layers.Dense, name, units, **settings)

    def make(self, layer_class, name: str, *args, kinds=("kernel", "bias"), **kwargs):
        """Makes a layer with weights of these kinds."""
        options = self.weight_options.of(*kinds, name=name)
        settings = {"dtype": self.dtype_policy, **options, **kwargs}
        return layer_class(*args, name=name, **settings)
