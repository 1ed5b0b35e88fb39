"""Images as sequences of patches, and the class token."""

import keras
from keras import ops

from keras_transformer.checks import check_positive_integers, check_shape
from keras_transformer.layers.weights import WeightOptionsLayer


@keras.saving.register_keras_serializable(package="keras_transformer")
class PatchEmbedding(WeightOptionsLayer):
    """Cuts images into square patches and projects each to a vector.

    Patches are ordered row by row, from left to right.

    Args:
        patch_size: Height and width of a patch; divides both sizes of the images.
        hidden_dim: Width of the vectors.
        **kwargs: Base `Layer` arguments, and weight options such as
            `kernel_initializer`; see `WeightOptionsLayer`.

    Call arguments:
        inputs: Float tensor of shape `(batch, height, width, channels)`.

    Returns:
        A tensor of shape `(batch, patches, hidden_dim)`.

    Raises:
        ValueError: If a size is not positive, `inputs` do not have four axes, or
            `patch_size` does not divide the height and width, or these are unknown.

    Example:
        >>> PatchEmbedding(patch_size=2, hidden_dim=16)(ops.ones((3, 8, 8, 1))).shape
        TensorShape([3, 16, 16])

    Reference:
        [Dosovitskiy et al., 2020](https://arxiv.org/abs/2010.11929), section 3.1
    """

    def __init__(self, patch_size: int, hidden_dim: int, **kwargs):
        super().__init__(**kwargs)
        check_positive_integers(patch_size=patch_size, hidden_dim=hidden_dim)
        self.patch_size = patch_size
        self.hidden_dim = hidden_dim

    def build(self, input_shape):
        check_shape("inputs", input_shape, "batch", "height", "width", "channels")
        self._rows_and_columns(input_shape)
        settings = {"dtype": self.dtype_policy, "name": "project"}
        options = self.weight_options.of(name="project")
        self._project = keras.layers.Dense(self.hidden_dim, **settings, **options)
        self._project.build((None, None, self.patch_size**2 * input_shape[-1]))

    def call(self, inputs):
        rows, columns = self._rows_and_columns(inputs.shape)
        size, channels = self.patch_size, inputs.shape[-1]
        patches = ops.reshape(inputs, (-1, rows, size, columns, size, channels))
        patches = ops.transpose(patches, (0, 1, 3, 2, 4, 5))
        pixels = size * size * channels
        return self._project(ops.reshape(patches, (-1, rows * columns, pixels)))

    def compute_output_shape(self, input_shape):
        rows, columns = self._rows_and_columns(input_shape)
        return (input_shape[0], rows * columns, self.hidden_dim)

    def _rows_and_columns(self, shape):
        """Returns the numbers of patches; `ValueError` unless they cover the images."""
        _, height, width, _ = shape
        sizes = height, width
        if None in sizes or any(size % self.patch_size for size in sizes):
            raise ValueError(
                "`patch_size` must divide the height and the width of the images. "
                f"Received: patch_size={self.patch_size}, images of {height} x {width}."
            )
        return [size // self.patch_size for size in sizes]

    def get_config(self):
        sizes = {"patch_size": self.patch_size, "hidden_dim": self.hidden_dim}
        return {**super().get_config(), **sizes}


@keras.saving.register_keras_serializable(package="keras_transformer")
class ClassToken(WeightOptionsLayer):
    """Prepends a learned vector to a sequence.

    The encoder's output at that first position represents the whole sequence.

    Args:
        **kwargs: Base `Layer` arguments, and the weight options `token_initializer`,
            `token_regularizer` and `token_constraint`; see `WeightOptionsLayer`.

    Call arguments:
        inputs: Float tensor of shape `(batch, length, hidden_dim)`.

    Returns:
        A tensor of shape `(batch, 1 + length, hidden_dim)`.

    Example:
        >>> ClassToken()(ops.ones((2, 5, 16))).shape
        TensorShape([2, 6, 16])

    Reference:
        [Dosovitskiy et al., 2020](https://arxiv.org/abs/2010.11929), section
        3.1, after [Devlin et al., 2018](https://arxiv.org/abs/1810.04805)
    """

    weight_kinds = ("token",)

    def build(self, input_shape):
        normal = keras.initializers.RandomNormal(stddev=0.02)
        self.token = self.add_weight_with_options("token", input_shape[-1:], normal)

    def call(self, inputs):
        shape = (ops.shape(inputs)[0], 1, inputs.shape[-1])
        token = ops.broadcast_to(ops.cast(self.token, inputs.dtype), shape)
        return ops.concatenate([token, inputs], axis=1)

    def compute_output_shape(self, input_shape):
        batch, length, hidden_dim = input_shape
        return (batch, None if length is None else length + 1, hidden_dim)
