"""The decoder-only language model: a text in, its continuation out."""

import functools

import keras
import numpy as np
from keras import ops

from keras_transformer.checks import check_ids, check_positive_integers
from keras_transformer.kernels.dropout import Dropout
from keras_transformer.layers.causal_decoder import CausalDecoder
from keras_transformer.layers.embeddings import TokenEmbedding
from keras_transformer.layers.masks import padding_mask
from keras_transformer.layers.positions import (
    check_position_range,
    merge_positions,
    merge_positions_at,
)
from keras_transformer.models.generation import GenerationMixin
from keras_transformer.models.settings import (
    TokenModel,
    check_special_ids,
    name_of,
    policy_of,
)
from keras_transformer.models.stem import place_positions


@keras.saving.register_keras_serializable(package="keras_transformer")
class LanguageModel(GenerationMixin, TokenModel):
    """A decoder-only Transformer: at each position, what comes next.

    A functional Keras model, with the sizes of GPT as defaults and GPT-2's
    normalisation first. It takes ids `(batch, length)`, int32, and gives
    float32 logits `(batch, length, vocabulary)`, scored with the table that
    embeds the ids. For training, labels are the ids one position on, as
    `kt.text.language_dataset` makes them of files:

        ids:    start  a    man  rides
        labels: a      man  rides  end

    `generate` goes on from any such ids, with a cache, by every search of
    `keras_transformer.decoding`.

    Args:
        vocabulary_size: Number of tokens.
        num_layers: Number of blocks.
        hidden_dim: Width of the states.
        num_heads: Number of attention heads; divides `hidden_dim`.
        intermediate_dim: Inner width of the feed-forward networks.
        dropout: Share dropped in training of each sub-layer's outputs and of
            the sums of embeddings and positions.
        normalize_first: Whether to normalise the inputs of each sub-layer
            (GPT-2) rather than the sum after it (GPT).
        activation: Inner activation of the feed-forward networks.
        pad_id: Id of the padding.
        start_id: Id that begins a text.
        end_id: Id that ends a text.
        positions: How positions are told apart: `"sinusoidal"`, `"rotary"`,
            `"linear_bias"`, or a layer, such as
            `LearnedPositionalEncoding(max_length=512)`, taken as a pattern.
            None: they are not. A concatenated encoding takes its
            `encoding_dim` out of `hidden_dim`, and a linear map leads from the
            states back to the embedding.
        dtype: Dtype policy of every layer, such as `"mixed_bfloat16"`.
        **kwargs: Base `Model` arguments, such as `name`.

    Raises:
        ValueError: If a size is not positive, `num_heads` does not divide
            `hidden_dim`, a special id lies outside the vocabulary, or there is
            no such scheme of positions.

    Example:
        >>> model = LanguageModel(
        ...     vocabulary_size=17, num_layers=1, hidden_dim=8, num_heads=2,
        ...     intermediate_dim=16,
        ... )
        >>> ids = np.array([[2, 5, 7, 11]])
        >>> model(ids).shape
        TensorShape([1, 4, 17])
        >>> model.generate(ids, max_length=5).ids.shape
        (1, 1, 5)

    Reference:
        [Radford et al., 2018](https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf);
        [Radford et al., 2019](https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf)
    """

    def __init__(
        self,
        vocabulary_size: int,
        num_layers: int = 12,
        hidden_dim: int = 768,
        num_heads: int = 12,
        intermediate_dim: int = 3072,
        dropout: float = 0.1,
        normalize_first: bool = True,
        activation="gelu",
        pad_id: int = 0,
        start_id: int = 2,
        end_id: int = 3,
        positions="sinusoidal",
        dtype=None,
        **kwargs,
    ):
        check_positive_integers(vocabulary_size=vocabulary_size, hidden_dim=hidden_dim)
        check_special_ids(vocabulary_size, pad_id, start_id=start_id, end_id=end_id)
        policy = policy_of(dtype)
        placed = place_positions(positions, hidden_dim, policy)
        embedding = TokenEmbedding(
            vocabulary_size,
            placed.embedding_dim,
            pad_id,
            name="embedding",
            dtype=policy,
        )
        decoder = CausalDecoder(
            num_layers,
            num_heads,
            intermediate_dim,
            dropout=dropout,
            normalize_first=normalize_first,
            activation=activation,
            positions=placed.in_attention,
            name="decoder",
            dtype=policy,
        )
        narrow = None
        if placed.embedding_dim < hidden_dim:
            narrow = keras.layers.Dense(
                placed.embedding_dim, name="narrow", dtype=policy
            )
        ids = keras.Input((None,), dtype="int32", name="ids")
        states = merge_positions(placed.on_inputs, embedding(ids))
        states = Dropout(dropout, name="dropout", dtype=policy)(states)
        states = decoder(states)
        states = states if narrow is None else narrow(states)
        super().__init__(
            inputs=ids,
            outputs=embedding(states, reverse=True),
            settings={
                "vocabulary_size": vocabulary_size,
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
        self.embedding = embedding
        self.positions = placed.on_inputs
        self.decoder = decoder
        self._narrow = narrow

    def generate(self, prompt_ids, search=None, max_length: int = 64):
        """Continues texts with a search, compiled once for each search and length.

        Args:
            prompt_ids: Integer array or tensor of shape `(batch, length)`, as
                the model is called with: beginning with `start_id` if texts did
                so in training, padded with `pad_id` on the right, lengths as
                they come. A row of padding stands for `start_id` alone.
            search: A search of `keras_transformer.decoding`; greedy unless
                given.
            max_length: Most tokens to add, the end symbol counted.

        Returns:
            `Hypotheses` of NumPy arrays, of what was added to the prompts:
            `ids` of shape `(batch, hypotheses, max_length)` and `scores` of
            shape `(batch, hypotheses)`, the best first.

        Raises:
            ValueError: If `prompt_ids` are not integers of that shape, or the
                texts could grow beyond the positions that there are.
        """
        check_ids(prompt_ids, "prompt_ids")
        if np.shape(prompt_ids)[1] == 0:
            raise ValueError(
                "`prompt_ids` must have a position at least: begin a text with "
                "`start_id`. Received: prompt_ids of shape "
                f"{tuple(np.shape(prompt_ids))}."
            )
        # Before anything is compiled, which would leave the length open.
        check_position_range(self.positions, np.shape(prompt_ids)[1] - 1 + max_length)
        return super().generate(prompt_ids, search, max_length)

    def attention_scores(self, ids):
        """What every position looked at, in every layer and head.

        Args:
            ids: Integer tensor of shape `(batch, length)`.

        Returns:
            A dictionary with the key `"decoder"`: a float tensor of shape
            `(num_layers, batch, num_heads, query_length, key_length)`. Rows of
            real tokens sum to one, those of padding to zero.
        """
        check_ids(ids, "ids")
        states = merge_positions(self.positions, self.embedding(ids))
        return {"decoder": self.decoder(states, return_attention_scores=True)[1]}

    def start(self, inputs, num_hypotheses, max_length):
        """Reads the prompts, once, for cached decoding.

        Every search begins with `start_id`. In its place `step` takes the last
        token of the prompt; the memory holds what came before that.

        Args:
            inputs: Integer tensor of shape `(batch, prompt_length)`.
            num_hypotheses: Number of hypotheses for each prompt.
            max_length: Number of further positions to make room for.

        Returns:
            The memory and the cache that `step` takes.
        """
        check_position_range(self.positions, max_length)
        inputs = ops.cast(inputs, "int32")
        is_real = padding_mask(inputs, self.pad_id)
        places = ops.arange(ops.shape(inputs)[1], dtype="int32")
        last = ops.max(ops.where(is_real, places, -1), axis=1, keepdims=True)
        # Prompts differ in length, and so in where the steps begin.
        first_step = ops.maximum(last, 0)
        last_ids = ops.take_along_axis(inputs, first_step, axis=1)
        states = merge_positions(self.positions, self.embedding(inputs))
        keys_and_values, cache = self.decoder.start(
            states, is_real, num_hypotheses, max_length
        )
        memory = {
            "keys_and_values": keys_and_values,
            "mask": is_real & (places < last),
            "last_ids": ops.where(last < 0, self.start_id, last_ids),
            "first_step": first_step,
        }
        return memory, cache

    def step(self, token_ids, memory, cache, index, visible, score=None):
        """Scores the tokens that may follow, for every hypothesis at once.

        Args:
            token_ids: Integer tensor of shape `(batch, num_hypotheses)`, the
                tokens at position `index`.
            memory: Memory from `start`.
            cache: Cache from `start` or the last `step`.
            index: Position of `token_ids`, counted from the last of the prompt,
                an integer tensor.
            visible: Boolean tensor of shape `(batch, num_hypotheses,
                max_length, num_hypotheses)`; see `DecoderBlock.step`.
            score: What makes logits of states; see `prepared_step`.

        Returns:
            Float32 logits `(batch, num_hypotheses, vocabulary)` and the cache.
        """
        token_ids = ops.where(index == 0, memory["last_ids"], token_ids)
        place = memory["first_step"][:, 0] + ops.cast(index, "int32")
        states = merge_positions_at(self.positions, self.embedding(token_ids), place)
        states, cache = self.decoder.step(
            states, memory["keys_and_values"], memory["mask"], cache, index, visible
        )
        states = states if self._narrow is None else self._narrow(states)
        score = score or functools.partial(self.embedding, reverse=True)
        return score(states), cache

    def prepared_step(self):
        """Returns `step`, with the table of outputs turned once for all steps."""
        return functools.partial(self.step, score=self.embedding.logits_function())
