"""Times this library beside its peers on the same work: the README's table.

    python benchmarks/run.py
    python benchmarks/run.py --only D1 --peers ctranslate2 --rounds 10
    python benchmarks/run.py --only G0,G1,G2,G3 --peers pytorch --threads 16

Makes a virtual environment for this library and one for each peer, which takes some
minutes once. Then the systems take turns: each has its own process, and each round
times some calls of every system, so that whatever slows down one slows down all.
Prints Markdown tables, with the machine and all versions. Needs Linux, Python 3.11 to
3.13 and no packages. `peers/README.md` says more.
"""

import argparse
import contextlib
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from peers.workloads import (
    DECODING,
    GPU,
    GPU_DECODING,
    GPU_TRAINING,
    TRAINING,
    WORKLOADS,
)

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
STARTUP_SECONDS, TURN_SECONDS = 900, 300  # a process that takes longer is ended


class System(NamedTuple):
    """What is timed: a module that calls `take_turns`, and on which workloads."""

    title: str
    module: str
    variant: str
    workloads: dict
    backend: str = "tensorflow"  # Keras's

    @property
    def environment(self):
        """The name of its environment and of its requirements."""
        name = self.module.rpartition(".")[2]
        return name if self.backend == "tensorflow" else f"{name}_{self.backend}"


ON_CPU = DECODING | TRAINING
ON_JAX = GPU_DECODING | GPU_TRAINING
OURS = {
    "kt": System("`kt`", "ours", "graph", ON_CPU),
    "kt-jit": System("`kt-jit`", "ours", "jit", ON_CPU),
    "kt-bfloat16": System("`kt-bfloat16`", "ours", "bfloat16", ON_CPU),
    "kt-export": System("`kt-export`", "ours", "export", DECODING),
    "kt-export-jit": System("`kt-export-jit`", "ours", "export-jit", DECODING),
    "kt-jax": System("`kt-jax`", "ours", "bfloat16-jit", ON_JAX, "jax"),
    "kt-jax-fused": System(
        "`kt-jax-fused`", "ours", "bfloat16-jit-fused", ON_JAX, "jax"
    ),
}
PEERS = {
    "ctranslate2": System("CTranslate2", "peers.ctranslate2", "float32", DECODING),
    "keras_hub": System("KerasHub", "peers.keras_hub", "jit", DECODING),
    "keras": System("Keras", "peers.keras", "jit", TRAINING),
    # Only if named:
    "ctranslate2-int8": System(
        "CTranslate2, int8", "peers.ctranslate2", "int8", DECODING
    ),
    "pytorch": System("PyTorch", "peers.pytorch", "compile", GPU),
    "pytorch-eager": System("PyTorch, eager", "peers.pytorch", "eager", GPU),
}
README_PEERS = "ctranslate2,keras_hub,keras"
# What is fastest on CPUs; on a GPU, JAX.
DEFAULT_OURS = {
    **dict.fromkeys(GPU, "kt-jax"),
    **dict.fromkeys(TRAINING, "kt"),
    **dict.fromkeys(DECODING, "kt-jit"),
}


def make_environment(name, folder):
    """Returns the Python of an environment, which is made if it is not there."""
    requirements = FOLDER / "peers" / "requirements" / f"{name}.txt"
    home = folder / name
    python, complete = home / "bin" / "python", home / "complete.txt"
    content = requirements.read_text("utf-8")
    if complete.is_file() and complete.read_text("utf-8") == content:
        return python
    print(f"Making the environment {name} ...", file=sys.stderr, flush=True)
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    for command in (
        [sys.executable, "-m", "venv", "--clear", home],
        [*pip, "--requirement", requirements],
    ):
        # Requirements name this library by a path relative to `cwd`.
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"cannot be installed: {last_line(done.stderr)}")
    complete.write_text(content, "utf-8")
    return python


def search_path():
    """Returns the folders of PYTHONPATH."""
    return filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))


def last_line(text):
    return (text.strip().splitlines() or ["no message"])[-1]


