"""Times our searches beside KerasHub's samplers, on its models with random weights.

    python benchmarks/keras_hub_searches.py [--full] [--jit]

Calls alternate within one process, and all take the same number of steps: nothing stops
them early. `--full` has the sizes of GPT-2 and of BART base.
"""

import argparse
import statistics
import time

import keras
import keras_hub
import numpy as np

import keras_transformer as kt
from keras_transformer.interop.keras_hub import SearchSampler

parser = argparse.ArgumentParser()
parser.add_argument("--full", action="store_true")
parser.add_argument("--jit", action="store_true", help="compile by XLA")
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--length", type=int, default=48)
parser.add_argument("--rounds", type=int, default=7)
OPTIONS = parser.parse_args()
SMALL = {"num_layers": 6, "hidden_dim": 256, "num_heads": 4, "intermediate_dim": 1024}
FULL = {"num_heads": 12, "hidden_dim": 768, "intermediate_dim": 3072}
PAIRS = {
    "greedy": ("greedy", kt.decoding.GreedySearch()),
    "beam of 4": (
        keras_hub.samplers.BeamSampler(4),
        kt.decoding.BeamSearch(4, length_penalty=0.6),
    ),
}


def decoder():
    sizes = {**FULL, "num_layers": 12} if OPTIONS.full else SMALL
    backbone = keras_hub.models.GPT2Backbone(
        50257 if OPTIONS.full else 8000, max_sequence_length=128, **sizes
    )
    return keras_hub.models.GPT2CausalLM(backbone)


def encoder_decoder():
    sizes = {**FULL, "num_layers": 6} if OPTIONS.full else SMALL
    backbone = keras_hub.models.BartBackbone(
        50265 if OPTIONS.full else 8000, max_sequence_length=128, **sizes
    )
    return keras_hub.models.BartSeq2SeqLM(backbone)


def inputs(part=""):
    mask = np.arange(OPTIONS.length) < 2
    draw = np.random.default_rng(1)
    ids = draw.integers(5, 8000, (OPTIONS.batch, OPTIONS.length)) * mask
    found = {f"{part}token_ids": ids, f"{part}padding_mask": mask & (ids > 0)}
    if part:
        source = draw.integers(5, 8000, (OPTIONS.batch, 64))
        found |= {"encoder_token_ids": source, "encoder_padding_mask": source > 0}
    return keras.tree.map_structure(keras.ops.convert_to_tensor, found)


def compiled(lm, sampler):
    """Returns what `lm.generate` calls, compiled with a sampler."""
    lm.compile(sampler=sampler, jit_compile=OPTIONS.jit)
    return lm.make_generate_function()


def seconds(function, *arguments):
    start = time.perf_counter()
    keras.tree.map_structure(keras.ops.convert_to_numpy, function(*arguments))
    return time.perf_counter() - start


def measure(lm, ids):
    for name, (theirs, ours) in PAIRS.items():
        functions = [compiled(lm, theirs), compiled(lm, SearchSampler(ours))]
        times = [[], []]
        for turn in range(OPTIONS.rounds + 1):
            for function, list_of_times in zip(functions, times, strict=True):
                taken = seconds(function, ids, None)
                if turn:  # the first compiles
                    list_of_times.append(taken)
        their_time, our_time = map(statistics.median, times)
        ratios = [ours / theirs for theirs, ours in zip(*times, strict=True)]
        print(
            f"| {type(lm).__name__} | {name} | {1000 * their_time:.0f} | "
            f"{1000 * our_time:.0f} | {statistics.median(ratios):.2f} |",
            flush=True,
        )


print("| model | search | KerasHub, ms | ours, ms | ratio |")
print("| --- | --- | --: | --: | --: |")
measure(decoder(), inputs())
measure(encoder_decoder(), inputs("decoder_"))
