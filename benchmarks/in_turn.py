"""Compares the training speed of several models, one step each in turn.

    python benchmarks/in_turn.py HARNESS --workload T1 --models keras-jit,kt,kt-slices

HARNESS is the folder with the peers' scripts, as for `run.py`. On a shared processor,
the time of one model varies by more than the difference between two models. So here
each model has its own process, and each round takes one step of every model: whatever
slows down one model slows down all. Prints milliseconds per step, and how many times as
fast as the first model each one is: the median over all rounds of the ratio.

Models are `kt`, `kt-jit`, `kt-slices` and `kt-bfloat16` of this library, see `run.py`,
and `keras` and `keras-jit`, the peer made of Keras's own layers.
"""

import argparse
import statistics
import subprocess
import sys
import time

WARMUP = 3


def step_of(name, workload):
    """Returns a function that trains the model for one step."""
    import common  # noqa: I001  first: it sets threads before TensorFlow starts
    import keras_fit
    import ours
    import peer_keras_core

    import keras

    w = common.WORKLOADS[workload]
    keras.utils.set_random_seed(0)
    source, target = (ids[: w.batch] for ids in common.random_tokens(w, 1))
    inputs, labels = target[:, :-1], target[:, 1:]
    library, *variant = name.split("-")
    if library == "kt":
        model = ours.build_for_training(w, *variant or ["graph"])
        batch = {"source_ids": source, "target_ids": inputs}
    else:
        model = peer_keras_core.build(w)
        model.compile(
            keras.optimizers.Adam(common.LEARNING_RATE),
            keras_fit.smoothed_loss,
            jit_compile="jit" in variant,
        )
        batch = [source, inputs]
    return lambda: model.train_on_batch(batch, labels)


def take_steps(name, workload):
    """Takes a step for each line on stdin, and prints its milliseconds."""
    step = step_of(name, workload)
    for _ in range(WARMUP):
        step()
    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        step()
        print(1000 * (time.perf_counter() - start), flush=True)


def start(name, arguments):
    """Starts a process of `take_steps` and waits until it has warmed up."""
    command = [sys.executable, __file__, arguments.harness]
    command += ["--workload", arguments.workload, "--models", name, "--wait"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    process.stdout.readline()
    return process


def compare(arguments):
    """Runs all rounds and prints the table."""
    models = {name: start(name, arguments) for name in arguments.models.split(",")}
    times = {name: [] for name in models}
    for _ in range(arguments.rounds):
        for name, process in models.items():
            print(file=process.stdin, flush=True)
            times[name].append(float(process.stdout.readline()))
    for process in models.values():
        process.stdin.close()
        process.wait()
    first = next(iter(times.values()))
    print("| model | minimum ms | median ms | times as fast |")
    print("| --- | --: | --: | --: |")
    for name, own in times.items():
        ratio = statistics.median(a / b for a, b in zip(first, own, strict=True))
        median = statistics.median(own)
        print(f"| `{name}` | {min(own):.0f} | {median:.0f} | {ratio:.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("harness")
    parser.add_argument("--workload", default="T1", choices=("T1", "T2"))
    parser.add_argument("--models", default="keras-jit,kt,kt-slices,kt-bfloat16")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--wait", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    sys.path.insert(0, arguments.harness)
    if arguments.wait:
        take_steps(arguments.models, arguments.workload)
    else:
        compare(arguments)


if __name__ == "__main__":
    main()
