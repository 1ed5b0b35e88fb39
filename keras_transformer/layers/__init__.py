"""The Transformer piece by piece, as Keras layers and pure functions."""

from keras_transformer.layers.attention import (
    Attention,
    masked_softmax,
    scaled_dot_product_attention,
)
from keras_transformer.layers.block import CausalBlock, DecoderBlock, EncoderBlock
from keras_transformer.layers.embeddings import TokenEmbedding
from keras_transformer.layers.feed_forward import FeedForward
from keras_transformer.layers.masks import causal_mask, padding_mask
from keras_transformer.layers.multi_head import MultiHeadAttention
from keras_transformer.layers.patches import ClassToken, PatchEmbedding
from keras_transformer.layers.pooling import AttentionPooling
from keras_transformer.layers.positions import (
    AttentionPositions,
    LearnedPositionalEncoding,
    LinearPositionBias,
    RotaryEmbedding,
    SinusoidalPositionalEncoding,
)
from keras_transformer.layers.residual import Residual
from keras_transformer.layers.score_functions import (
    AdditiveAttention,
    DotProductAttention,
    MultiplicativeAttention,
)
from keras_transformer.layers.stack import CausalDecoder, Decoder, Encoder
from keras_transformer.layers.weights import WeightOptionsLayer

__all__ = [
    "AdditiveAttention",
    "Attention",
    "AttentionPooling",
    "AttentionPositions",
    "CausalBlock",
    "CausalDecoder",
    "ClassToken",
    "Decoder",
    "DecoderBlock",
    "DotProductAttention",
    "Encoder",
    "EncoderBlock",
    "FeedForward",
    "LearnedPositionalEncoding",
    "LinearPositionBias",
    "MultiHeadAttention",
    "MultiplicativeAttention",
    "PatchEmbedding",
    "Residual",
    "RotaryEmbedding",
    "SinusoidalPositionalEncoding",
    "TokenEmbedding",
    "WeightOptionsLayer",
    "causal_mask",
    "masked_softmax",
    "padding_mask",
    "scaled_dot_product_attention",
]
