"""Breaks the code in many places, one at a time, and counts what the tests notice.

    python tests/mutants.py --count 200 --seed 1

A mutant is the package with one change: another operator, comparison or number, a
condition turned round. The places are drawn at random from the modules of `ROOMS`. Each
mutant runs the quick tests of its own module first, then those of the rooms that use
it; the first failure kills it. With `--slow`, mutants that survive run the slow tests
too. Prints a line for each mutant, and a table for CONTRIBUTING.md.

Needs Linux: each mutant runs in a fork of one process that has imported TensorFlow.
"""

import argparse
import ast
import collections
import importlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = "keras_transformer"
# The rooms whose modules are changed, and the folders of tests that may notice it.
ROOMS = {
    "layers": ["layers", "models"],
    "decoding": ["decoding", "models"],
    "training": ["training", "models"],
    "text": ["text", "translator"],
}
SECONDS = 240  # a mutant that runs longer does not end, and counts as noticed
COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


def places(tree):
    """Yields the nodes that can be changed: not in annotations, errors, docstrings."""
    skipped = set()
    for node in ast.walk(tree):
        left_out = []
        if isinstance(node, ast.Raise):
            left_out = [node]
        elif isinstance(node, ast.FunctionDef):
            left_out = [node.returns, *node.decorator_list]
        elif isinstance(node, (ast.arg, ast.AnnAssign)):
            left_out = [node.annotation]
        elif (
            isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance"
        ):
            left_out = node.args[1:]
        for part in filter(None, left_out):
            skipped |= set(map(id, ast.walk(part)))
    for node in ast.walk(tree):
        if id(node) not in skipped and changed(node) is not None:
            yield node


def changed(node):
    """Returns a changed copy of a node; None if nothing of it can be changed."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        operators = [COMPARISONS[type(node.ops[0])](), *node.ops[1:]]
        return ast.Compare(node.left, operators, node.comparators)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right)
    if isinstance(node, ast.BoolOp):
        other = ast.Or if isinstance(node.op, ast.And) else ast.And
        return ast.BoolOp(other(), node.values)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.Invert)):
        return node.operand
    if isinstance(node, ast.Constant) and type(node.value) is bool:
        return ast.Constant(not node.value)
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return ast.Constant(node.value + 1)
    return None


def mutate(source, place):
    """Returns the source with the place of that number changed, and a description."""
    tree = ast.parse(source)
    node = list(places(tree))[place]
    new = changed(node)

    class Replace(ast.NodeTransformer):
        def visit(self, old):
            return new if old is node else self.generic_visit(old)

    description = f"{node.lineno}: {ast.unparse(node)} -> {ast.unparse(new)}"
    return ast.unparse(ast.fix_missing_locations(Replace().visit(tree))), description


def draw(count, seed):
    """Returns `(room, path, place)` of `count` mutants, as many from every room."""
    found = collections.defaultdict(list)
    for room in ROOMS:
        for path in sorted((ROOT / PACKAGE / room).rglob("*.py")):
            number = len(list(places(ast.parse(path.read_text("utf-8")))))
            where = path.relative_to(ROOT)
            found[room] += [(room, where, place) for place in range(number)]
    generator = random.Random(seed)
    each = count // len(ROOMS)
    return [one for room in ROOMS for one in generator.sample(found[room], each)]


def survives(folder, room, path, marks):
    """Tells whether all tests pass that may notice a change of a module."""
    tests = [f"tests/{name}" for name in ROOMS[room]]
    for own in sorted((ROOT / "tests").rglob(f"test_{path.stem}.py")):
        tests.insert(0, str(own.relative_to(ROOT)))
    own = [str(path), *tests[: -len(ROOMS[room])]]
    return passes(folder, own, marks) and passes(folder, tests, marks)


def passes(folder, paths, marks):
    """Runs tests in a fork; tells whether all passed in time."""
    child = os.fork()
    if not child:
        code = 3
        try:
            log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.chdir(folder)
            sys.path.insert(0, str(folder))
            import pytest

            options = ["-x", "-q", "-p", "no:cacheprovider", "-m", marks]
            code = int(pytest.main([*options, *paths]))
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            if code in (3, 4):  # of pytest: its own errors, and wrong usage
                raise RuntimeError((folder / "log").read_text())
            return code in (0, 5)  # 5: there are no such tests
        time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--part", default="0/1", help="I/N: every N-th from the I-th")
    arguments = parser.parse_args()
    # As conftest.py sets them, before TensorFlow is imported.
    os.environ |= {
        "KERAS_BACKEND": "tensorflow",
        "MPLBACKEND": "agg",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TF_NUM_INTRAOP_THREADS": "1",
        "TF_NUM_INTEROP_THREADS": "2",
        "XLA_FLAGS": "--xla_backend_optimization_level=0 "
        "--xla_llvm_disable_expensive_passes=true",
    }
    sys.dont_write_bytecode = True
    for name in ("keras_hub", "tensorflow_text", "sacrebleu"):
        importlib.import_module(name)  # once for all forks

    first, step = map(int, arguments.part.split("/"))
    counts = collections.defaultdict(collections.Counter)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "copy")
        ignored = shutil.ignore_patterns(".*", "__pycache__", "build", "runs")
        shutil.copytree(ROOT, folder, ignore=ignored)
        for room, path, place in draw(arguments.count, arguments.seed)[first::step]:
            source = (ROOT / path).read_text("utf-8")
            mutant, description = mutate(source, place)
            (folder / path).write_text(mutant, "utf-8")
            outcome = "make test"
            if survives(folder, room, path, "not slow"):
                outcome = "nothing"
                if arguments.slow and not survives(folder, room, path, "slow"):
                    outcome = "make test-all"
            (folder / path).write_text(source, "utf-8")
            counts[room][outcome] += 1
            print(f"{outcome:13} {path}:{description}", flush=True)
    print("\n| part | mutants | `make test` | only `make test-all` | neither |")
    print("| --- | --: | --: | --: | --: |")
    for room, found in counts.items():
        noticed = (found[x] for x in ("make test", "make test-all", "nothing"))
        print(f"| `{room}` | {found.total()} | {' | '.join(map(str, noticed))} |")


if __name__ == "__main__":
    main()
