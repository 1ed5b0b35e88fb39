"""The order of the tests, and the fixtures that several folders share."""

import gc
import os
from pathlib import Path

import pytest

# Programs that tests run in other processes; pytest must not import them.
collect_ignore = [
    "interop/make_fixtures.py",
    "interop/run_transformers.py",
    "interop/run_transformers_beams.py",
    "serving/c_interface.py",
    "serving/fresh_process.py",
]

REPOSITORY = Path(__file__).parents[1]
VARIABLE = "KERAS_TRANSFORMER_MULTI30K"

# These files run first, so that all workers finish at about the same time.
SLOWEST_FILES = [
    "test_training.py",
    "test_saved_model.py",
    "test_runner.py",
    "test_pipeline.py",
    "test_language_model.py",
    "test_translator.py",
    "test_shell.py",
    "test_adam.py",
    "test_older_files.py",
    "test_readme.py",
    "test_transformer.py",
    "test_generation.py",
    "test_distribution.py",
    "test_tutorials.py",
    "test_masked_language_model.py",
    "test_copy_task.py",
    "test_hugging_face.py",
    "test_exports.py",
]


# First, so that the option `-m` sees the marks.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    unknown = mark_other_cases_as_slow(items)
    if unknown and not any("::" in argument for argument in config.args):
        raise pytest.UsageError(f"No case has the id that `quick` names: {unknown}.")
    order = {name: i for i, name in enumerate(SLOWEST_FILES)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))


def mark_other_cases_as_slow(items):
    """Marks the cases of tests as slow that the mark `quick` does not name.

    `@pytest.mark.quick("rotary")` leaves to `make test` the cases with that id, alone
    or among the ids of several parameters: `rotary`, `rotary-mixed_float16`. Of an id
    that is long, its beginning is enough. Returns the names that no case has.
    """
    named: dict = {}  # the names of each test function, and whether a case has it
    for item in items:
        for mark in item.iter_markers("quick"):
            ids, function = f"-{item.callspec.id}-", item.nodeid.partition("[")[0]
            matches = {
                name: f"-{name}-" in ids or (len(name) > 11 and f"-{name}" in ids)
                for name in mark.args
            }
            if not any(matches.values()):
                item.add_marker(pytest.mark.slow)
            for name, is_match in matches.items():
                key = function, name
                named[key] = named.get(key, False) or is_match
    return [key for key, is_found in named.items() if not is_found]


@pytest.fixture(scope="session")
def multi30k():
    """Folder of the Multi30k corpus; skips the test if it is missing."""
    folder = Path(os.environ.get(VARIABLE, REPOSITORY / "../shared/data/multi30k"))
    if not folder.is_dir():
        pytest.skip(f"Multi30k is not in {folder}: set {VARIABLE} to its folder.")
    return folder.resolve()


@pytest.fixture(scope="session")
def made_once(tmp_path_factory):
    """Function from a name and `make` to a folder that one worker alone makes."""
    import fcntl

    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent

    def made_once(name, make):
        made = folder / name
        with open(folder / f"{name}.lock", "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = folder / f"{name}.done"
            if not done.exists():
                make(made)
                done.touch()
        return made

    return made_once


@pytest.fixture(scope="session")
def small_text(made_once):
    """Folder of the corpus and the recipe, small.yaml, of small_corpus.py."""
    from small_corpus import write_corpus, write_recipe

    def write(folder):
        folder.mkdir()
        write_corpus(folder)
        write_recipe(folder / "small.yaml")

    return made_once("small_text", write)


@pytest.fixture(scope="session")
def trained_by_the_shell(made_once, small_text):
    """Folder of a run of three epochs, and what the command printed, in `stdout`."""

    def train(folder):
        from typer.testing import CliRunner

        from keras_transformer.cli import app

        recipe, run = small_text / "small.yaml", folder / "run"
        options = ["--data", small_text, "--run", run, "--epochs", 3]
        result = CliRunner().invoke(app, list(map(str, ["train", recipe, *options])))
        assert result.exit_code == 0, result.stderr
        assert not result.stderr
        (folder / "stdout").write_text(result.stdout)

    return made_once("trained_by_the_shell", train)


@pytest.fixture(scope="session")
def learnt_translator(made_once):
    """Folder of a translator that knows the sentences of tiny_translator.py."""
    from serving.tiny_translator import make_translator

    def learn(folder):
        make_translator(updates=60).save(folder)

    return made_once("learnt_translator", learn)


@pytest.fixture
def few_objects_to_collect():
    """Keras collects all garbage of the process for each layer that it quantizes."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="module")
def two_padded_lengths():
    """Pads the short texts of these tests to lengths of two groups, 16 and 20."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("keras_transformer.translator.batching.MIN_PADDED_LENGTH", 16)
        yield
