"""Programs in separate processes, forked after TensorFlow's import.

Importing TensorFlow takes many seconds in a new process, and none in a fork.
"""

import multiprocessing
import os
import runpy
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["tensorflow", "tensorflow_text", "matplotlib.pyplot", "keras_transformer.runs"]
)


def run_program(program, *arguments, cwd=None, **variables):
    """Runs a program like `python program arguments`.

    Args:
        program: Path of a file, or lines of source code.
        arguments: Its arguments, in `sys.argv`.
        cwd: Folder to run it in.
        variables: Environment variables, in addition to those of this process.

    Returns:
        As `subprocess.run`: `returncode`, and `stdout` and `stderr` as text.
    """
    with tempfile.TemporaryDirectory() as folder:
        if "\n" in str(program):
            path = Path(folder, "program.py")
            path.write_text(program, "utf-8")
            program = path
        files = [Path(folder, name) for name in ("stdout", "stderr")]
        argv = list(map(str, (program, *arguments)))
        process = CONTEXT.Process(target=_run, args=(argv, files, cwd, variables))
        process.start()
        process.join()
        stdout, stderr = (file.read_text("utf-8") for file in files)
    return SimpleNamespace(returncode=process.exitcode, stdout=stdout, stderr=stderr)


def _run(argv, files, cwd, variables):
    for number, file in enumerate(files, start=1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
    os.environ.update(variables)
    if cwd is not None:
        os.chdir(cwd)
    sys.argv = argv
    runpy.run_path(argv[0], run_name="__main__")
