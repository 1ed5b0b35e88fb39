"""The Transformer: sequences in, sequences out."""

import importlib
import os
from collections.abc import Callable

import keras
from keras import ops

from keras_transformer.checks import check_ids, check_positive_integers
from keras_transformer.decoding import Hypotheses, Search
from keras_transformer.layers.masks import padding_mask
from keras_transformer.layers.positions import check_position_range
from keras_transformer.layers.saving import Activation, Dtype, Positions
from keras_transformer.layers.stack import Decoder, Encoder
from keras_transformer.layers.weights import WeightOptionsLayer
from keras_transformer.models.base import DecodedModel, TokenModel, check_special_ids
from keras_transformer.models.devices import check_layout
from keras_transformer.models.parts import Parts
from keras_transformer.models.presets import PRESETS


@keras.saving.register_keras_serializable(package="keras_transformer")
class Transformer(DecodedModel, TokenModel):
    """The encoder-decoder of "Attention is all you need".

    A functional Keras model, with the paper's base settings as defaults. It takes
    `{"source_ids": (batch, source_length), "target_ids": (batch, target_length)}`,
    int32, with targets that start with `start_id`, and returns float32 logits
    `(batch, target_length, vocabulary)`: at each position, of the next token.

    Args:
        source_vocabulary_size: Number of source tokens.
        target_vocabulary_size: Number of target tokens. None: source and target
            share one vocabulary and one embedding.
        num_layers: Number of blocks in the encoder, and also in the decoder unless
            `num_decoder_layers` is given.
        hidden_dim: Width of the states.
        num_heads: Number of attention heads; divides `hidden_dim`.
        intermediate_dim: Inner width of the feed-forward networks.
        dropout: Fraction of each sub-layer's outputs, and of the sums of
            embeddings and positions, to drop in training.
        normalize_first: Whether to normalize the inputs of each sub-layer (pre-norm)
            rather than the sum after it (the paper's post-norm).
        activation: Inner activation of the feed-forward networks.
        pad_id: Id of the padding.
        start_id: Id that begins every target. It may equal `pad_id`; then the first
            token of a target is not treated as padding.
        end_id: Id that ends every source and every target.
        positions: The scheme of positions: `"sinusoidal"`, `"rotary"`, `"linear_bias"`,
            or a layer to copy, such as `LearnedPositionalEncoding(max_length=512)`.
            None: no positions. A concatenated encoding takes its `encoding_dim` from
            `hidden_dim`; a linear map then narrows the last states to the width of the
            embedding.
        dtype: Dtype policy of every layer, such as `"mixed_bfloat16"`.
        attention_dropout: Fraction of the attention weights dropped in training, which
            materializes them; see `MultiHeadAttention`.
        activation_dropout: Fraction of the activations dropped inside the
            feed-forward networks in training.
        seed: Seed of all dropout. None: random numbers that
            `keras.utils.set_random_seed` makes repeatable.
        num_decoder_layers: Number of blocks in the decoder.
        epsilon: Added to the variance in every normalization.
        scale_embeddings: Whether to multiply embeddings by the square root of their
            width.
        output_bias: Whether to add a learned bias to the logits.
        **kwargs: Base `Model` arguments, such as `name`; and weight options (see
            `WeightOptionsLayer`) of all dense layers, such as `kernel_initializer`, and
            of the tables of token embeddings, such as `embeddings_regularizer`.

    Raises:
        ValueError: If a size is not positive, `num_heads` does not divide
            `hidden_dim`, a dropout is not a fraction, a special id is not in the
            vocabulary, or there is no such scheme of positions.

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
        activation: Activation = "relu",
        pad_id: int = 0,
        start_id: int = 2,
        end_id: int = 3,
        positions: Positions = "sinusoidal",
        dtype: Dtype = None,
        attention_dropout: float = 0.0,
        activation_dropout: float = 0.0,
        seed: int | None = None,
        num_decoder_layers: int | None = None,
        epsilon: float = 1e-6,
        scale_embeddings: bool = True,
        output_bias: bool = False,
        **kwargs,
    ):
        target_size = target_vocabulary_size
        if target_size is None:
            target_size = source_vocabulary_size
        check_positive_integers(
            source_vocabulary_size=source_vocabulary_size,
            target_vocabulary_size=target_size,
        )
        if num_decoder_layers is not None:
            check_positive_integers(num_decoder_layers=num_decoder_layers)
        start = {} if start_id == pad_id else {"start_id": start_id}
        check_special_ids(target_size, pad_id, end_id=end_id, **start)
        sizes = num_layers, hidden_dim, num_heads, intermediate_dim
        common = positions, dtype, attention_dropout, activation_dropout, seed, epsilon
        kinds = dropout, normalize_first, activation
        parts = Parts(*sizes, *kinds, *common, **kwargs)
        num_target_layers = num_decoder_layers or num_layers
        encoder = parts.stack(Encoder, "encoder")
        decoder = parts.stack(Decoder, "decoder", num_layers=num_target_layers)
        table = pad_id, scale_embeddings
        if target_vocabulary_size is None:
            target_embedding = parts.embedding("embedding", target_size, *table)
            source_embedding = target_embedding
        else:
            target_embedding = parts.embedding("target_embedding", target_size, *table)
            source_embedding = parts.embedding(
                "source_embedding", source_vocabulary_size, *table
            )
        narrow = parts.narrow()
        unmask_first = None
        if start_id == pad_id:
            unmask_first = UnmaskFirst(name="unmask_first", dtype=parts.dtype_policy)
        bias = LogitBias(name="output_bias", dtype="float32") if output_bias else None

        source_ids = keras.Input((None,), dtype="int32", name="source_ids")
        target_ids = keras.Input((None,), dtype="int32", name="target_ids")
        memory = encoder(source_embedding(source_ids))
        states = target_embedding(target_ids)
        states = states if unmask_first is None else unmask_first(states)
        states = decoder(states, memory)
        states = states if narrow is None else narrow(states)
        logits = target_embedding(states, reverse=True)
        super().__init__(
            inputs={"source_ids": source_ids, "target_ids": target_ids},
            outputs=logits if bias is None else bias(logits),
            parts=parts,
            settings={
                "source_vocabulary_size": source_vocabulary_size,
                "target_vocabulary_size": target_vocabulary_size,
                "pad_id": pad_id,
                "start_id": start_id,
                "end_id": end_id,
                "num_decoder_layers": num_decoder_layers,
                "scale_embeddings": scale_embeddings,
                "output_bias": output_bias,
            },
            **parts.model_arguments,
        )
        self.pad_id, self.start_id, self.end_id = pad_id, start_id, end_id
        self.max_positions = encoder.max_positions
        self.source_embedding = source_embedding
        self.target_embedding = target_embedding
        self.encoder = encoder
        self.decoder = decoder
        self.output_bias = bias
        self._unmask_first = unmask_first
        self._narrow = narrow

    @classmethod
    def from_preset(
        cls,
        preset: str | os.PathLike,
        source_vocabulary_size: int | None = None,
        **kwargs,
    ) -> "Transformer":
        """Builds a model of a published size, or reads a pretrained one.

        Args:
            preset: `"tiny"`, `"base"` or `"big"`: a size, with new weights. Otherwise a
                pretrained model: a folder or `"hf://user/model"`, as in
                `Translator.from_preset`.
            source_vocabulary_size: Number of source tokens, for a size.
            **kwargs: Any other constructor arguments, which override the preset's. For
                a pretrained model, they must not change the weights.

        Returns:
            A `Transformer`.

        Raises:
            ValueError: If a size is given without `source_vocabulary_size`, or a folder
                with it; for pretrained models, as in `Translator.from_preset`.
        """
        if preset in PRESETS:
            if source_vocabulary_size is None:
                raise ValueError(
                    "`source_vocabulary_size` must be given for a model with fresh "
                    f"weights. Received: preset={preset!r}."
                )
            settings = {**PRESETS[preset], **kwargs}
            return cls(source_vocabulary_size, **settings)
        is_path = isinstance(preset, os.PathLike) or "/" in str(preset)
        if not is_path and not os.path.isdir(preset):
            is_file = str(preset).endswith(".keras")
            remedy = " `keras.saving.load_model` reads that file." if is_file else ""
            raise ValueError(
                f"`preset` must be one of {tuple(PRESETS)}, a folder or "
                f'"hf://user/model". Received: preset={preset!r}.{remedy}'
            )
        if source_vocabulary_size is not None:
            raise ValueError(
                "`source_vocabulary_size` must be left out for a pretrained model. "
                f"Received: source_vocabulary_size={source_vocabulary_size}."
            )
        # It imports the models, so it is imported when it is called.
        pretrained = importlib.import_module("keras_transformer.interop.presets")
        return pretrained.read_transformer(preset, **kwargs)

    def attention_scores(self, source_ids, target_ids):
        """Returns the attention weights of every layer and head.

        Args:
            source_ids: Integer tensor of shape `(batch, source_length)`.
            target_ids: Integer tensor of shape `(batch, target_length)`.

        Returns:
            A dictionary of float tensors of shape `(num_layers, batch,
            num_heads, query_length, key_length)`: `"encoder"`, `"decoder"`
            (the self-attention) and `"cross"`. Rows of real tokens sum to
            one, rows of padding to zero.
        """
        for name, ids in (("source_ids", source_ids), ("target_ids", target_ids)):
            check_ids(ids, name, is_batch=True)
        states = self.source_embedding(source_ids)
        memory, encoder = self.encoder(states, return_attention_scores=True)
        states = self.target_embedding(target_ids)
        states = states if self._unmask_first is None else self._unmask_first(states)
        _, decoder, cross = self.decoder(states, memory, return_attention_scores=True)
        return {"encoder": encoder, "decoder": decoder, "cross": cross}

    def generate(
        self,
        source_ids,
        search: Search | None = None,
        max_length: int = 64,
        batch_size: int | None = None,
    ) -> Hypotheses:
        """Decodes with a search, compiled once for each search and length.

        You can pass any number of sentences: when one ends, the next takes its place.
        XLA compiles where it is worthwhile, unless the model was compiled with a
        `jit_compile` other than "auto"; see `SearchRunner`.

        Args:
            source_ids: Integer array or tensor of shape
                `(batch, source_length)`, padded with `pad_id`.
            search: A search of `keras_transformer.decoding`; greedy by default.
            max_length: Maximum number of tokens to produce, including the end token.
            batch_size: Sentences to search at a time, limited by memory; by default the
                fastest number on CPUs.

        Returns:
            `Hypotheses` of NumPy arrays, best first: `ids` of shape
            `(batch, hypotheses, max_length)` and `scores` of shape
            `(batch, hypotheses)`.

        Raises:
            ValueError: If `source_ids` are not integers of that shape, or the
                model has too few positions for sources or targets.
        """
        source_size = self.settings["source_vocabulary_size"]
        check_ids(source_ids, "source_ids", is_batch=True, vocabulary_size=source_size)
        check_positive_integers(max_length=max_length)
        check_layout(self)
        # Checked here, since the compiled program does not know the length.
        check_position_range(self.max_positions, max(source_ids.shape[1], max_length))
        target_size = self.settings["target_vocabulary_size"] or source_size
        return self._runner(
            source_ids,
            search,
            max_length,
            batch_size,
            target_size,
            longest=self.max_positions,
        )

    def likely_length(self, inputs) -> int:
        """Returns the padded length of the sources; see `decoding.CachedModel`."""
        return inputs.shape[1]

    def start(self, inputs, num_hypotheses: int, max_length: int):
        """Encodes the source ids once; see `decoding.CachedModel`."""
        states = self.encoder(self.source_embedding(inputs))
        mask = padding_mask(inputs, self.pad_id)
        return self.decoder.start(states, num_hypotheses, max_length, mask)

    def step(
        self,
        token_ids,
        context,
        cache,
        index,
        visible,
        tied_logits: Callable | None = None,
    ):
        """Computes the logits of the next tokens; see `decoding.CachedModel`.

        `tied_logits` is the function from states to logits, see `prepared_step`.
        """
        states = self.target_embedding(token_ids)
        states, cache = self.decoder.step(states, context, cache, index, visible)
        return self.logits_of(states, tied_logits), cache

    def tied_embedding(self):
        return self.target_embedding


@keras.saving.register_keras_serializable(package="keras_transformer")
class UnmaskFirst(keras.layers.Layer):
    """Passes states through, with a mask that is True at the first position."""

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

    # Without its own `get_config`, Keras cannot save or clone a layer with a policy.
    def get_config(self):
        return super().get_config()


@keras.saving.register_keras_serializable(package="keras_transformer")
class LogitBias(WeightOptionsLayer):
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
