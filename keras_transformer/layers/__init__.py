"""The Transformer piece by piece, as Keras layers and pure functions.

Reading order: `masks`, `weight_options`, `positions`, `embeddings`, `attention`,
`attention_layer`, `score_functions`, `projection`, `head_attention`, `multi_head`,
`attention_axes`, `feed_forward`, `residual`, `cache`, `block`, `stack`, `encoder`,
`decoder`, `causal_decoder`, `pooling`, `patches`. `layer_arguments` and `nested_layers`
serve saving. What is written for speed alone is in `keras_transformer.kernels`.
"""

from keras_transformer.kernels.softmax import masked_softmax
from keras_transformer.layers.attention import scaled_dot_product_attention
from keras_transformer.layers.attention_layer import Attention
from keras_transformer.layers.causal_decoder import CausalBlock, CausalDecoder
from keras_transformer.layers.decoder import Decoder, DecoderBlock
from keras_transformer.layers.embeddings import TokenEmbedding
from keras_transformer.layers.encoder import Encoder, EncoderBlock
from keras_transformer.layers.feed_forward import FeedForward
from keras_transformer.layers.masks import (
    causal_mask,
    packed_mask,
    packed_positions,
    padding_mask,
)
from keras_transformer.layers.multi_head import MultiHeadAttention
from keras_transformer.layers.patches import ClassToken, PatchEmbedding
from keras_transformer.layers.pooling import AttentionPooling
from keras_transformer.layers.positions import (
    AttentionPositions,
    LearnedPositionalEncoding,
    LinearPositionBias,
    LinearRotaryScaling,
    NTKRotaryScaling,
    RotaryEmbedding,
    RotaryScaling,
    SinusoidalPositionalEncoding,
    YarnRotaryScaling,
)
from keras_transformer.layers.residual import Residual
from keras_transformer.layers.score_functions import (
    AdditiveAttention,
    DotProductAttention,
    MultiplicativeAttention,
)
from keras_transformer.layers.weight_options import WeightOptionsLayer

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
    "LinearRotaryScaling",
    "MultiHeadAttention",
    "MultiplicativeAttention",
    "NTKRotaryScaling",
    "PatchEmbedding",
    "Residual",
    "RotaryEmbedding",
    "RotaryScaling",
    "SinusoidalPositionalEncoding",
    "TokenEmbedding",
    "WeightOptionsLayer",
    "YarnRotaryScaling",
    "causal_mask",
    "masked_softmax",
    "packed_mask",
    "packed_positions",
    "padding_mask",
    "scaled_dot_product_attention",
]
