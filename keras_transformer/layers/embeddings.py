"""Token embeddings, and logits from the same table."""

import math

import keras
from keras import ops

from keras_transformer.checks import check_ids, check_positive_integers
from keras_transformer.keras_private import set_mask
from keras_transformer.kernels.rematerialization import RematerializedMixin
from keras_transformer.kernels.tied_logits import tied_logits, transposed_once
from keras_transformer.layers.masks import padding_mask
from keras_transformer.layers.weights import WeightOptions

_TIED = "its logits are tied to its vectors, and float32"
_ADAPTED = "low-rank adaptation is for projections, see `model.enable_lora`"
_REFUSED = {
    "tie_weights": _TIED,
    "reverse_dtype": _TIED,
    "logit_soft_cap": _TIED,
    "mask_zero": "it always masks `pad_id`",
    "lora_rank": _ADAPTED,
    "lora_alpha": _ADAPTED,
}


@keras.saving.register_keras_serializable(package="keras_transformer")
class TokenEmbedding(RematerializedMixin, keras.layers.ReversibleEmbedding):
    """Embeds tokens, and computes logits with the same table.

    Vectors are multiplied by the square root of `hidden_dim`, as in the paper. The
    outputs carry the Keras mask of the real tokens. With `reverse=True`, the layer is
    the linear map before the softmax, with weights tied to the embedding.

    Args:
        vocabulary_size: Number of tokens.
        hidden_dim: Width of the vectors.
        pad_id: Id of the padding, masked in the outputs.
        scale: Whether to multiply vectors by the square root of `hidden_dim`.
        **kwargs: Base `Layer` arguments, and weight options of the table such as
            `embeddings_initializer`; see `WeightOptionsLayer`.

    Call arguments:
        inputs: Integer tensor of shape `(batch, length)`; with `reverse`, float tensor
            of shape `(batch, length, hidden_dim)`. Ids may be float32, to which
            `keras.Sequential` converts them without a `keras.Input`.
        reverse: Whether to compute logits instead of embedding tokens.

    Returns:
        A tensor of shape `(batch, length, hidden_dim)`; with `reverse`, float32
        logits of shape `(batch, length, vocabulary_size)`, multiplied in the
        layer's compute dtype.

    Raises:
        ValueError: If the ids are booleans or half-precision floats.

    Example:
        >>> embedding = TokenEmbedding(vocabulary_size=11, hidden_dim=4)
        >>> vectors = embedding(np.array([[7, 5, 0]]))
        >>> embedding(vectors, reverse=True).shape
        TensorShape([1, 3, 11])

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.4
    """

    is_remat_unit = False

    def __init__(
        self,
        vocabulary_size: int,
        hidden_dim: int,
        pad_id: int = 0,
        scale: bool = True,
        **kwargs,
    ):
        for name, reason in _REFUSED.items():
            if name in kwargs:
                raise ValueError(
                    f"`TokenEmbedding` has no `{name}`: {reason}. "
                    f"Received: {name}={kwargs[name]!r}. Leave it out."
                )
        check_positive_integers(vocabulary_size=vocabulary_size, hidden_dim=hidden_dim)
        options = WeightOptions(kwargs, kinds=("embeddings",))
        # Unit variance, after the multiplication in `call`.
        normal = keras.initializers.RandomNormal(stddev=hidden_dim**-0.5)
        given = {"embeddings_initializer": normal, **options.of(name="embeddings")}
        super().__init__(vocabulary_size, hidden_dim, **given, **kwargs)
        self.weight_options = options
        self.vocabulary_size = vocabulary_size
        self.hidden_dim = hidden_dim
        self.pad_id = pad_id
        self.scale = scale
        self.supports_masking = True

    def call(self, inputs, reverse=False):
        keras_call = super().quantized_call if self.quantization_mode else super().call
        if reverse:
            if self.quantization_mode:
                return ops.cast(keras_call(inputs, reverse=True), "float32")
            # Inside a model, Keras would multiply in the dtype of the table.
            table = ops.cast(self.embeddings, self.compute_dtype)
            return ops.cast(tied_logits(inputs, table), "float32")
        # Keras builds layers with float32 ids, and `Sequential` passes them.
        dtype = keras.backend.standardize_dtype(inputs.dtype)
        ids = ops.cast(inputs, "int32") if dtype in ("float32", "float64") else inputs
        check_ids(ids)
        vectors = keras_call(ids)
        if self.scale:
            vectors = vectors * math.sqrt(self.hidden_dim)
        # `compute_mask` cannot tell ids that are floats from states.
        set_mask(vectors, padding_mask(ids, self.pad_id))
        return vectors

    def quantized_call(self, inputs, reverse=False):
        return self.call(inputs, reverse)

    def quantize(self, mode=None, type_check=True, config=None):
        # Keras quantizes subclasses only without its check of the type.
        super().quantize(mode, type_check=False, config=config)

    def enable_lora(self, rank: int, *args, **kwargs):
        # Keras saves the sum, from which the training of the factors cannot go on.
        raise ValueError(
            f"`TokenEmbedding` has no `enable_lora`: {_ADAPTED}. Received: rank={rank}."
        )

    def logits_function(self):
        """Returns a call with `reverse=True` as a function, fast for few states."""
        if self.quantization_mode:
            return lambda states: self(states, reverse=True)
        logits = transposed_once(ops.cast(self.embeddings, self.compute_dtype))
        return lambda states: ops.cast(logits(states), "float32")

    def compute_mask(self, inputs, previous_mask=None):
        if "int" in keras.backend.standardize_dtype(inputs.dtype):
            return padding_mask(inputs, self.pad_id)
        return previous_mask

    def compute_output_spec(self, inputs, reverse=False):
        spec = super().compute_output_spec(inputs, reverse)
        # The base class reports the compute dtype in both directions.
        return keras.KerasTensor(spec.shape, "float32") if reverse else spec

    def get_config(self):
        config = super().get_config()
        return {
            **{name: config[name] for name in keras.layers.Layer.get_config(self)},
            **self.weight_options.get_config(),
            "vocabulary_size": self.vocabulary_size,
            "hidden_dim": self.hidden_dim,
            "pad_id": self.pad_id,
            "scale": self.scale,
            "quantization_config": config["quantization_config"],
        }
