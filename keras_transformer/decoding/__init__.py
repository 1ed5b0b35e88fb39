"""From logits to sequences: searches of any model that takes cached steps.

Reading order: `cache`, `next_symbols`, `search`, `independent`, `greedy`,
`sampling`, `beam`; then the controls, `processors` first.
"""

from keras_transformer.decoding.beam import BeamSearch
from keras_transformer.decoding.forced_prefix import ForcedPrefix
from keras_transformer.decoding.greedy import GreedySearch
from keras_transformer.decoding.lengths import MaximumLength, MinimumLength
from keras_transformer.decoding.processors import BannedIds, Processor
from keras_transformer.decoding.repetition import NoRepeatNgram, RepetitionPenalty
from keras_transformer.decoding.sampling import Sampling
from keras_transformer.decoding.search import CachedModel, Hypotheses, Search

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
    "Processor",
    "RepetitionPenalty",
    "Sampling",
    "Search",
]
