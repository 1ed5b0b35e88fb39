"""The decoder-only language model: text in, continuation out."""

from collections.abc import Callable

import keras
from keras import ops

from keras_transformer.checks import check_ids, check_positive_integers
from keras_transformer.decoding import Hypotheses, Search
from keras_transformer.layers.masks import padding_mask
from keras_transformer.layers.positions import check_position_range
from keras_transformer.layers.saving import Activation
from keras_transformer.layers.stack import CausalDecoder
from keras_transformer.models.base import DecodedModel, TokenModel, check_special_ids
from keras_transformer.models.devices import check_layout
from keras_transformer.models.parts import Parts


@keras.saving.register_keras_serializable(package="keras_transformer")
class LanguageModel(DecodedModel, TokenModel):
    """A decoder-only Transformer: at each position, it predicts the next token.

    A functional Keras model, with the sizes of GPT as defaults and GPT-2's pre-norm. It
    takes ids `(batch, length)`, int32, and returns float32 logits
    `(batch, length, vocabulary)`, computed with the embedding table. For training,
    labels are the ids shifted by one position, as in the batches of
    `kt.text.language_dataset`:

        ids:    start  a    man  rides
        labels: a      man  rides  end

    `generate` continues such ids, using a cache, with any search of
    `keras_transformer.decoding`.

    Args:
        vocabulary_size: Number of tokens.
        normalize_first: Whether to normalize the inputs of each sub-layer (GPT-2)
            rather than the sum after it (GPT).
        start_id: Id that begins a text.
        end_id: Id that ends a text.

    The other arguments are as in `Transformer`.

    Raises:
        ValueError: As in `Transformer`.

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
        activation: Activation = "gelu",
        pad_id: int = 0,
        start_id: int = 2,
        end_id: int = 3,
        **kwargs,
    ):
        check_positive_integers(vocabulary_size=vocabulary_size)
        check_special_ids(vocabulary_size, pad_id, start_id=start_id, end_id=end_id)
        sizes = num_layers, hidden_dim, num_heads, intermediate_dim
        parts = Parts(*sizes, dropout, normalize_first, activation, **kwargs)
        decoder = parts.stack(CausalDecoder, "decoder")
        embedding = parts.embedding("embedding", vocabulary_size, pad_id)
        narrow = parts.narrow()

        ids = keras.Input((None,), dtype="int32", name="ids")
        states = decoder(embedding(ids))
        states = states if narrow is None else narrow(states)
        special = {"pad_id": pad_id, "start_id": start_id, "end_id": end_id}
        super().__init__(
            inputs=ids,
            outputs=embedding(states, reverse=True),
            parts=parts,
            settings={"vocabulary_size": vocabulary_size, **special},
            **parts.model_arguments,
        )
        self.pad_id, self.start_id, self.end_id = pad_id, start_id, end_id
        self.max_positions = decoder.max_positions
        self.embedding = embedding
        self.decoder = decoder
        self._narrow = narrow
        self.output_bias = None

    def generate(
        self,
        prompt_ids,
        search: Search | None = None,
        max_length: int = 64,
        batch_size: int | None = None,
    ) -> Hypotheses:
        """Continues texts with a search; see `Transformer.generate`.

        Args:
            prompt_ids: Integer array or tensor of shape `(batch, length)`, like
                the model's inputs: beginning with `start_id` if texts did so in
                training, and padded with `pad_id` on the right. Padding between tokens
                is hidden, but takes a position. A row of padding counts as `start_id`
                alone.
            search: As in `Transformer.generate`.
            max_length: Maximum number of tokens to add, end token included.
            batch_size: As in `Transformer.generate`.

        Returns:
            `Hypotheses` of the tokens added to the prompts.

        Raises:
            ValueError: If `prompt_ids` are not integers of that shape, or the
                model has too few positions for prompts and continuations.
        """
        size = self.settings["vocabulary_size"]
        check_ids(prompt_ids, "prompt_ids", is_batch=True, vocabulary_size=size)
        check_positive_integers(max_length=max_length)
        check_layout(self)
        length = prompt_ids.shape[1]
        if length == 0:
            raise ValueError(
                "`prompt_ids` must have at least one position: begin a text with "
                "`start_id`. Received: prompt_ids of shape "
                f"{tuple(prompt_ids.shape)}."
            )
        # Checked here, since the compiled program does not know the length.
        check_position_range(self.max_positions, length - 1 + max_length)
        longest = self.max_positions and self.max_positions - (length - 1)
        return self._runner(prompt_ids, search, max_length, batch_size, size, longest)

    def attention_scores(self, ids):
        """Returns attention weights as `"decoder"`, as `TextEncoder` does."""
        check_ids(ids, is_batch=True)
        states = self.embedding(ids)
        _, weights = self.decoder(states, return_attention_scores=True)
        return {"decoder": weights}

    def start(self, inputs, num_hypotheses: int, max_length: int):
        """Reads the prompts once; see `decoding.CachedModel`.

        Every search starts with `start_id`. Instead of it, `step` takes the last token
        of the prompt; the context holds the tokens before it.
        """
        inputs = ops.cast(inputs, "int32")
        is_real = padding_mask(inputs, self.pad_id)
        positions = ops.arange(ops.shape(inputs)[1], dtype="int32")
        last = ops.max(ops.where(is_real, positions, 0), axis=1)
        last_ids = ops.take_along_axis(inputs, last[:, None], axis=1)
        prompt, cache = self.decoder.start(
            self.embedding(inputs),
            num_hypotheses,
            max_length,
            is_real & (positions < last[:, None]),
        )
        context = {
            "prompt": prompt,
            "last": last,
            "last_ids": ops.where(last_ids == self.pad_id, self.start_id, last_ids),
        }
        return context, cache

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

        `index` counts from the last token of the prompt. `tied_logits` is the function
        from states to logits, see `prepared_step`.
        """
        token_ids = ops.where(index[:, None] == 0, context["last_ids"], token_ids)
        states, cache = self.decoder.step(
            self.embedding(token_ids),
            context["prompt"],
            cache,
            index,
            visible,
            positions=context["last"] + index,
        )
        return self.logits_of(states, tied_logits), cache

    def tied_embedding(self):
        return self.embedding
