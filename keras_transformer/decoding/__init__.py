"""From logits to sequences: searches for any model that offers a cached step."""

from keras_transformer.decoding.beam import (
    BeamSearch,
    PowerLengthPenalty,
    WuLengthPenalty,
)
from keras_transformer.decoding.constrained_beam import ConstrainedBeamSearch
from keras_transformer.decoding.constraints import ForcedPrefix
from keras_transformer.decoding.greedy import GreedySearch
from keras_transformer.decoding.model import CachedModel
from keras_transformer.decoding.processors import (
    BannedIds,
    MaximumLength,
    MinimumLength,
    NoRepeatNgram,
    Processor,
    RepetitionPenalty,
)
from keras_transformer.decoding.sampling import Sampling
from keras_transformer.decoding.search import Hypotheses, Search

__all__ = [
    "BannedIds",
    "BeamSearch",
    "CachedModel",
    "ConstrainedBeamSearch",
    "ForcedPrefix",
    "GreedySearch",
    "Hypotheses",
    "MaximumLength",
    "MinimumLength",
    "NoRepeatNgram",
    "PowerLengthPenalty",
    "Processor",
    "RepetitionPenalty",
    "Sampling",
    "Search",
    "WuLengthPenalty",
]
