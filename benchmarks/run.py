"""Runs this library and its peers on the same workloads, and prints one table.

    BENCH_PY_TF=... BENCH_PY_TORCH=... python benchmarks/run.py HARNESS \\
        --workloads T1,D1 --peers kt,kt-jit,keras-jit,ct2 --rounds 3

HARNESS is the folder with the peers' scripts (`run_peers.py`); its README says how to
make their environments. The one that BENCH_PY_TF names must have this library. All
arguments after HARNESS are passed to `run_peers.py`, whose `--help` lists them.
"""

import pathlib
import sys

OURS = str(pathlib.Path(__file__).resolve().with_name("ours.py"))
TRAIN, DECODE = ["T1", "T2"], ["D1", "D2", "D3", "D4"]
VARIANTS = {
    "kt": ("graph", TRAIN + DECODE),
    "kt-jit": ("jit", TRAIN + DECODE),
    "kt-slices": ("slices", TRAIN),
    "kt-bfloat16": ("bfloat16", TRAIN + DECODE),
    "kt-export": ("export", DECODE),
    "kt-export-jit": ("export-jit", DECODE),
}


def main():
    if len(sys.argv) < 2 or not pathlib.Path(sys.argv[1], "run_peers.py").is_file():
        sys.exit(__doc__)
    sys.path.insert(0, sys.argv.pop(1))
    import run_peers

    for name, (variant, workloads) in VARIANTS.items():
        run_peers.PEERS[name] = ("BENCH_PY_TF", OURS, variant, workloads, {})
    run_peers.main()


if __name__ == "__main__":
    main()
