"""KerasHub's tokenizers for the models and the translators of this package."""

import tensorflow as tf

from keras_transformer.text import Tokenizer


class HubTokenizer(Tokenizer):
    """A KerasHub tokenizer as a tokenizer of this package.

    A translator with it translates, scores and exports a SavedModel. It cannot be saved
    to a folder: save its model, and wrap the tokenizer again. Alignments, markup and
    terms need positions in texts, which KerasHub's tokenizers do not give.

    Args:
        tokenizer: A KerasHub tokenizer that adds no tokens itself.
        pad: The token of the padding; by default the tokenizer's own.
        start: The token that begins every target; by default the tokenizer's own.
        end: The token that ends every text; by default the tokenizer's own.
        unknown: The token for text outside the vocabulary; by default the one of a
            `WordPieceTokenizer`, and none for others.

    Raises:
        ValueError: If the tokenizer lacks one of these tokens, or pads with the token
            that ends a text.

    Example:
        >>> words = ["[PAD]", "[UNK]", "[START]", "[END]", "a", "man", "rides"]
        >>> words = keras_hub.tokenizers.WordPieceTokenizer(words)  # doctest: +SKIP
        >>> HubTokenizer(words, "[PAD]", "[START]", "[END]")  # doctest: +SKIP
    """

    def __init__(
        self,
        tokenizer,
        pad: str | None = None,
        start: str | None = None,
        end: str | None = None,
        unknown: str | None = None,
    ):
        super().__init__(name="hub_tokenizer")
        self.tokenizer = tokenizer
        self.vocabulary_size = tokenizer.vocabulary_size()
        vocabulary = tokenizer.get_vocabulary()
        for name, token in {"pad": pad, "start": start, "end": end}.items():
            if token is None:
                token = getattr(tokenizer, f"{name}_token", None)
            if token not in vocabulary:
                raise ValueError(
                    f"`{name}` must be a token of the vocabulary; by default, it is "
                    f"the {type(tokenizer).__name__}'s. Received: {name}={token!r}."
                )
            setattr(self, f"{name}_id", tokenizer.token_to_id(token))
        if self.pad_id == self.end_id:
            raise ValueError(
                "`pad` must be another token than `end`. Received: both with id "
                f"{self.pad_id}. Pass a token that no text has."
            )
        unknown = unknown or getattr(tokenizer, "oov_token", None)
        self.unknown_id = tokenizer.token_to_id(unknown) if unknown else -1
        # In a trace, KerasHub always uses TensorFlow's operations.
        spec = tf.RaggedTensorSpec([None, None], tf.int32)
        texts = [tf.TensorSpec([None], tf.string)]
        self._to_ids = tf.function(tokenizer.tokenize, texts, autograph=False)
        self._to_texts = tf.function(tokenizer.detokenize, [spec], autograph=False)

    def _encode(self, texts, alpha=None):
        if alpha is not None:
            raise ValueError("`sampling` must be None with a tokenizer of KerasHub.")
        return self._to_ids(texts)

    def _decode(self, ids, unknown=None):
        return self._to_texts(ids)

    def pieces(self, ids) -> list[str]:
        return [self.tokenizer.id_to_token(int(index)) for index in ids]

    def equals(self, other) -> bool:
        return type(self) is type(other) and self.tokenizer is other.tokenizer

    def save(self, path):
        """Raises `ValueError`: translators with this tokenizer cannot be saved."""
        raise ValueError(
            "A translator with a tokenizer of KerasHub cannot be saved. Save its "
            "model, or export the translator."
        )
