"""The Transformer: sequences in, sequences out."""

import functools

import keras
import numpy as np

from keras_transformer.checks import check_ids, check_positive_integers
from keras_transformer.kernels.dropout import Dropout
from keras_transformer.layers.decoder import Decoder
from keras_transformer.layers.embeddings import TokenEmbedding
from keras_transformer.layers.encoder import Encoder
from keras_transformer.layers.masks import padding_mask
from keras_transformer.layers.positions import (
    check_position_range,
    merge_positions,
    merge_positions_at,
)
from keras_transformer.models.generation import GenerationMixin
from keras_transformer.models.settings import (
    SettingsModel,
    check_called_with_ids,
    check_special_ids,
    name_of,
    policy_of,
)
from keras_transformer.models.stem import place_positions

PRESETS = {
    # Wu et al., 2021 (https://arxiv.org/abs/2105.14462): for small corpora.
    "tiny": {
        "num_layers": 4,
        "hidden_dim": 128,
        "num_heads": 4,
        "intermediate_dim": 256,
        "dropout": 0.3,
    },
    # Vaswani et al., 2017, table 3.
    "base": {
        "num_layers": 6,
        "hidden_dim": 512,
        "num_heads": 8,
        "intermediate_dim": 2048,
        "dropout": 0.1,
    },
    "big": {
        "num_layers": 6,
        "hidden_dim": 1024,
        "num_heads": 16,
        "intermediate_dim": 4096,
        "dropout": 0.3,
    },
}