class Contestant:
    """A process of a system, which has warmed up when this is made."""

    def __init__(self, system, workload, python, threads):
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  `stop` closes it
        command = [python, "-m", system.module, workload, "--variant", system.variant]
        self.process = subprocess.Popen(
            command,
            cwd=FOLDER,
            env=os.environ
            | {
                # This checkout, even if the environment was made by another.
                "PYTHONPATH": os.pathsep.join([str(ROOT), *search_path()]),
                "KERAS_BACKEND": system.backend,
                "OMP_NUM_THREADS": str(threads),
                "TF_CPP_MIN_LOG_LEVEL": "2",
                # Other processes need memory of the same GPU.
                "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )
        try:
            self.versions = self._read(STARTUP_SECONDS)["versions"]
        except BaseException:
            self.stop()
            raise

    def milliseconds(self, calls):
        """Returns the median time of some calls."""
        with contextlib.suppress(BrokenPipeError):  # `_read` says why
            print(calls, file=self.process.stdin, flush=True)
        return 1000 * statistics.median(self._read(TURN_SECONDS)["seconds"])

    def _read(self, limit):
        """Returns what the next line says; raises `RuntimeError` if there is none."""
        timer = threading.Timer(limit, self.process.kill)
        timer.start()
        try:
            for line in self.process.stdout:
                if line.startswith("{"):  # libraries may print as well
                    return json.loads(line)
        finally:
            timer.cancel()
        self.errors.seek(0)
        status = self.process.wait()
        raise RuntimeError(f"ended with {status}: {last_line(self.errors.read())}")

    def stop(self):
        self.process.kill()
        self.process.wait()
        for file in (self.process.stdin, self.process.stdout, self.errors):
            with contextlib.suppress(BrokenPipeError):
                file.close()


def measure(workload, systems, pythons, arguments):
    """Returns the times of each system in each round, all versions and all failures."""
    contestants, times, versions, failures = {}, {}, {}, []

    def start(name):
        print(f"{workload}: {name} starts", file=sys.stderr, flush=True)
        system = systems[name]
        python = pythons[system.environment]
        try:
            contestants[name] = Contestant(system, workload, python, arguments.threads)
        except RuntimeError as error:
            failures.append(f"{workload}, {system.title}: {error}")

    try:
        with ThreadPoolExecutor() as pool:  # all compile at the same time
            list(pool.map(start, systems))
        contestants = {
            name: contestants[name] for name in systems if name in contestants
        }
        for name, contestant in contestants.items():
            versions |= contestant.versions
            times[name] = []
        for _ in range(arguments.rounds):
            for name, contestant in list(contestants.items()):
                try:
                    times[name].append(contestant.milliseconds(arguments.calls))
                except RuntimeError as error:
                    failures.append(f"{workload}, {systems[name].title}: {error}")
                    contestants.pop(name).stop()
                    del times[name]
    finally:
        for contestant in contestants.values():
            contestant.stop()
    return times, versions, failures


def ratio_table(results, peers):
    """Returns lines of Markdown: how many times as fast ours is as each peer."""
    titles = [PEERS[name].title for name in peers]
    lines = [
        f"| what | here, tokens/s | {' | '.join(titles)} |",
        "| --- | --: |" + " --: |" * len(peers),
    ]
    for workload, times in results.items():
        for name in (name for name in times if name in OURS):
            cells = [speed(workload, times[name])]
            for peer in peers:
                pairs = zip(times[name], times.get(peer, []), strict=False)
                ratios = [theirs / ours for ours, theirs in pairs]
                cells.append(
                    f"{statistics.median(ratios):.2f} "
                    f"({min(ratios):.2f} to {max(ratios):.2f})"
                    if ratios
                    else ""
                )
            title = f"{workload}: {WORKLOADS[workload].title}, `{name}`"
            lines.append(f"| {title} | {' | '.join(cells)} |")
    return lines


def time_table(results):
    """Returns lines of Markdown with the time of each system."""
    has_gpu_work = any(workload in GPU for workload in results)
    lines = [
        "| work | system | median ms | minimum ms | tokens/s |",
        "| --- | --- | --: | --: | --: |",
    ]
    if has_gpu_work:
        lines = [f"{lines[0]} TFLOP/s |", f"{lines[1]} --: |"]
    for workload, times in results.items():
        for name, own in times.items():
            title = (OURS | PEERS)[name].title
            middle, least = statistics.median(own), min(own)
            cells = f"{middle:.1f} | {least:.1f} | {speed(workload, own)}"
            if has_gpu_work:
                rate = WORKLOADS[workload].flops / middle / 1e9
                cells += f" | {rate:,.1f}" if workload in GPU else " |"
            lines.append(f"| {workload} | {title} | {cells} |")
    return lines


def speed(workload, milliseconds):
    """Returns the tokens per second as text; "" if there are no tokens."""
    if not WORKLOADS[workload].tokens:
        return ""
    rate = 1000 * WORKLOADS[workload].tokens / statistics.median(milliseconds)
    return f"{rate:,.0f}"


def processor():
    """Returns the name of the processor, as the system knows it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def graphics_card():
    """Returns the name of the GPU as text for the line of the machine, or ""."""
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        found = subprocess.run(command, capture_output=True, text=True, check=True)
        return f", {found.stdout.splitlines()[0]}"
    return ""


def names_from(known):
    """Returns a parser of names that are separated by commas."""

    def parse(text):
        names = text.split(",")
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(
                    f"{name!r} is none of {', '.join(known)}"
                )
        return names

    return parse


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only", type=names_from(WORKLOADS), default=list(ON_CPU), metavar="D1,T1"
    )
    parser.add_argument(
        "--peers",
        type=names_from(PEERS),
        default=README_PEERS,
        metavar="NAMES",
        help=f"of {', '.join(PEERS)}; default: {README_PEERS}",
    )
    parser.add_argument(
        "--ours",
        type=names_from(OURS),
        metavar="NAMES",
        help=f"of {', '.join(OURS)}; default: kt-jax on a GPU, else kt in "
        "training and kt-jit in decoding",
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=3, help="timed in each turn")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--environments",
        type=Path,
        default=CACHE / "keras-transformer-benchmarks",
        help="folder for virtual environments; those that are there are used again",
    )
    parser.add_argument(
        "--python",
        type=shutil.which,
        help="interpreter of all systems, which has their packages: no virtual "
        "environments are made",
    )
    parser.add_argument("--output", type=Path, help="JSON file for the times")
    return parser.parse_args()


def make_environments(systems, folder):
    """Returns the Python of each environment that can be made, and the failures."""
    pythons, failures = {}, []
    for name in dict.fromkeys(system.environment for system in systems):
        try:
            pythons[name] = make_environment(name, folder.resolve())
        except (RuntimeError, OSError) as error:
            failures.append(f"{name}: {error}")
    return pythons, failures


def main():
    arguments = parse_arguments()
    if hasattr(os, "sched_setaffinity"):  # inherited by all processes
        cores = sorted(os.sched_getaffinity(0))[: arguments.threads]
        os.sched_setaffinity(0, cores)
    contests = {}
    for workload in arguments.only:
        names = (arguments.ours or [DEFAULT_OURS[workload]]) + arguments.peers
        systems = {name: (OURS | PEERS)[name] for name in names}
        contests[workload] = {
            name: system
            for name, system in systems.items()
            if workload in system.workloads
        }
    used = [system for contest in contests.values() for system in contest.values()]
    if arguments.python:
        pythons = {system.environment: arguments.python for system in used}
        failures = []
    else:
        pythons, failures = make_environments(used, arguments.environments)
    results, versions = {}, {}
    for workload, contest in contests.items():
        installed = {
            name: system
            for name, system in contest.items()
            if system.environment in pythons
        }
        results[workload], found, failed = measure(
            workload, installed, pythons, arguments
        )
        versions |= found
        failures += failed
    peers = [
        name for name in arguments.peers if any(name in x for x in results.values())
    ]
    machine = f"{arguments.threads} threads of {processor()}{graphics_card()}, Python "
    machine += ", ".join(
        [platform.python_version(), *(f"{name} {versions[name]}" for name in versions)]
    )
    print("Times as fast as each peer (the range over all rounds):\n")
    print(*ratio_table(results, peers), "", *time_table(results), sep="\n")
    print(f"\n{machine}. Rounds: {arguments.rounds}, calls: {arguments.calls}.")
    for failure in failures:
        print(f"\n{failure}")
    if arguments.output:
        report = {"machine": machine, "milliseconds": results, "failures": failures}
        arguments.output.write_text(json.dumps(report, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
