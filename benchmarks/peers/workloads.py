"""The workloads that all systems are timed on: sizes, settings and random tokens.

What is equal: all sizes; random tokens without padding; float32; one embedding table
for source, target and logits; post-norm; dropout 0.1. Training steps use Adam, label
smoothing 0.1 and a causal mask in the decoder, and read the loss back. Decoding uses a
key/value cache and makes exactly `target_length` tokens: nothing ends earlier.

What is not equal is said by each peer's file.
"""

import os
from dataclasses import dataclass

THREADS = int(os.environ.get("OMP_NUM_THREADS", "2"))
DROPOUT, LABEL_SMOOTHING, LEARNING_RATE = 0.1, 0.1, 1e-4
START_ID, END_ID, FIRST_WORD_ID = 2, 3, 4  # ids below the first word are special


@dataclass(frozen=True)
class Size:
    """The size of a model, with equally many layers in encoder and decoder."""

    vocabulary_size: int
    num_layers: int
    hidden_dim: int
    num_heads: int
    intermediate_dim: int


@dataclass(frozen=True)
class Workload:
    """What one call does: a training step, or the decoding of one batch."""

    title: str
    size: Size
    batch_size: int
    source_length: int
    target_length: int
    beam_width: int = 1
    trains: bool = False

    @property
    def tokens(self) -> int:
        """Tokens of a call: source and target in training, else the best targets."""
        counted = self.target_length + (self.source_length if self.trains else 0)
        return self.batch_size * counted

    def random_ids(self):
        """Returns source ids, which end with the end symbol, and target ids.

        The target has one symbol more than `target_length`: without its last one it
        is the decoder's input, and without its first one the labels.
        """
        import numpy as np

        random = np.random.default_rng(0)
        source, target = (
            random.integers(
                *(FIRST_WORD_ID, self.size.vocabulary_size),
                (self.batch_size, length),
                dtype="int32",
            )
            for length in (self.source_length, self.target_length + 1)
        )
        source[:, -1] = END_ID
        return source, target


SMALL = Size(8000, 3, 256, 4, 1024)
BASE = Size(32000, 6, 512, 8, 2048)  # of "Attention is all you need"
TRAINING = {
    "T1": Workload("training small", SMALL, 64, 24, 24, trains=True),
    "T2": Workload("training base", BASE, 16, 32, 32, trains=True),
}
DECODING = {
    "D1": Workload("decoding 32 sentences greedily, small", SMALL, 32, 24, 32),
    "D2": Workload(
        "decoding 32 sentences with a beam of 4, small", SMALL, 32, 24, 32, beam_width=4
    ),
    "D3": Workload("decoding 32 sentences greedily, base", BASE, 32, 24, 32),
    "D4": Workload("decoding one sentence greedily, base", BASE, 1, 24, 32),
}
WORKLOADS = DECODING | TRAINING
