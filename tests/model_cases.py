"""One small model of every class."""

import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer.models import (
    LanguageModel,
    MaskedLanguageModel,
    TextClassifier,
    TextEncoder,
    Transformer,
    VisionTransformer,
)

SIZES = {"num_layers": 2, "hidden_dim": 6, "num_heads": 2, "intermediate_dim": 11}
TEXT = {"vocabulary_size": 17, **SIZES}
IDS = np.array([[5, 7, 11, 13, 3], [4, 16, 3, 0, 0]], "int32")
IMAGES = np.random.default_rng(3).normal(size=(2, 6, 9, 2)).astype("float32")
# A concatenated encoding adds a linear map from states to embeddings.
NARROW = kt.layers.SinusoidalPositionalEncoding(merge="concatenate", encoding_dim=2)
# (class, arguments, inputs, number of places that drop if all rates are above zero)
CASES = [
    (
        Transformer,
        {"source_vocabulary_size": 17, **SIZES},
        {"source_ids": IDS, "target_ids": IDS[:, :3]},
        2 + 2 * 4 + 2 * 6,
    ),
    (LanguageModel, {**TEXT, "positions": NARROW}, IDS, 1 + 2 * 4),
    (TextEncoder, TEXT, IDS, 1 + 2 * 4),
    (MaskedLanguageModel, TEXT, IDS, 1 + 2 * 4),
    (TextClassifier, {**TEXT, "num_classes": 3}, IDS, 2 + 2 * 4),
    (
        VisionTransformer,
        {"image_shape": (6, 9, 2), "patch_size": 3, "num_classes": 5, **SIZES},
        IMAGES,
        1 + 2 * 4,
    ),
]
every_model = pytest.mark.parametrize(
    ("model_class", "settings", "inputs"),
    [case[:3] for case in CASES],
    ids=[case[0].__name__ for case in CASES],
)
