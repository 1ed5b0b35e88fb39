"""From logits to sequences: searches over any model with a cached step.

Reading order: `search`, `cache`, `independent`, `greedy`, `sampling`, `beam`,
`processors`.
"""

from keras_transformer.decoding.beam import BeamSearch
from keras_transformer.decoding.greedy import GreedySearch
from keras_transformer.decoding.processors import BannedIds, Processor
from keras_transformer.decoding.sampling import Sampling
from keras_transformer.decoding.search import CachedModel, Hypotheses, Search

__all__ = [
    "BannedIds",
    "BeamSearch",
    "CachedModel",
    "GreedySearch",
    "Hypotheses",
    "Processor",
    "Sampling",
    "Search",
]
