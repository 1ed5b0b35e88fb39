"""The encoder as a model: ids in, one vector per token out."""

import keras

from keras_transformer.checks import check_ids, check_positive_integers
from keras_transformer.layers.saving import Activation
from keras_transformer.layers.stack import Encoder
from keras_transformer.models.base import TokenModel, check_special_ids
from keras_transformer.models.parts import Parts


@keras.saving.register_keras_serializable(package="keras_transformer")
class TextEncoder(TokenModel):
    """Reads text in both directions: the body of models that understand text.

    A functional Keras model, with the sizes of BERT's base model as defaults.
    It takes ids `(batch, length)`, int32, and returns the states of the last
    layer, `(batch, length, hidden_dim)`, with the mask of the real tokens.
    `MaskedLanguageModel` trains one on plain text, and `TextClassifier` on
    labelled text; both can share one object.

    Args:
        vocabulary_size: Number of tokens.
        normalize_first: Whether to normalize the inputs of each sub-layer (pre-norm)
            rather than the sum after it (BERT's post-norm).

    The other arguments are as in `Transformer`.

    Raises:
        ValueError: As in `Transformer`.

    Example:
        >>> encoder = TextEncoder(
        ...     vocabulary_size=17, num_layers=1, hidden_dim=8, num_heads=2,
        ...     intermediate_dim=16,
        ... )
        >>> encoder(np.array([[5, 7, 11, 0]])).shape
        TensorShape([1, 4, 8])

    Reference:
        [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 3
    """

    def __init__(
        self,
        vocabulary_size: int,
        num_layers: int = 12,
        hidden_dim: int = 768,
        num_heads: int = 12,
        intermediate_dim: int = 3072,
        dropout: float = 0.1,
        normalize_first: bool = False,
        activation: Activation = "gelu",
        pad_id: int = 0,
        **kwargs,
    ):
        check_positive_integers(vocabulary_size=vocabulary_size)
        check_special_ids(vocabulary_size, pad_id)
        sizes = num_layers, hidden_dim, num_heads, intermediate_dim
        parts = Parts(*sizes, dropout, normalize_first, activation, **kwargs)
        encoder = parts.stack(Encoder, "encoder")
        embedding = parts.embedding("embedding", vocabulary_size, pad_id)
        ids = keras.Input((None,), dtype="int32", name="ids")
        super().__init__(
            inputs=ids,
            outputs=encoder(embedding(ids)),
            parts=parts,
            settings={"vocabulary_size": vocabulary_size, "pad_id": pad_id},
            **parts.model_arguments,
        )
        self.pad_id = pad_id
        self.embedding = embedding
        self.encoder = encoder
        self.input_spec = None  # Ids have two axes, states three.
        self.supports_masking = True

    def call(self, inputs, training=None, mask=None, reverse=False):
        """Encodes ids; with `reverse`, computes logits of states with the embedding."""
        if reverse:
            return self.embedding(inputs, reverse=True)
        return super().call(inputs, training=training, mask=mask)

    def compute_output_spec(self, inputs, training=None, mask=None, reverse=False):
        if reverse:
            return self.embedding.compute_output_spec(inputs, reverse=True)
        return super().compute_output_spec(inputs, training=training, mask=mask)

    def attention_scores(self, ids):
        """Returns the attention weights of every layer and head.

        Args:
            ids: Integer tensor of shape `(batch, length)`.

        Returns:
            A dictionary with the key `"encoder"`: a float tensor of shape
            `(num_layers, batch, num_heads, query_length, key_length)`. Rows of
            real tokens sum to one, rows of padding to zero.
        """
        check_ids(ids, is_batch=True)
        states = self.embedding(ids)
        _, weights = self.encoder(states, return_attention_scores=True)
        return {"encoder": weights}


def encoder_of(encoder, vocabulary_size: int, settings: dict) -> TextEncoder:
    """Returns an encoder with these settings: `encoder`, or a new one if it is None.

    Raises:
        ValueError: If `encoder` has other settings.
    """
    settings = {"vocabulary_size": vocabulary_size, **settings}
    if encoder is None:
        return TextEncoder(**settings, name="encoder")
    for name, value in settings.items():
        if name not in encoder.settings or encoder.settings[name] != value:
            raise ValueError(
                f"`{name}` must be the `encoder`'s, or be left out: `from_encoder` "
                f"passes them. Received: {name}={value!r}."
            )
    return encoder
