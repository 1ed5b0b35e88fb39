"""KerasHub's tokenizers for the models and the translators of this package."""

import tensorflow as tf

from keras_transformer.text import SubwordTokenizer


class HubTokenizer(SubwordTokenizer):
    """A tokenizer of KerasHub, used as a `SubwordTokenizer`.

    A translator with it translates, scores and exports a SavedModel. It cannot be
    saved to a folder: save the model, and give it the tokenizer again. Alignments,
    markup and terms need places in texts, which KerasHub's tokenizers do not give.

    Args:
        tokenizer: A tokenizer of KerasHub that adds no tokens itself.
        pad: The token of the padding; by default the tokenizer's own.
        start: The token that begins every target; by default the tokenizer's own.
        end: The token that ends every text; by default the tokenizer's own.

    Attributes:
        pad_id: Id of the padding.
        start_id: Id that begins a target.
        end_id: Id that ends a text.

    Raises:
        ValueError: If the tokenizer lacks one of these tokens, or pads with the token
            that ends a text.

    Example:
        >>> words = ["[PAD]", "[UNK]", "[START]", "[END]", "a", "man", "rides"]
        >>> words = keras_hub.tokenizers.WordPieceTokenizer(words)  # doctest: +SKIP
        >>> HubTokenizer(words, "[PAD]", "[START]", "[END]")  # doctest: +SKIP
    """

    has_offsets = False

    def __init__(
        self,
        tokenizer,
        pad: str | None = None,
        start: str | None = None,
        end: str | None = None,
    ):
        tf.Module.__init__(self, name="hub_tokenizer")
        self.tokenizer = tokenizer
        self.vocabulary_size = tokenizer.vocabulary_size()
        vocabulary = tokenizer.get_vocabulary()
        for name, token in {"pad": pad, "start": start, "end": end}.items():
            if token is None:
                token = getattr(tokenizer, f"{name}_token", None)
            if token not in vocabulary:
                raise ValueError(
                    f"`{name}` must be a token of the vocabulary; by default, it is "
                    f"that of {type(tokenizer).__name__}. Received: {name}={token!r}."
                )
            setattr(self, f"{name}_id", tokenizer.token_to_id(token))
        if self.pad_id == self.end_id:
            raise ValueError(
                "`pad` must be another token than `end`. Received: both with id "
                f"{self.pad_id}. Name a token that no text has."
            )
        self.unknown_id = self.pad_id  # models need none
        # In a trace, KerasHub uses TensorFlow's operations whatever the texts are.
        spec = tf.RaggedTensorSpec([None, None], tf.int32)
        texts = [tf.TensorSpec([None], tf.string)]
        self._to_ids = tf.function(tokenizer.tokenize, texts, autograph=False)
        self._to_texts = tf.function(tokenizer.detokenize, [spec], autograph=False)

    def sample(self, texts, alpha=0.1):
        """KerasHub's tokenizers do not sample.

        Raises:
            ValueError: Always.
        """
        raise ValueError("`sampling` must be None with a tokenizer of KerasHub.")

    def split(self, texts):
        """KerasHub's tokenizers give no places in texts.

        Raises:
            ValueError: Always.
        """
        raise ValueError(
            "Alignments and markup are not possible with a tokenizer of KerasHub, "
            "which does not say where a token stands in a text."
        )

    byte_offsets = split

    def _encode(self, texts, alpha=None):
        return self._to_ids(texts)

    def _decode(self, ids, unknown=None):
        return self._to_texts(ids)

    def pieces(self, ids) -> list[str]:
        return [self.tokenizer.id_to_token(int(index)) for index in ids]

    def equals(self, other) -> bool:
        return type(self) is type(other) and self.tokenizer is other.tokenizer

    def save(self, path):
        """KerasHub's tokenizers are not saved with a translator.

        Raises:
            ValueError: Always.
        """
        raise ValueError(
            "A translator with a tokenizer of KerasHub cannot be saved. Save its "
            "model, or export the translator."
        )
