"""How good translations are: BLEU, chrF, and the significance of a difference."""

from keras_transformer.evaluation.metrics import (
    cased_bleu,
    chrf,
    moses_tokenized,
    paper_protocol_bleu,
)
from keras_transformer.evaluation.significance import paired_bootstrap

__all__ = [
    "cased_bleu",
    "chrf",
    "moses_tokenized",
    "paired_bootstrap",
    "paper_protocol_bleu",
]
