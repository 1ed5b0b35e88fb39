"""Training steps of several models, taken in turn.

    python benchmarks/in_turn.py HARNESS --workload T1 --models keras-jit,kt,kt-slices

HARNESS is the folder with the peers' scripts, as for `run.py`. Where other machines
share the processors, steps of one model differ by more than two models do, and so do
processes that run one after the other. Here each model waits in a process of its own,
and each round takes a step of every one, so that what slows one down slows all. Prints
milliseconds a step, and by how much each model is faster than the first: the median of
the ratios of all rounds.

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
    """A function that trains the model for a step."""
    import common  # noqa: I001  first: it sets threads before TensorFlow starts
    import keras_fit
    import ours
    import peer_keras_core

    import keras

    w = common.WORKLOADS[workload]
    keras.utils.set_random_seed(0)
    source, target = (ids[: w.batch] for ids in common.random_tokens(w, 1))
    inputs, labels = target[:, :-1], target[:, 1:]
    whose, *variant = name.split("-")
    if whose == "kt":
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
    """Takes a step for each line that comes in, and writes how long it took."""
    step = step_of(name, workload)
    for _ in range(WARMUP):
        step()
    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        step()
        print(1000 * (time.perf_counter() - start), flush=True)


def start(name, arguments):
    """A process of `take_steps` that has warmed up."""
    command = [sys.executable, __file__, arguments.harness]
    command += ["--workload", arguments.workload, "--models", name, "--wait"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    process.stdout.readline()
    return process


def compare(arguments):
    """Takes the rounds and prints the table."""
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
    print("| model | least ms | median ms | times as fast |")
    print("| --- | --: | --: | --: |")
    for name, found in times.items():
        ratio = statistics.median(a / b for a, b in zip(first, found, strict=True))
        median = statistics.median(found)
        print(f"| `{name}` | {min(found):.0f} | {median:.0f} | {ratio:.2f} |")


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
