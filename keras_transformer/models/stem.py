"""Embedding, positions and dropout: what comes before a model's first block."""

import keras
from keras import ops

from keras_transformer.checks import check_fractions
from keras_transformer.keras_private import set_mask
from keras_transformer.kernels.dropout import Dropout
from keras_transformer.layers.embeddings import TokenEmbedding
from keras_transformer.layers.positions import (
    acts_on_inputs,
    merge_positions,
    merge_positions_at,
    position_layer_of,
)
from keras_transformer.layers.saving import layer_config
from keras_transformer.layers.weights import sub_seed

_STACK_SETTINGS = (
    "num_heads",
    "intermediate_dim",
    "dropout",
    "normalize_first",
    "activation",
    "epsilon",
    "attention_dropout",
    "activation_dropout",
)


class PlacedPositions:
    """The layer of a model's positions, and the layers that depend on where it acts.

    Args:
        positions: See `layers.positions.position_layer_of`.
        hidden_dim: Width of the states.
        dtype: Dtype policy of the layers.
        max_length: Number of positions, where that is known.

    Attributes:
        setting: `positions` as a config holds it.
        on_inputs: The layer if it is called on embeddings, or None.
        in_attention: The layer if it is to be passed to stacks, or None.
        embedding_dim: Width of the embedding: `hidden_dim`, less the width of a
            concatenated encoding.

    Raises:
        ValueError: If there is no such scheme, or a concatenated encoding leaves
            no width for the embedding.
    """

    def __init__(
        self, positions, hidden_dim: int, dtype, max_length: int | None = None
    ):
        layer = position_layer_of(positions, dtype, max_length)
        encoding_dim = getattr(layer, "encoding_dim", None) or 0
        if encoding_dim >= hidden_dim:
            raise ValueError(
                "`hidden_dim` must be greater than the `encoding_dim` of concatenated "
                f"positions. Received: hidden_dim={hidden_dim}, "
                f"encoding_dim={encoding_dim}."
            )
        is_on_inputs = acts_on_inputs(layer)
        self.setting = positions if isinstance(positions, str) else layer_config(layer)
        self.on_inputs = layer if is_on_inputs else None
        self.in_attention = None if is_on_inputs else layer
        self.embedding_dim = hidden_dim - encoding_dim
        self.hidden_dim = hidden_dim
        self.dtype = dtype

    def token_embedding(
        self, vocabulary_size: int, pad_id: int, options, name="embedding", scale=True
    ):
        """Makes an embedding of the width that the positions leave."""
        sizes = vocabulary_size, self.embedding_dim
        settings = {"dtype": self.dtype, **options.of("embeddings")}
        return TokenEmbedding(*sizes, pad_id, scale, name=name, **settings)

    def token_embeddings(self, source_size: int, target_size: int | None, **settings):
        """Makes those of source and target: one and the same if `target_size` is None.

        `settings` are the other arguments of `token_embedding`.
        """
        if target_size is None:
            return (self.token_embedding(source_size, **settings),) * 2
        target = self.token_embedding(target_size, name="target_embedding", **settings)
        source = self.token_embedding(source_size, name="source_embedding", **settings)
        return source, target

    def stack(self, stack_class, name: str, arguments: dict, options, num_layers=None):
        """Makes a stack of blocks with the arguments of the model's constructor.

        Args:
            stack_class: `Encoder`, `Decoder` or `CausalDecoder`.
            name: Name of the stack, from which its seed is derived.
            arguments: The constructor's arguments by name.
            options: `WeightOptions` of the model.
            num_layers: Number of blocks; that of the arguments unless given.
        """
        given = {name: arguments[name] for name in _STACK_SETTINGS if name in arguments}
        return stack_class(
            num_layers or arguments["num_layers"],
            **given,
            positions=self.in_attention,
            seed=sub_seed(arguments["seed"], name),
            name=name,
            dtype=self.dtype,
            **options.of("kernel", "bias"),
        )

    def narrow_layer(self, options):
        """Makes the linear map from states to embeddings; None if equally wide."""
        if self.embedding_dim == self.hidden_dim:
            return None
        settings = {"dtype": self.dtype, **options.of("kernel", "bias")}
        return keras.layers.Dense(self.embedding_dim, name="narrow", **settings)


class Stem:
    """Embeds inputs, adds positions and applies dropout, at once or step by step.

    This is not a layer: in saved files, the layers that it calls belong to the model.

    Args:
        embed: Layer or function from the model's inputs to vectors.
        placed: `PlacedPositions`.
        dropout: Fraction of the sums of embeddings and positions to drop in
            training.
        seed: Seed of the model, from which that of the dropout is derived.
        name: Name of the dropout layer.
        begins_with_padding: Whether inputs begin with a token that has the id of the
            padding.
    """

    def __init__(
        self,
        embed,
        placed,
        dropout: float,
        seed: int | None,
        name: str = "dropout",
        begins_with_padding: bool = False,
    ):
        check_fractions(dropout=dropout)
        self._embed = embed
        self._unmask = None
        if begins_with_padding:
            self._unmask = UnmaskFirst(name=f"{name}_unmask", dtype=placed.dtype)
        self._positions = placed.on_inputs
        self._dropout = Dropout(
            dropout, sub_seed(seed, name), name=name, dtype=placed.dtype
        )

    def __call__(self, inputs, kept=None, training=None):
        """Returns the states `(batch, length, hidden_dim)` of whole inputs.

        Args:
            inputs: The model's inputs.
            kept: Boolean tensor of shape `(batch, length)`: the positions whose
                embedding is kept; the others get zeros. None: all.
            training: Whether to apply dropout.
        """
        states = self._embed(inputs)
        if kept is not None:
            states = states * ops.cast(kept, states.dtype)[..., None]
            set_mask(states, self._embed.compute_mask(inputs))
        if self._unmask is not None:
            states = self._unmask(states)
        states = merge_positions(self._positions, states)
        # From Keras 3.16 on, an explicit None is passed on to all layers that follow.
        mode = {} if training is None else {"training": training}
        return self._dropout(states, **mode)

    def at(self, token_ids, index):
        """Returns the states of one decoding step.

        Args:
            token_ids: Int32 tensor of shape `(batch, num_hypotheses)`.
            index: Their position, an integer tensor of no dimensions or of shape
                `(batch,)`.

        Returns:
            A float tensor of shape `(batch, num_hypotheses, hidden_dim)`.
        """
        return merge_positions_at(self._positions, self._embed(token_ids), index)


@keras.saving.register_keras_serializable(package="keras_transformer")
class UnmaskFirst(keras.layers.Layer):
    """Passes states on as they are, with a mask that is True at the first position."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, inputs):
        return ops.copy(inputs)  # Keras keeps the mask of a tensor that has one.

    def compute_output_shape(self, input_shape):
        return input_shape

    def compute_mask(self, inputs, previous_mask=None):
        if previous_mask is None:
            return None
        first = ops.ones_like(previous_mask[:, :1])
        return ops.concatenate([first, previous_mask[:, 1:]], axis=1)

    # Keras saves and clones no layer of a policy as an argument that has none of this.
    def get_config(self):
        return super().get_config()


@keras.saving.register_keras_serializable(package="keras_transformer")
class LogitBias(keras.layers.Layer):
    """Adds a learned bias to logits."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def build(self, input_shape):
        self.bias = self.add_weight(input_shape[-1:], "zeros", name="bias")

    def call(self, inputs):
        return inputs + self.bias

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):  # as above
        return super().get_config()
