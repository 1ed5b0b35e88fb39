"""Time and memory by input length, batch size and target length.

    python benchmarks/growth.py

Each measurement runs in its own process. One encoder block takes training steps, with
attention scores returned (so they are kept in memory) and without; its memory is the
peak of the process above that of a step on a short input. A small `Transformer`
decodes greedily with its cache, and takes training steps. The preset `base` takes
training steps that keep its activations, and that compute them again. Each time is the
minimum of several. Prints tables and draws benchmarks/growth.png.
"""

import argparse
import os
import pathlib
import resource
import subprocess
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

HIDDEN_DIM, HEADS = 64, 4
LENGTHS = (512, 1024, 2048, 4096, 8192)
TARGETS = (32, 64, 128, 256, 512)
BATCHES = (1, 2, 4, 8, 16, 32)
FIGURE = pathlib.Path(__file__).with_suffix(".png")


def fastest_seconds(work, calls=3):
    """Returns the minimum time of several calls, after one that compiles."""
    work()
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def peak_mb():
    """Returns the peak memory of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # KiB


def train_block(length, with_scores):
    """Returns the seconds of a training step of one encoder block, and its MB."""
    import keras
    import numpy as np

    import keras_transformer as kt

    inputs = keras.Input((None, HIDDEN_DIM))
    block = kt.layers.EncoderBlock(HEADS, 4 * HIDDEN_DIM)
    outputs = block(inputs, return_attention_scores=with_scores)
    model = keras.Model(inputs, outputs[0] if with_scores else outputs)
    model.compile("sgd", "mse", jit_compile=False)

    def step(length):
        states = np.zeros((1, length, HIDDEN_DIM), "float32")
        model.train_on_batch(states, states)

    step(128)
    before = peak_mb()
    seconds = fastest_seconds(lambda: step(length))
    return seconds, peak_mb() - before


def small_transformer():
    import keras_transformer as kt

    return kt.models.Transformer.from_preset("tiny", 8000, dropout=0.0)


def decode(length):
    """Returns the milliseconds per token of one sentence, and MB of the process."""
    import numpy as np

    import keras_transformer as kt

    model = small_transformer()
    never_ends = kt.decoding.MinimumLength(length)
    search = kt.decoding.GreedySearch(processors=[never_ends])
    source = np.full((1, 24), 7)

    def generate():
        model.generate(source, search, max_length=length)

    return 1000 * fastest_seconds(generate) / length, peak_mb()


def train(batch):
    """Returns the milliseconds of a step on 32-token sentences, and process MB."""
    import numpy as np

    import keras_transformer as kt

    model = small_transformer()
    model.compile("sgd", kt.training.TokenCrossentropy(), jit_compile=False)
    ids = np.full((batch, 32), 7)
    inputs = {"source_ids": ids, "target_ids": ids}
    milliseconds = 1000 * fastest_seconds(lambda: model.train_on_batch(inputs, ids))
    return milliseconds, peak_mb()


def train_base(batch, recomputes):
    """Returns the milliseconds of a step of preset `base`, and its MB, as a block's."""
    import keras
    import numpy as np

    import keras_transformer as kt

    with keras.RematScope("full" if recomputes else None):
        model = kt.models.Transformer.from_preset("base", 8000)
    model.compile("sgd", kt.training.TokenCrossentropy(), jit_compile=False)

    def step(batch):
        ids = np.full((batch, 64), 7)
        model.train_on_batch({"source_ids": ids, "target_ids": ids}, ids)

    step(1)
    before = peak_mb()
    milliseconds = 1000 * fastest_seconds(lambda: step(batch))
    return milliseconds, peak_mb() - before


MEASUREMENTS = {
    "with scores": (LENGTHS, lambda length: train_block(length, True)),
    "without scores": (LENGTHS, lambda length: train_block(length, False)),
    "decoded token": (TARGETS, decode),
    "training step": (BATCHES, train),
    "base, activations kept": (BATCHES, lambda batch: train_base(batch, False)),
    "base, computed again": (BATCHES, lambda batch: train_base(batch, True)),
}


def measure(name, size):
    """Runs one measurement in a process of its own; returns its time and MB."""
    command = [sys.executable, __file__, "--measure", name, str(size)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return tuple(map(float, done.stdout.splitlines()[-1].split()))


def draw(results):
    """Draws the figure of `{measurement: {size: (time, MB)}}`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3), layout="constrained")
    memory, seconds, token, step = figure.subplots(1, 4)
    for name in ("with scores", "without scores"):
        times, megabytes = zip(*results[name].values(), strict=True)
        sizes = list(results[name])
        memory.loglog(sizes, megabytes, "o-", base=2, label=name)
        seconds.loglog(sizes, times, "o-", base=2)
    for axes, name in ((token, "decoded token"), (step, "training step")):
        axes.semilogx(
            list(results[name]), [x for x, _ in results[name].values()], "o-", base=2
        )
        axes.set_ylim(bottom=0)
    memory.legend(frameon=False)
    memory.set(title="MB per block step", xlabel="length")
    seconds.set(title="seconds per block step", xlabel="length")
    token.set(title="ms per decoded token", xlabel="target length")
    step.set(title="ms per training step", xlabel="sentences in a batch")
    for axes in (memory, seconds, token, step):
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--largest", type=int, default=max(LENGTHS), help="size")
    parser.add_argument("--figure", type=pathlib.Path, default=FIGURE)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        name, size = arguments.measure
        print(*MEASUREMENTS[name][1](int(size)))
        return
    results = {}
    for name, (sizes, _) in MEASUREMENTS.items():
        unit = "s" if sizes is LENGTHS else "ms"
        print(f"\n| {name} | {unit} | MB |\n| --: | --: | --: |", flush=True)
        results[name] = {}
        for size in sizes:
            if size <= arguments.largest:
                spent, megabytes = results[name][size] = measure(name, size)
                print(f"| {size:,} | {spent:.3g} | {megabytes:.0f} |", flush=True)
    draw(results).savefig(arguments.figure, dpi=80)


if __name__ == "__main__":
    main()
