"""Breaks the code in many places, one at a time, and counts what the tests notice.

    python tests/mutants.py --count 200 --seed 1

A mutant is the package with one change: another operator, comparison or number, a
condition turned round. The places are drawn at random from the packages `PARTS`. Each
mutant runs the quick tests that pass through the function that it changes, those of
its own module first; the first failure kills it. A first run notes which tests pass
through which functions, and keeps that in build/functions. With `--slow`, mutants
that survive run the slow tests of their part too. Prints a line for each mutant, and a
table for CONTRIBUTING.md.

Needs Linux: each mutant runs in a fork of one process that has imported TensorFlow.
"""

import argparse
import ast
import collections
import importlib
import itertools
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import traceback
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = "keras_transformer"
PARTS = ["layers", "decoding", "training", "text"]
SECONDS = 120  # a test that takes longer does not end, and has noticed the mutant
OTHERS = 100  # tests of other modules that a mutant meets
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
    """Returns `(part, path, place)` of `count` mutants, as many from every part."""
    found = collections.defaultdict(list)
    for part in PARTS:
        for path in sorted((ROOT / PACKAGE / part).rglob("*.py")):
            number = len(list(places(ast.parse(path.read_text("utf-8")))))
            where = path.relative_to(ROOT)
            found[part] += [(part, where, place) for place in range(number)]
    generator = random.Random(seed)
    each = count // len(PARTS)
    return [one for part in PARTS for one in generator.sample(found[part], each)]


def passes(folder, options, *plugins, limit=SECONDS):
    """Runs tests in a fork; tells whether all passed, each within so many seconds."""
    child = os.fork()
    if not child:
        code = 3
        try:
            log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.chdir(folder)
            sys.path.insert(0, str(folder))
            options = ["-x", "-q", "-p", "no:cacheprovider", *options]
            code = int(pytest.main(options, plugins=[TimeLimit(limit), *plugins]))
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == 3:  # an error of pytest itself
        raise RuntimeError((folder / "log").read_text())
    # 5: there are no such tests; 4: a module of tests, or conftest.py, cannot be read
    return code in (0, 5)


class TimeLimit:
    """Ends the process of a test that does not end."""

    def __init__(self, seconds):
        self.seconds = seconds

    def pytest_runtest_setup(self):
        signal.alarm(self.seconds)


class Recorder:
    """Notes the functions of the package that each test passes through."""

    def __init__(self, folder):
        self.folder, self.seen, self.shared, self.found = folder, set(), set(), {}

    def trace(self, frame, event, argument):
        self.seen.add(frame.f_code)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        self.seen = set()
        sys.settrace(self.trace)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            self.found[item.nodeid] = self.seen

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef):
        before, self.seen = self.seen, set()
        try:
            return (yield)
        finally:
            if fixturedef.scope != "function":  # serves the tests that follow, too
                self.shared |= self.seen
            self.seen |= before

    def pytest_sessionfinish(self):
        tests = {}
        for test, codes in self.found.items():
            for code in codes | self.shared:
                path = Path(code.co_filename)
                if path.is_relative_to(self.folder / PACKAGE):
                    where = f"{path.relative_to(self.folder)}:{code.co_firstlineno}"
                    tests.setdefault(where, []).append(test)
        (self.folder / "functions.json").write_text(json.dumps(tests))


def traced(folder, path):
    """Returns the tests of a file by the functions that they pass through.

    What is found is kept in build/functions until the file of tests changes. A file
    of tests that fails is tried once more: on busy cores, a slow test meets its limit.
    A file that fails twice is named and left out.
    """
    kept = ROOT / "build/functions" / path.with_suffix(".json")
    if not kept.exists() or kept.stat().st_mtime < (ROOT / path).stat().st_mtime:
        options = ["-m", "not slow", str(folder / path)]
        recorder = Recorder(folder)
        if not any(passes(folder, options, recorder, limit=600) for _ in range(2)):
            print(f"left out      {path}: it fails unchanged", flush=True)
            return {}
        kept.parent.mkdir(parents=True, exist_ok=True)
        whole = kept.with_suffix(f".{os.getpid()}")
        shutil.move(folder / "functions.json", whole)
        whole.replace(kept)
        print(f"traced        {path}", flush=True)
    return json.loads(kept.read_text())


