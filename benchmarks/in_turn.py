"""Training steps of several models, taken in turn in one process.

    python benchmarks/in_turn.py HARNESS --workload T1 --models keras-jit,kt,kt-jit

HARNESS is the folder with the peers' scripts, as for `run.py`. Where other machines
share the processors, steps of one model differ by more than two models do, and so do
processes that run one after the other. Here each round takes a step of every model, so
that what slows one down slows all. Prints milliseconds a step, and by how much each
model is faster than the first: the median of the ratios of all rounds.

Models are `kt`, `kt-jit` and `kt-bfloat16` of this library, as in `run.py`, and
`keras` and `keras-jit`, the peer made of Keras's own layers.
"""

import argparse
import statistics
import sys
import time

sys.path.insert(0, sys.argv[1])

import common  # noqa: I001  first: it sets threads before TensorFlow starts
import keras_fit
import ours
import peer_keras_core

import keras

import keras_transformer as kt

WARMUP = 3


def step_of(name, w):
    """A function that trains the model for a step."""
    keras.utils.set_random_seed(0)
    source, target = (ids[: w.batch] for ids in common.random_tokens(w, 1))
    inputs, labels = target[:, :-1], target[:, 1:]
    whose, *variant = name.split("-")
    jit_compile = "jit" in variant
    if whose == "kt":
        model = ours.build(w, *variant or ["graph"])
        model.compile(
            kt.training.Adam(common.LEARNING_RATE),
            kt.training.TokenCrossentropy(common.SMOOTHING),
            jit_compile=jit_compile,
        )
        batch = {"source_ids": source, "target_ids": inputs}
    else:
        model = peer_keras_core.build(w)
        model.compile(
            keras.optimizers.Adam(common.LEARNING_RATE),
            keras_fit.smoothed_loss,
            jit_compile=jit_compile,
        )
        batch = [source, inputs]
    return lambda: model.train_on_batch(batch, labels)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("harness")
    parser.add_argument("--workload", default="T1", choices=("T1", "T2"))
    parser.add_argument("--models", default="keras-jit,kt,kt-jit,kt-bfloat16")
    parser.add_argument("--rounds", type=int, default=25)
    arguments = parser.parse_args()
    w = common.WORKLOADS[arguments.workload]
    steps = {name: step_of(name, w) for name in arguments.models.split(",")}
    times = {name: [] for name in steps}
    for _ in range(WARMUP + arguments.rounds):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            times[name].append(1000 * (time.perf_counter() - start))
    times = {name: seconds[WARMUP:] for name, seconds in times.items()}
    first = next(iter(times.values()))
    print("| model | least ms | median ms | times as fast |")
    print("| --- | --: | --: | --: |")
    for name, found in times.items():
        ratio = statistics.median(a / b for a, b in zip(first, found, strict=True))
        median = statistics.median(found)
        print(f"| `{name}` | {min(found):.0f} | {median:.0f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
