"""The Transformer piece by piece, as Keras layers and pure functions.

Reading order: `masks`, `positions`, `embeddings`, `attention`, `feed_forward`,
`residual`, `encoder`, `decoder`, `causal`, `pooling`.
"""

from keras_transformer.layers.attention import (
    MultiHeadAttention,
    masked_softmax,
    scaled_dot_product_attention,
)
from keras_transformer.layers.causal import CausalBlock, CausalDecoder
from keras_transformer.layers.decoder import Decoder, DecoderBlock
from keras_transformer.layers.embeddings import TokenEmbedding
from keras_transformer.layers.encoder import Encoder, EncoderBlock
from keras_transformer.layers.feed_forward import FeedForward
from keras_transformer.layers.masks import causal_mask, padding_mask
from keras_transformer.layers.pooling import AttentionPooling
from keras_transformer.layers.positions import (
    LearnedPositionalEncoding,
    SinusoidalPositionalEncoding,
)
from keras_transformer.layers.residual import Residual

__all__ = [
    "AttentionPooling",
    "CausalBlock",
    "CausalDecoder",
    "Decoder",
    "DecoderBlock",
    "Encoder",
    "EncoderBlock",
    "FeedForward",
    "LearnedPositionalEncoding",
    "MultiHeadAttention",
    "Residual",
    "SinusoidalPositionalEncoding",
    "TokenEmbedding",
    "causal_mask",
    "masked_softmax",
    "padding_mask",
    "scaled_dot_product_attention",
]
