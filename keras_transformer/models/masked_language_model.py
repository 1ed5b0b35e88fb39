"""The masked language model: an encoder trained on plain text."""

import keras

from keras_transformer.models.base import TokenModel
from keras_transformer.models.text_encoder import TextEncoder, encoder_of


@keras.saving.register_keras_serializable(package="keras_transformer")
class MaskedLanguageModel(TokenModel):
    """Predicts masked tokens from the tokens on both sides.

    A functional Keras model around a `TextEncoder`, which it trains:
    `TextClassifier.from_encoder(model.encoder, num_classes)` continues with the same
    weights. It takes ids `(batch, length)`, int32, and returns float32 logits
    `(batch, length, vocabulary)` of the token at each position. `text.mask_tokens`
    masks tokens; its labels are padding at unmasked positions, which
    `training.TokenCrossentropy` ignores.

    Args:
        vocabulary_size: Number of tokens, including the mask token.
        encoder: A `TextEncoder` to continue with; `from_encoder` passes it.
        name: Name of the model.
        trainable: Whether its weights are trained.
        **settings: The other arguments of `TextEncoder`, such as `num_layers`,
            `hidden_dim` and `dtype`, if there is no `encoder`.

    Raises:
        ValueError: If a size is not positive, `num_heads` does not divide `hidden_dim`,
            `pad_id` is not in the vocabulary, or a setting differs from the
            `encoder`'s.

    Example:
        >>> model = MaskedLanguageModel(
        ...     vocabulary_size=17, num_layers=1, hidden_dim=8, num_heads=2,
        ...     intermediate_dim=16,
        ... )
        >>> model(np.array([[5, 4, 11, 0]])).shape
        TensorShape([1, 4, 17])

    Reference:
        [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 3.1
    """

    def __init__(
        self,
        vocabulary_size: int,
        encoder: TextEncoder | None = None,
        name: str | None = None,
        trainable: bool = True,
        **settings,
    ):
        encoder = encoder_of(encoder, vocabulary_size, settings)
        transform = encoder.parts.dense(
            "transform",
            encoder.embedding.hidden_dim,
            activation=encoder.settings["activation"],
        )
        norm = keras.layers.LayerNormalization(
            epsilon=1e-6, name="norm", dtype=encoder.dtype_policy
        )
        ids = keras.Input((None,), dtype="int32", name="ids")
        states = norm(transform(encoder(ids)))
        super().__init__(
            inputs=ids,
            # By the encoder, so that a clone of the model has one embedding too.
            outputs=encoder(states, reverse=True),
            parts=encoder.parts,
            settings=encoder.settings,
            name=name,
            trainable=trainable,
        )
        self.pad_id = encoder.pad_id
        self.encoder = encoder

    @classmethod
    def from_encoder(
        cls, encoder: TextEncoder, name: str | None = None
    ) -> "MaskedLanguageModel":
        """Creates a model around an encoder, which becomes part of it.

        Args:
            encoder: A `TextEncoder`.
            name: Name of the model.

        Returns:
            A `MaskedLanguageModel`.
        """
        return cls(encoder=encoder, name=name, **encoder.settings)

    def attention_scores(self, ids):
        """Returns the encoder's attention weights, as `TextEncoder` does."""
        return self.encoder.attention_scores(ids)