def tests_of_functions(folder, first, step):
    """Returns the tests that pass through each function, `"path:line"`.

    Every `step`-th file is traced first, from the `first`-th; then, from the last on,
    those that no process that runs beside this one has traced meanwhile.
    """
    files = sorted(x.relative_to(ROOT) for x in (ROOT / "tests").rglob("test_*.py"))
    tests = collections.defaultdict(list)
    own = files[first::step]
    for path in own + [x for x in reversed(files) if x not in own]:
        for function, names in traced(folder, path).items():
            tests[function] += names
    return tests


def left_out(folder, names):
    """Returns what the copy of a folder does without."""
    of_root = {"build", "runs"} if Path(folder) == ROOT else set()
    hidden = {x for x in names if x[0] == "."} - {".github"}  # a test reads that
    return hidden | {"__pycache__"} | of_root


def write(path, source):
    """Writes a module, dated so that Python sees that what it compiled is outdated."""
    date = path.stat().st_mtime + 2
    path.write_text(source, "utf-8")
    os.utime(path, (date, date))


def tests_through(tests, path, line):
    """Returns tests that pass through the function of a line.

    These are all of the module's own, then those `OTHERS` of the others that pass
    through the fewest functions, and so take the least time. Where none is known to
    (code at import; what TensorFlow converts before it runs it), they are among those
    that pass through any function of the file.
    """
    of_file = {k: v for k, v in tests.items() if k.startswith(f"{path}:")}
    found = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.lineno <= line <= node.end_lineno:
            # Code objects begin with the decorators. The innermost function is last.
            first = min(x.lineno for x in [node, *node.decorator_list])
            found = set(of_file.get(f"{path}:{first}", found))
    found = found or {test for names in of_file.values() for test in names}
    num_functions = collections.Counter(itertools.chain.from_iterable(tests.values()))
    smallest_first = sorted(found, key=lambda test: (num_functions[test], test))
    own = [test for test in smallest_first if f"/test_{path.stem}.py::" in test]
    others = [test for test in smallest_first if test not in own]
    return own + others[:OTHERS]


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
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TF_NUM_INTRAOP_THREADS": "1",
        "TF_NUM_INTEROP_THREADS": "2",
        "XLA_FLAGS": "--xla_backend_optimization_level=0 "
        "--xla_llvm_disable_expensive_passes=true",
    }
    for name in ("keras_hub", "tensorflow_text", "sacrebleu"):
        importlib.import_module(name)  # once for all forks

    first, step = map(int, arguments.part.split("/"))
    counts = collections.defaultdict(collections.Counter)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "copy")
        shutil.copytree(ROOT, folder, ignore=left_out)
        tests = tests_of_functions(folder, first, step)
        for part, path, place in draw(arguments.count, arguments.seed)[first::step]:
            source = (ROOT / path).read_text("utf-8")
            mutant, description = mutate(source, place)
            write(folder / path, mutant)
            outcome = "make test"
            line = int(description.partition(":")[0])
            through = tests_through(tests, path, line)
            if not through or passes(folder, ["-m", "not slow", *through]):
                outcome = "nothing"
                slow = ["-m", "slow", f"tests/{part}"]
                if arguments.slow and not passes(folder, slow):
                    outcome = "make test-all"
            write(folder / path, source)
            counts[part][outcome] += 1
            print(f"{outcome:13} {path}:{description}", flush=True)
    print("\n| part | mutants | `make test` | only `make test-all` | neither |")
    print("| --- | --: | --: | --: | --: |")
    for part, found in counts.items():
        noticed = (found[x] for x in ("make test", "make test-all", "nothing"))
        print(f"| `{part}` | {found.total()} | {' | '.join(map(str, noticed))} |")


if __name__ == "__main__":
    main()
