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
        num_layers: As in `Transformer`, like all arguments from here to `epsilon`.
        weight_kinds: Kinds of weights that have options.
        **kwargs: Weight options, and base `Model` arguments.

    Attributes:
        embedding_dim: Width of embeddings: `hidden_dim` less a concatenated encoding.
        settings: All settings, as a config holds them.
        model_arguments: The base `Model` arguments, and unknown ones.

    Raises:
        ValueError: If the encoding leaves no width for the embedding.
    """

    def __init__(
        self,
        num_layers: int,
        hidden_dim: int,
        num_heads: int,
        intermediate_dim: int,
        dropout: float,
        normalize_first: bool,
        activation: Activation,
        positions: Positions = "sinusoidal",
        dtype: Dtype = None,
        attention_dropout: float = 0.0,
        activation_dropout: float = 0.0,
        seed: int | None = None,
        epsilon: float = 1e-6,
        weight_kinds=("kernel", "bias", "embeddings"),
        **kwargs,
    ):
        check_positive_integers(hidden_dim=hidden_dim)
        self.dtype_policy = keras.dtype_policies.get(dtype)
        self.weight_options = WeightOptions(kwargs, weight_kinds)
        self.model_arguments = kwargs
        layer = position_layer_of(positions, self.dtype_policy)
        encoding_dim = getattr(layer, "encoding_dim", None) or 0
        if encoding_dim >= hidden_dim:
            raise ValueError(
                "`hidden_dim` must be greater than the `encoding_dim` of concatenated "
                f"positions. Received: hidden_dim={hidden_dim}, "
                f"encoding_dim={encoding_dim}."
            )
        self.embedding_dim = hidden_dim - encoding_dim
        self._stack = {
            "num_layers": num_layers,
            "num_heads": num_heads,
            "intermediate_dim": intermediate_dim,
            "dropout": dropout,
            "normalize_first": normalize_first,
            "activation": keras.activations.get(activation),
            "positions": layer,
            "attention_dropout": attention_dropout,
            "activation_dropout": activation_dropout,
            "epsilon": epsilon,
        }
        is_name = isinstance(positions, str)
        self.settings = {
            **self._stack,
            "hidden_dim": hidden_dim,
            "activation": keras.activations.serialize(self._stack["activation"]),
            "positions": positions if is_name else layer_config(layer),
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
