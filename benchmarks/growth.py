"""How time and memory grow with the length, the batch and the text written.

    python benchmarks/growth.py

Each measurement is a process of its own. A training step of one encoder block is
run with the scores of attention held, as they are when they are asked for, and
without; peak memory is what the process held more than after a step of a short
input. A small `Transformer` decodes greedily, from its cache, and trains. Times
are the least of several. Prints tables and draws benchmarks/growth.png.
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


def least_seconds(work, calls=3):
    """The least time of several calls, after one that compiles."""
    work()
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # KiB


def train_block(length, with_scores):
    """Seconds of a step of one encoder block, and MB that it held."""
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
    before = peak()
    seconds = least_seconds(lambda: step(length))
    return seconds, peak() - before


def small_transformer():
    import keras_transformer as kt

    return kt.models.Transformer.from_preset("tiny", 8000, dropout=0.0)


def decode(length):
    """Milliseconds of a token of one sentence, and MB of the process."""
    import numpy as np

    import keras_transformer as kt

    model = small_transformer()
    never_ends = kt.decoding.MinimumLength(length)
    search = kt.decoding.GreedySearch(processors=[never_ends])
    source = np.full((1, 24), 7)

    def write():
        model.generate(source, search, max_length=length)

    return 1000 * least_seconds(write) / length, peak()


def train(batch):
    """Milliseconds of a step on sentences of 32 tokens, and MB of the process."""
    import numpy as np

    import keras_transformer as kt

    model = small_transformer()
    model.compile("sgd", kt.training.TokenCrossentropy(), jit_compile=False)
    ids = np.full((batch, 32), 7)
    inputs = {"source_ids": ids, "target_ids": ids}
    return 1000 * least_seconds(lambda: model.train_on_batch(inputs, ids)), peak()


WORKS = {
    "scores held": (LENGTHS, lambda length: train_block(length, True)),
    "not asked for": (LENGTHS, lambda length: train_block(length, False)),
    "decoded token": (TARGETS, decode),
    "training step": (BATCHES, train),
}


def measure(work, size):
    command = [sys.executable, __file__, "--work", work, str(size)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return tuple(map(float, done.stdout.splitlines()[-1].split()))


def draw(figures):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3), layout="constrained")
    memory, seconds, token, step = figure.subplots(1, 4)
    for name in ("scores held", "not asked for"):
        of_time, of_memory = zip(*figures[name].values(), strict=True)
        sizes = list(figures[name])
        memory.loglog(sizes, of_memory, "o-", base=2, label=name)
        seconds.loglog(sizes, of_time, "o-", base=2)
    for axes, name in ((token, "decoded token"), (step, "training step")):
        axes.semilogx(
            list(figures[name]), [x for x, _ in figures[name].values()], "o-", base=2
        )
        axes.set_ylim(bottom=0)
    memory.legend(frameon=False)
    memory.set(title="a block's step: MB", xlabel="length")
    seconds.set(title="a block's step: seconds", xlabel="length")
    token.set(title="ms a decoded token", xlabel="target length")
    step.set(title="ms a training step", xlabel="sentences in a batch")
    for axes in (memory, seconds, token, step):
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--largest", type=int, default=max(LENGTHS), help="length")
    parser.add_argument("--figure", type=pathlib.Path, default=FIGURE)
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work, size = arguments.work
        print(*WORKS[work][1](int(size)))
        return
    figures = {}
    for work, (sizes, _) in WORKS.items():
        unit = "s" if sizes is LENGTHS else "ms"
        print(f"\n| {work} | {unit} | MB |\n| --: | --: | --: |", flush=True)
        figures[work] = {}
        for size in sizes:
            if size <= arguments.largest:
                spent, held = figures[work][size] = measure(work, size)
                print(f"| {size:,} | {spent:.3g} | {held:.0f} |", flush=True)
    draw(figures).savefig(arguments.figure, dpi=80)


if __name__ == "__main__":
    main()
