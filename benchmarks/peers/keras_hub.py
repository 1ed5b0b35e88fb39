"""Decoding with KerasHub's encoder-decoder, BART, with random weights.

Not equal: BART has GELU instead of ReLU, normalises embeddings and learns positions,
and the decoder begins with a pass over the whole target buffer. Variants: `jit` (XLA)
and none.
"""

import keras
import keras_hub
import numpy as np
from peers.turns import limit_tensorflow_threads, take_turns
from peers.workloads import START_ID


def prepare(workload, variant):
    limit_tensorflow_threads()
    keras.utils.set_random_seed(0)
    size, samplers = workload.size, keras_hub.samplers
    buffer_length = workload.target_length + 1  # with the start symbol
    backbone = keras_hub.models.BartBackbone(
        vocabulary_size=size.vocabulary_size,
        num_layers=size.num_layers,
        num_heads=size.num_heads,
        hidden_dim=size.hidden_dim,
        intermediate_dim=size.intermediate_dim,
        max_sequence_length=max(workload.source_length, buffer_length),
    )
    model = keras_hub.models.BartSeq2SeqLM(backbone, preprocessor=None)
    model.compile(
        sampler=samplers.BeamSampler(workload.beam_width)
        if workload.beam_width > 1
        else samplers.GreedySampler(),
        jit_compile=variant == "jit",
    )
    source, _ = workload.random_ids()
    target = np.zeros((workload.batch_size, buffer_length), "int32")
    target[:, 0] = START_ID
    inputs = {
        "encoder_token_ids": source,
        "encoder_padding_mask": np.ones_like(source),
        "decoder_token_ids": target,
        "decoder_padding_mask": np.sign(target),
    }

    def work():
        outputs = model.generate(inputs, stop_token_ids=None)
        assert outputs["decoder_token_ids"].shape == target.shape

    return work


if __name__ == "__main__":
    take_turns(prepare, ["tensorflow", "keras", "keras-hub"])
