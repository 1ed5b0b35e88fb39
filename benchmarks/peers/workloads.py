"""The workloads that all systems are timed on: sizes, settings and random tokens.

What is equal: all sizes; random tokens without padding; float32; one embedding table
for source, target and logits; post-norm; dropout 0.1. Training steps use Adam, label
smoothing 0.1 and a causal mask in the decoder, and read the loss back. Decoding uses a
key/value cache and makes exactly `target_length` tokens: nothing ends earlier.

Workloads on a GPU (G0 to G4) are in bfloat16, with float32 weights in training, and a
call takes several training steps: reading the loss back each time would make the GPU
wait.

What is not equal is said by each peer's file.
"""

import os
from dataclasses import dataclass

THREADS = int(os.environ.get("OMP_NUM_THREADS", "2"))
DROPOUT, LABEL_SMOOTHING, LEARNING_RATE = 0.1, 0.1, 1e-4
PAD_ID, START_ID, END_ID, FIRST_WORD_ID = 0, 2, 3, 4  # below the words: special


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
    """What one call does: some training steps, or the decoding of one batch."""

    title: str
    size: Size
    batch_size: int
    source_length: int
    target_length: int
    beam_width: int = 1
    trains: bool = False
    steps: int = 1

    @property
    def tokens(self) -> int:
        """Tokens of a call: source and target in training, else the best targets."""
        counted = self.target_length + (self.source_length if self.trains else 0)
        return self.batch_size * self.steps * counted

    @property
    def flops(self) -> int:
        """Floating-point operations of a call's matrix products.

        An addition and a multiplication are two. Counted are all projections, the
        products of queries with keys and of attention weights with values, the
        feed-forward networks and the logits; a decoder's position attends to itself and
        the positions before. Every source position is encoded once, and projected once
        to the keys and values of each layer's cross-attention. Decoding computes every
        target position once for each hypothesis. Training takes three times the
        forward pass. What a system computes beyond that, such as masked products, is
        not counted.
        """
        size, source, target = self.size, self.source_length, self.target_length
        dim, feed_forward = size.hidden_dim, 2 * size.hidden_dim * size.intermediate_dim
        encoder_layer = 4 * dim**2 + 2 * dim * source + feed_forward
        cross_keys_and_values = 2 * dim**2
        self_attention = 4 * dim**2 + dim * (target + 1)  # half of the keys on average
        cross_attention = 2 * dim**2 + 2 * dim * source
        decoder_layer = self_attention + cross_attention + feed_forward
        of_source = size.num_layers * (encoder_layer + cross_keys_and_values)
        of_target = size.num_layers * decoder_layer + dim * size.vocabulary_size
        forward = source * of_source + self.beam_width * target * of_target
        passes = 3 * self.steps if self.trains else 1
        return 2 * self.batch_size * passes * forward

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
                (self.batch_size * self.steps, length),
                dtype="int32",
            )
            for length in (self.source_length, self.target_length + 1)
        )
        source[:, -1] = END_ID
        return source, target


@dataclass(frozen=True)
class MatrixProduct:
    """Products of two square bfloat16 matrices: the rate that a GPU can reach."""

    title: str
    side: int
    repeats: int
    tokens: int = 0

    @property
    def flops(self) -> int:
        """Floating-point operations of a call."""
        return 2 * self.side**3 * self.repeats


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
# On a GPU, only if named:
GPU_PEAK = {"G0": MatrixProduct("matrix products, bfloat16", 8192, repeats=50)}
GPU_TRAINING = {
    "G1": Workload("training base", BASE, 256, 64, 64, trains=True, steps=20)
}
GPU_DECODING = {
    "G2": Workload("decoding 128 sentences greedily, base", BASE, 128, 64, 64),
    "G3": Workload(
        "decoding 128 sentences with a beam of 4, base", BASE, 128, 64, 64, beam_width=4
    ),
    "G4": Workload("decoding 512 sentences greedily, base", BASE, 512, 64, 64),
}
GPU = GPU_PEAK | GPU_TRAINING | GPU_DECODING
WORKLOADS = DECODING | TRAINING | GPU
