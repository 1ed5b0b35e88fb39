"""Token ids to vectors, and vectors back to a score for every token."""

import math

import keras
from keras import ops

from keras_transformer.checks import check_integer_ids
from keras_transformer.kernels.tied_logits import tied_logits
from keras_transformer.layers.masks import padding_mask


@keras.saving.register_keras_serializable(package="keras_transformer")
class TokenEmbedding(keras.layers.ReversibleEmbedding):
    """Embeds tokens, and with the same table scores them.

    Vectors are multiplied by the square root of `hidden_dim`, so that they
    stand out against the positions added to them. The mask of the real tokens
    travels with the outputs. Called with `reverse=True` the layer is the
    linear map before the softmax, its weights tied to the embedding.

    Args:
        vocabulary_size: Number of tokens.
        hidden_dim: Width of the vectors.
        pad_id: Id of the padding, masked in the outputs.
        **kwargs: Base `Layer` arguments, such as `name` and `dtype`.

    Call arguments:
        inputs: Integer tensor of shape `(batch, length)`; with `reverse`,
            float tensor of shape `(batch, length, hidden_dim)`.
        reverse: Whether to score tokens rather than to embed them.

    Returns:
        A tensor of shape `(batch, length, hidden_dim)`; with `reverse`, float32
        logits of shape `(batch, length, vocabulary_size)`, products of the
        layer's compute dtype.

    Raises:
        ValueError: If the ids are not integers.

    Example:
        >>> embedding = TokenEmbedding(vocabulary_size=11, hidden_dim=4)
        >>> vectors = embedding(np.array([[7, 5, 0]]))
        >>> embedding(vectors, reverse=True).shape
        TensorShape([1, 3, 11])

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.4
    """

    def __init__(
        self, vocabulary_size: int, hidden_dim: int, pad_id: int = 0, **kwargs
    ):
        super().__init__(
            vocabulary_size,
            hidden_dim,
            # With the factor of `call`, vectors of unit variance.
            embeddings_initializer=keras.initializers.RandomNormal(
                stddev=hidden_dim**-0.5
            ),
            **kwargs,
        )
        self.vocabulary_size = vocabulary_size
        self.hidden_dim = hidden_dim
        self.pad_id = pad_id
        self.supports_masking = True

    def call(self, inputs, reverse=False):
        if reverse:
            # Keras would multiply in the dtype of the table wherever a model calls.
            table = ops.cast(self.embeddings, self.compute_dtype)
            return ops.cast(tied_logits(inputs, table), "float32")
        check_integer_ids(inputs)
        return super().call(inputs) * math.sqrt(self.hidden_dim)

    def logits_function(self):
        """Prepares scoring tokens again and again, a few vectors at a time.

        A product of few rows with a table that lies across is slow, so the
        table is turned beforehand.

        Returns:
            A function of states that returns what a call with `reverse=True`
            does.
        """
        if self.quantization_mode:
            return lambda states: self(states, reverse=True)
        table = ops.transpose(ops.cast(self.embeddings, self.compute_dtype))

        def score(states):
            rows = ops.reshape(states, (-1, self.hidden_dim))
            logits = ops.cast(ops.matmul(rows, table), "float32")
            return ops.reshape(logits, (*ops.shape(states)[:-1], self.vocabulary_size))

        return score

    def compute_mask(self, inputs, previous_mask=None):
        if "int" in keras.backend.standardize_dtype(inputs.dtype):
            return padding_mask(inputs, self.pad_id)
        return previous_mask

    def compute_output_spec(self, inputs, reverse=False):
        spec = super().compute_output_spec(inputs, reverse)
        # The base class promises the compute dtype in both directions.
        return keras.KerasTensor(spec.shape, "float32") if reverse else spec

    def get_config(self):
        config = super().get_config()
        base = keras.layers.Layer.get_config(self)
        return {
            **{name: config[name] for name in base},
            "vocabulary_size": self.vocabulary_size,
            "hidden_dim": self.hidden_dim,
            "pad_id": self.pad_id,
        }