@keras.saving.register_keras_serializable(package="keras_transformer")
class Transformer(GenerationMixin, SettingsModel):
    """The encoder-decoder of "Attention is all you need".

    A functional Keras model, with the paper's base settings as defaults. It
    takes `{"source_ids": (batch, source_length), "target_ids":
    (batch, target_length)}`, int32, the target beginning with `start_id`, and
    gives float32 logits `(batch, target_length, vocabulary)`: at each position
    the scores of the token that comes next.

    Args:
        source_vocabulary_size: Number of source tokens.
        target_vocabulary_size: Number of target tokens. None: source and target
            share one vocabulary and one embedding.
        num_layers: Number of blocks in the encoder, and again in the decoder.
        hidden_dim: Width of the states.
        num_heads: Number of attention heads; divides `hidden_dim`.
        intermediate_dim: Inner width of the feed-forward networks.
        dropout: Share dropped in training of each sub-layer's outputs and of
            the sums of embeddings and positions.
        normalize_first: Whether to normalise the inputs of each sub-layer
            (pre-norm) rather than the sum after it (the paper's post-norm).
        activation: Inner activation of the feed-forward networks.
        pad_id: Id of the padding.
        start_id: Id that begins every target.
        end_id: Id that ends every source and every target.
        positions: How positions are told apart: `"sinusoidal"`, `"rotary"`,
            `"linear_bias"`, or a layer, such as
            `LearnedPositionalEncoding(max_length=512)`, taken as a pattern. A
            concatenated encoding takes its `encoding_dim` out of `hidden_dim`,
            and a linear map leads from the states back to the embedding.
        dtype: Dtype policy of every layer, such as `"mixed_bfloat16"`.
        **kwargs: Base `Model` arguments, such as `name`.

    Raises:
        ValueError: If a size is not positive, `num_heads` does not divide
            `hidden_dim`, a special id lies outside the vocabulary, or there is
            no such scheme of positions.

    Example:
        >>> model = Transformer(
        ...     source_vocabulary_size=17, num_layers=1, hidden_dim=8,
        ...     num_heads=2, intermediate_dim=16,
        ... )
        >>> source_ids = np.array([[5, 7, 11, 3]])
        >>> target_ids = np.array([[2, 11, 7]])
        >>> model({"source_ids": source_ids, "target_ids": target_ids}).shape
        TensorShape([1, 3, 17])
        >>> model.generate(source_ids, max_length=5).ids.shape
        (1, 1, 5)

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762)
    """

    def __init__(
        self,
        source_vocabulary_size: int,
        target_vocabulary_size: int | None = None,
        num_layers: int = 6,
        hidden_dim: int = 512,
        num_heads: int = 8,
        intermediate_dim: int = 2048,
        dropout: float = 0.1,
        normalize_first: bool = False,
        activation="relu",
        pad_id: int = 0,
        start_id: int = 2,
        end_id: int = 3,
        positions="sinusoidal",
        dtype=None,
        **kwargs,
    ):
        shared = target_vocabulary_size is None
        target_size = source_vocabulary_size if shared else target_vocabulary_size
        check_positive_integers(
            source_vocabulary_size=source_vocabulary_size,
            target_vocabulary_size=target_size,
            hidden_dim=hidden_dim,
        )
        check_special_ids(target_size, pad_id, start_id=start_id, end_id=end_id)
        policy = policy_of(dtype)
        placed = place_positions(positions, hidden_dim, policy)
        stack_settings = {
            "num_layers": num_layers,
            "num_heads": num_heads,
            "intermediate_dim": intermediate_dim,
            "dropout": dropout,
            "normalize_first": normalize_first,
            "activation": activation,
            "positions": placed.in_attention,
            "dtype": policy,
        }

        def embedding(vocabulary_size, name):
            return TokenEmbedding(
                vocabulary_size, placed.embedding_dim, pad_id, name=name, dtype=policy
            )

        target_embedding = embedding(
            target_size, "embedding" if shared else "target_embedding"
        )
        source_embedding = (
            target_embedding
            if shared
            else embedding(source_vocabulary_size, "source_embedding")
        )
        narrow = None
        if placed.embedding_dim < hidden_dim:
            narrow = keras.layers.Dense(
                placed.embedding_dim, name="narrow", dtype=policy
            )
        source_dropout, target_dropout = (
            Dropout(dropout, name=f"{side}_dropout", dtype=policy)
            for side in ("source", "target")
        )
        encoder = Encoder(**stack_settings, name="encoder")
        decoder = Decoder(**stack_settings, name="decoder")

        source_ids = keras.Input((None,), dtype="int32", name="source_ids")
        target_ids = keras.Input((None,), dtype="int32", name="target_ids")
        source = merge_positions(placed.on_inputs, source_embedding(source_ids))
        target = merge_positions(placed.on_inputs, target_embedding(target_ids))
        states = decoder(target_dropout(target), encoder(source_dropout(source)))
        states = states if narrow is None else narrow(states)
        super().__init__(
            inputs={"source_ids": source_ids, "target_ids": target_ids},
            outputs=target_embedding(states, reverse=True),
            settings={
                "source_vocabulary_size": source_vocabulary_size,
                "target_vocabulary_size": target_vocabulary_size,
                "num_layers": num_layers,
                "hidden_dim": hidden_dim,
                "num_heads": num_heads,
                "intermediate_dim": intermediate_dim,
                "dropout": dropout,
                "normalize_first": normalize_first,
                "activation": name_of(activation),
                "pad_id": pad_id,
                "start_id": start_id,
                "end_id": end_id,
                "positions": placed.setting,
            },
            dtype=policy,
            **kwargs,
        )
        self.source_embedding = source_embedding
        self.target_embedding = target_embedding
        self.positions = placed.on_inputs
        self.encoder = encoder
        self.decoder = decoder
        self._narrow = narrow

    @classmethod
    def from_preset(cls, preset: str, source_vocabulary_size: int, **kwargs):
        """Builds a model of a published size, with fresh weights.

        Args:
            preset: `"tiny"`, `"base"` or `"big"`.
            source_vocabulary_size: Number of source tokens.
            **kwargs: Any other constructor argument; those of the preset can be
                overridden.

        Returns:
            A `Transformer`.

        Raises:
            ValueError: If there is no such preset.
        """
        if preset not in PRESETS:
            raise ValueError(
                f"`preset` must be one of {tuple(PRESETS)}. "
                f"Received: preset={preset!r}."
            )
        return cls(source_vocabulary_size, **{**PRESETS[preset], **kwargs})

    def call(self, inputs, training=None, mask=None):
        for name in ("source_ids", "target_ids"):
            if isinstance(inputs, dict) and name in inputs:
                check_called_with_ids(inputs[name], name)
        return super().call(inputs, training=training, mask=mask)

    def generate(self, source_ids, search=None, max_length: int = 64):
        if len(np.shape(source_ids)) == 2:
            # Before anything is compiled, which would leave the length open.
            longest = max(np.shape(source_ids)[1], max_length)
            check_position_range(self.positions, longest)
        return super().generate(source_ids, search, max_length)

    generate.__doc__ = GenerationMixin.generate.__doc__

    def attention_scores(self, source_ids, target_ids):
        """What every position looked at, in every layer and head.

        Args:
            source_ids: Integer tensor of shape `(batch, source_length)`.
            target_ids: Integer tensor of shape `(batch, target_length)`.

        Returns:
            A dictionary of float tensors of shape `(num_layers, batch,
            num_heads, query_length, key_length)`: `"encoder"`, `"decoder"`
            (the self-attention) and `"cross"`. Rows of real tokens sum to
            one, those of padding to zero.
        """
        for name, ids in (("source_ids", source_ids), ("target_ids", target_ids)):
            check_ids(ids, name)
        states = merge_positions(self.positions, self.source_embedding(source_ids))
        memory, encoder = self.encoder(states, return_attention_scores=True)
        states = merge_positions(self.positions, self.target_embedding(target_ids))
        _, decoder, cross = self.decoder(states, memory, return_attention_scores=True)
        return {"encoder": encoder, "decoder": decoder, "cross": cross}

    def start(self, inputs, num_hypotheses, max_length):
        """Encodes the sources, once, for cached decoding.

        Args:
            inputs: Integer tensor of shape `(batch, source_length)`.
            num_hypotheses: Number of hypotheses for each source.
            max_length: Number of target positions to make room for.

        Returns:
            The memory and the cache that `step` takes.
        """
        check_position_range(self.positions, max_length)
        states = merge_positions(self.positions, self.source_embedding(inputs))
        states = self.encoder(states)
        memory, cache = self.decoder.start(states, num_hypotheses, max_length)
        return (padding_mask(inputs, self.pad_id), memory), cache

    def step(self, token_ids, memory, cache, index, visible, score=None):
        """Scores the tokens that may follow, for every hypothesis at once.

        Args:
            token_ids: Integer tensor of shape `(batch, num_hypotheses)`, the
                tokens at position `index`.
            memory: Memory from `start`.
            cache: Cache from `start` or the last `step`.
            index: Position of `token_ids`, an integer tensor.
            visible: Boolean tensor of shape `(batch, num_hypotheses,
                max_length, num_hypotheses)`; see `DecoderBlock.step`.
            score: What makes logits of states; see `prepared_step`.

        Returns:
            Float32 logits `(batch, num_hypotheses, vocabulary)` and the cache.
        """
        memory_mask, memory = memory
        states = self.target_embedding(token_ids)
        states = merge_positions_at(self.positions, states, index)
        states, cache = self.decoder.step(
            states, memory, memory_mask, cache, index, visible
        )
        states = states if self._narrow is None else self._narrow(states)
        score = score or functools.partial(self.target_embedding, reverse=True)
        return score(states), cache

    def prepared_step(self):
        """Returns `step`, with the table of outputs turned once for all steps."""
        return functools.partial(
            self.step, score=self.target_embedding.logits_function()
        )
