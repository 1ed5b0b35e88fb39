"""Times our searches beside KerasHub's samplers, on its models with random weights.

    python benchmarks/keras_hub_searches.py [--full] [--jit]
    python benchmarks/keras_hub_searches.py [--full] --memory ours --models gpt2

Calls alternate within one process, and all take the same number of steps: nothing stops
them early. The last columns are the shares of that time that stopping early saves, at
the tokens that greedy search finds halfway. `--full` has the sizes of GPT-2 and of BART
base. `--memory` prints what the first beam of 4 adds to the peak of the process.
"""

import argparse
import resource
import time

import keras
import keras_hub
import numpy as np

import keras_transformer as kt
from keras_transformer.interop.keras_hub import SearchSampler

parser = argparse.ArgumentParser()
parser.add_argument("--full", action="store_true")
parser.add_argument("--jit", action="store_true", help="compile by XLA")
parser.add_argument("--memory", choices=["theirs", "ours"])
parser.add_argument("--models", nargs="+", default=["gpt2", "bart"])
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


def fastest(functions, *arguments):
    """The fastest call of each function, in turn: other programs slow some."""
    times = [
        [seconds(function, *arguments) for function in functions]
        for _ in range(OPTIONS.rounds + 1)
    ]
    return np.min(times[1:], axis=0)  # the first compiles


def measure_memory(lm, ids):
    theirs, ours = PAIRS["beam of 4"]
    sampler = theirs if OPTIONS.memory == "theirs" else SearchSampler(ours)
    before = peak_mb()
    seconds(compiled(lm, sampler), ids, None)
    print(f"{type(lm).__name__}: {peak_mb() - before:.0f} MB", flush=True)


def peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(lm, ids):
    stops = None
    for name, (theirs, ours) in PAIRS.items():
        functions = [compiled(lm, theirs), compiled(lm, SearchSampler(ours))]
        whole = fastest(functions, ids, None)
        if stops is None:  # what greedy search finds halfway, in each row
            (found,) = (x for n, x in functions[1](ids, None).items() if "ids" in n)
            stops = np.asarray(found)[:, OPTIONS.length // 2]
            stops = tuple(map(int, np.unique(stops)))
        saved = 1 - fastest(functions, ids, stops) / whole
        print(
            f"| {type(lm).__name__} | {name} | {1000 * whole[0]:.0f} | "
            f"{1000 * whole[1]:.0f} | {whole[1] / whole[0]:.2f} | "
            f"{100 * saved[0]:.0f}% | {100 * saved[1]:.0f}% |",
            flush=True,
        )


MODELS = {"gpt2": (decoder, ""), "bart": (encoder_decoder, "decoder_")}
if OPTIONS.memory:
    work = measure_memory
else:
    work = measure
    print(
        "| model | search | KerasHub, ms | ours, ms | ratio | it saves | ours saves |\n"
        "| --- | --- | --: | --: | --: | --: | --: |"
    )
for name in OPTIONS.models:
    make, part = MODELS[name]
    work(make(), inputs(part))
