"""One system's side of the benchmark: a process that works whenever it is its turn."""

import argparse
import importlib.metadata
import json
import sys
import time

from peers.workloads import THREADS, WORKLOADS

WARMUP = 3  # calls that trace and compile


def take_turns(prepare, packages):
    """Times a system's calls, as many as each line on stdin says.

    Prints JSON lines: first `{"versions": {...}}` once everything is compiled, then
    `{"seconds": [...]}` for each turn. A turn begins with a call that is not timed,
    since the processor's caches still hold the data of another process.

    Args:
        prepare: Function of a `Workload` and a variant (str) that returns a function
            without arguments, which does the work once.
        packages: Names of the packages whose versions are printed.
    """
    parser = argparse.ArgumentParser(description=f"Example: echo 5 | {sys.argv[0]} D1")
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--variant", default="")
    arguments = parser.parse_args()
    work = prepare(WORKLOADS[arguments.workload], arguments.variant)
    for _ in range(WARMUP):
        work()
    versions = {name: version(name) for name in packages}
    print(json.dumps({"versions": versions}), flush=True)
    for line in sys.stdin:
        work()
        seconds = []
        for _ in range(int(line)):
            start = time.perf_counter()
            work()
            seconds.append(time.perf_counter() - start)
        print(json.dumps({"seconds": seconds}), flush=True)


def version(package):
    """Returns a package's version; "checkout" if it is only on the path."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "checkout"


def limit_tensorflow_threads(intra=THREADS):
    """Limits the threads of TensorFlow, which ignores OMP_NUM_THREADS."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(intra)
    tf.config.threading.set_inter_op_parallelism_threads(THREADS)
