"""The document classifier: text in, class out."""

import keras

from keras_transformer.checks import check_ids, check_positive_integers
from keras_transformer.kernels.dropout import Dropout
from keras_transformer.layers.pooling import AttentionPooling
from keras_transformer.layers.weights import sub_seed
from keras_transformer.models.base import TokenModel
from keras_transformer.models.text_encoder import TextEncoder, encoder_of


@keras.saving.register_keras_serializable(package="keras_transformer")
class TextClassifier(TokenModel):
    """Classifies texts.

    A functional Keras model: a `TextEncoder` reads the text, `AttentionPooling`
    averages its states with the attention weights of one learned query, and a
    linear layer computes the logits. It takes ids `(batch, length)`, int32, and
    returns float32 logits `(batch, num_classes)`, for
    `keras.losses.SparseCategoricalCrossentropy(from_logits=True)`.

    Args:
        vocabulary_size: Number of tokens.
        num_classes: Number of classes.

    The other arguments and the errors are as in `MaskedLanguageModel`; `dropout` also
    applies to the pooled vector.

    Example:
        >>> model = TextClassifier(
        ...     vocabulary_size=17, num_classes=3, num_layers=1, hidden_dim=8,
        ...     num_heads=2, intermediate_dim=16,
        ... )
        >>> ids = np.array([[5, 7, 11, 0]])
        >>> model(ids).shape
        TensorShape([1, 3])
        >>> model.pooling_scores(ids).shape
        TensorShape([1, 4])

    Reference:
        [Yang et al., 2016](https://aclanthology.org/N16-1174), section 2.2, for
        the query; [Devlin et al., 2018](https://arxiv.org/abs/1810.04805) for
        the encoder
    """

    def __init__(
        self,
        vocabulary_size: int,
        num_classes: int,
        encoder: TextEncoder | None = None,
        name: str | None = None,
        trainable: bool = True,
        **settings,
    ):
        check_positive_integers(num_classes=num_classes)
        encoder = encoder_of(encoder, vocabulary_size, settings)
        policy = encoder.dtype_policy
        pooling = AttentionPooling(name="pooling", dtype=policy)
        settings = encoder.settings
        dropout = Dropout(
            settings["dropout"],
            sub_seed(settings["seed"], "pooled_dropout"),
            name="dropout",
            dtype=policy,
        )
        # Logits are float32 under every policy.
        classify = encoder.parts.dense("logits", num_classes, dtype="float32")
        ids = keras.Input((None,), dtype="int32", name="ids")
        super().__init__(
            inputs=ids,
            outputs=classify(dropout(pooling(encoder(ids)))),
            parts=encoder.parts,
            settings={**settings, "num_classes": num_classes},
            name=name,
            trainable=trainable,
        )
        self.pad_id = encoder.pad_id
        self.encoder = encoder
        self.pooling = pooling

    @classmethod
    def from_encoder(
        cls, encoder: TextEncoder, num_classes: int, name: str | None = None
    ) -> "TextClassifier":
        """Creates a classifier from a trained encoder, to fine-tune it.

        Args:
            encoder: A `TextEncoder`, such as the `encoder` of a `MaskedLanguageModel`.
                It becomes part of the classifier, which trains it unless
                `encoder.trainable` is False.
            num_classes: Number of classes.
            name: Name of the model.

        Returns:
            A `TextClassifier`.
        """
        settings = {**encoder.settings, "num_classes": num_classes}
        return cls(encoder=encoder, name=name, **settings)

    def pooling_scores(self, ids):
        """Returns the attention weight of each token in the pooled vector.

        Args:
            ids: Integer tensor of shape `(batch, length)`.

        Returns:
            A float tensor of shape `(batch, length)`. Rows sum to one; padding
            has zero.
        """
        check_ids(ids, is_batch=True)
        return self.pooling(self.encoder(ids), return_attention_scores=True)[1]

    def attention_scores(self, ids):
        """Returns the encoder's attention weights, as `TextEncoder` does."""
        return self.encoder.attention_scores(ids)
