"""From logits to sequences: searches of any model that offers the cached step.

Reading order: `search`, `next_tokens`, `lineage`, `endings`,
`independent`, `greedy`, `sampling`, `length_penalty`, `beam`; the controls,
`processors` first; then `continuous_batching` and `runner`, which search many sentences
through few compiled programs.
"""

from keras_transformer.decoding.beam import BeamSearch
from keras_transformer.decoding.cached_model import CachedModel
from keras_transformer.decoding.forced_prefix import ForcedPrefix
from keras_transformer.decoding.greedy import GreedySearch
from keras_transformer.decoding.length_limits import MaximumLength, MinimumLength
from keras_transformer.decoding.length_penalty import (
    PowerLengthPenalty,
    WuLengthPenalty,
)
from keras_transformer.decoding.processors import BannedIds, Processor
from keras_transformer.decoding.repetition import NoRepeatNgram, RepetitionPenalty
from keras_transformer.decoding.sampling import Sampling
from keras_transformer.decoding.search import Hypotheses, Search

__all__ = [
    "BannedIds",
    "BeamSearch",
    "CachedModel",
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
