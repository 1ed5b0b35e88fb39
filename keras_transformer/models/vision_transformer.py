"""The vision Transformer: image in, class out."""

from collections.abc import Sequence

import keras
from keras import ops

from keras_transformer.checks import check_positive_integers
from keras_transformer.layers.patches import ClassToken, PatchEmbedding
from keras_transformer.layers.positions import LearnedPositionalEncoding
from keras_transformer.layers.saving import (
    Activation,
    Positions,
    copy_layer,
    layer_config,
)
from keras_transformer.layers.stack import Encoder
from keras_transformer.models.base import SettingsModel
from keras_transformer.models.parts import Parts


@keras.saving.register_keras_serializable(package="keras_transformer")
class VisionTransformer(SettingsModel):
    """An encoder that reads an image as a sequence of patches.

    A functional Keras model, with the paper's base sizes as defaults. It takes
    images `(batch, height, width, channels)`, best scaled to about [-1, 1] or
    [0, 1], and returns float32 logits `(batch, num_classes)`, for
    `keras.losses.SparseCategoricalCrossentropy(from_logits=True)`. Positions
    count the patches row by row, from left to right.

    Args:
        image_shape: Height, width and channels of the images.
        patch_size: Height and width of a patch; divides both sizes of the images.
        num_classes: Number of classes.
        pooling: A layer from the states of the patches,
            `(batch, patches, hidden_dim)`, to one vector, such as
            `layers.AttentionPooling()`, which is copied. None: the paper's class token.
        positions: The scheme of positions: `"learned"`, as in the paper;
            `"sinusoidal"`, `"rotary"`, `"linear_bias"`, a layer to copy, or None.

    The other arguments are as in `Transformer`, except for embedding options.

    Raises:
        ValueError: As in `Transformer`, or if `patch_size` does not divide the images.

    Example:
        >>> model = VisionTransformer(
        ...     image_shape=(8, 8, 1), patch_size=2, num_classes=10, num_layers=1,
        ...     hidden_dim=16, num_heads=2, intermediate_dim=32,
        ...     pooling=kt.layers.AttentionPooling(),
        ... )
        >>> model(np.zeros((3, 8, 8, 1))).shape
        TensorShape([3, 10])

    Reference:
        [Dosovitskiy et al., 2020](https://arxiv.org/abs/2010.11929)
    """

    def __init__(
        self,
        image_shape: Sequence[int],
        patch_size: int,
        num_classes: int,
        num_layers: int = 12,
        hidden_dim: int = 768,
        num_heads: int = 12,
        intermediate_dim: int = 3072,
        dropout: float = 0.1,
        normalize_first: bool = True,
        activation: Activation = "gelu",
        pooling: keras.layers.Layer | dict | None = None,
        positions: Positions = "learned",
        **kwargs,
    ):
        if len(image_shape) != 3 or min(image_shape) < 1:
            raise ValueError(
                "`image_shape` must be (height, width, channels), three positive "
                f"integers. Received: image_shape={image_shape}."
            )
        check_positive_integers(patch_size=patch_size, num_classes=num_classes)
        height, width, _ = image_shape
        num_patches = max((height // patch_size) * (width // patch_size), 1)
        learned = LearnedPositionalEncoding(num_patches + (pooling is None))
        parts = Parts(
            num_layers,
            hidden_dim,
            num_heads,
            intermediate_dim,
            dropout,
            normalize_first,
            activation,
            learned if positions == "learned" else positions,
            weight_kinds=("kernel", "bias"),
            **kwargs,
        )
        if positions == "learned":
            parts.settings["positions"] = positions
        encoder = parts.stack(Encoder, "encoder")
        sizes = {"patch_size": patch_size, "hidden_dim": parts.embedding_dim}
        embedding = parts.make(PatchEmbedding, "patches", **sizes)
        # Logits are float32 under every policy.
        classify = parts.dense("logits", num_classes, dtype="float32")
        pool = copy_layer(pooling, "pooling", parts.dtype_policy)
        class_token = None
        if pool is None:
            class_token = ClassToken(name="class_token", dtype=parts.dtype_policy)

        images = keras.Input(image_shape, name="images")
        states = embedding(images)
        states = encoder(states if class_token is None else class_token(states))
        pooled = states[:, 0] if pool is None else pool(states)
        super().__init__(
            inputs=images,
            outputs=classify(pooled),
            parts=parts,
            settings={
                "image_shape": list(image_shape),
                "patch_size": patch_size,
                "num_classes": num_classes,
                "pooling": layer_config(pool),
            },
            **parts.model_arguments,
        )
        self.embedding = embedding
        self.class_token = class_token
        self.encoder = encoder
        self.pooling = pool

    def attention_scores(self, images):
        """Returns the attention weights of every layer and head.

        Args:
            images: Float tensor of shape `(batch, height, width, channels)`.

        Returns:
            A dictionary with the key `"encoder"`: a float tensor of shape
            `(num_layers, batch, num_heads, positions, positions)`, whose rows sum to
            one. The positions are the class token, if there is one, then the patches,
            row by row.

        Raises:
            ValueError: If the images do not have the model's image size.
        """
        images = ops.convert_to_tensor(images, self.compute_dtype)
        image_shape = self.settings["image_shape"]
        if list(images.shape[1:]) != list(image_shape):
            raise ValueError(
                f"`images` must have the shape (batch, height, width, channels) with "
                f"the model's image_shape={tuple(image_shape)}. "
                f"Received: images of shape {tuple(images.shape)}."
            )
        states = self.embedding(images)
        states = states if self.class_token is None else self.class_token(states)
        return {"encoder": self.encoder(states, return_attention_scores=True)[1]}
