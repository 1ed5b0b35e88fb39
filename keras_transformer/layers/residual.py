"""The residual connection and normalization around every sub-layer."""

import keras

from keras_transformer.checks import check_fractions
from keras_transformer.kernels.dropout import Dropout
from keras_transformer.kernels.layer_norm import LayerNormalization
from keras_transformer.kernels.rematerialization import RematerializedMixin


@keras.saving.register_keras_serializable(package="keras_transformer")
class Residual(RematerializedMixin, keras.layers.Layer):
    """Adds a sub-layer's outputs to its inputs, and normalizes.

    As in the paper ("post-norm"):
    `LayerNorm(inputs + Dropout(sublayer(inputs)))`. With `normalize_first`
    ("pre-norm"): `inputs + Dropout(sublayer(LayerNorm(inputs)))`, which trains
    stably over a wider range of learning rates.

    Blocks call `prepare` before and `add` after their sub-layer.

    Args:
        dropout: Fraction of the sub-layer's outputs dropped in training.
        normalize_first: Whether to normalize the sub-layer's inputs rather than the
            sum.
        epsilon: Added to the variance before taking its square root.
        seed: Seed of the dropout.
        **kwargs: Base `Layer` arguments, such as `name` and `dtype`.

    Call arguments:
        inputs: Float tensor of shape `(batch, length, hidden_dim)`.
        sublayer: Function of such a tensor, passed by keyword. It returns a tensor of
            the same shape, or a tuple that begins with one. In a functional model, it
            must not call layers with weights, because the model would not track them:
            call these between `prepare` and `add`, in your own layer.
        training: Whether to apply dropout.

    Returns:
        The result of `sublayer`, with a residual connection around the tensor.

    Raises:
        ValueError: If `sublayer` is a layer in a functional model.

    Example:
        >>> layer = Residual(dropout=0.1)
        >>> layer(ops.ones((2, 5, 16)), sublayer=lambda states: -states).shape
        TensorShape([2, 5, 16])

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), sections 3.1
        and 5.4; pre-norm: [Xiong et al., 2020](https://arxiv.org/abs/2002.04745)
    """

    def __init__(
        self,
        dropout: float = 0.0,
        normalize_first: bool = False,
        epsilon: float = 1e-6,
        seed: int | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_fractions(dropout=dropout)
        self.dropout = dropout
        self.normalize_first = normalize_first
        self.epsilon = epsilon
        self.seed = seed
        self.supports_masking = True

    def build(self, input_shape):
        dtype = self.dtype_policy
        settings = {"epsilon": self.epsilon, "name": "norm", "dtype": dtype}
        self._norm = LayerNormalization(**settings)
        self._norm.build(input_shape)
        self._dropout = Dropout(self.dropout, self.seed, dtype=dtype)
        # Unlike `+`, the layer passes on Keras masks.
        self._sum = keras.layers.Add(dtype=dtype)
        self._sum.build([input_shape, input_shape])

    def prepare(self, inputs):
        """Returns the sub-layer's inputs: normalized in pre-norm, else unchanged."""
        return self._norm(inputs) if self.normalize_first else inputs

    def add(self, inputs, outputs, training=None):
        """Adds the sub-layer's outputs to `inputs`; post-norm normalizes the sum."""
        states = self._sum([inputs, self._dropout(outputs, training=training)])
        return states if self.normalize_first else self._norm(states)

    def call(self, inputs, sublayer, training=None):
        outputs = sublayer(self.prepare(inputs))
        outputs, *others = outputs if isinstance(outputs, tuple) else (outputs,)
        outputs = self.add(inputs, outputs, training)
        return (outputs, *others) if others else outputs

    def compute_output_shape(self, inputs_shape):
        return inputs_shape

    def compute_output_spec(self, inputs, sublayer, training=None):
        # On JAX, Keras would trace `call` with `sublayer` as if it were an array.
        if isinstance(sublayer, keras.layers.Layer):
            raise ValueError(
                "`sublayer` must not be a layer in a functional model, which would not "
                "hold its weights: call it in a layer of yours, between `prepare` and "
                f"`add`. Received: sublayer={sublayer}."
            )
        states = keras.KerasTensor(inputs.shape, self.compute_dtype)
        outputs = sublayer(states)
        return (states, *outputs[1:]) if isinstance(outputs, tuple) else states

    def get_config(self):
        return {
            **super().get_config(),
            "dropout": self.dropout,
            "normalize_first": self.normalize_first,
            "epsilon": self.epsilon,
            "seed": self.seed,
        }
