"""The examples in README.md and docs/ run, and their links and options exist."""

import ast
import inspect
import operator
import re
import shlex
from pathlib import Path

import pytest
import typer
from forked import run_program
from typer.testing import CliRunner

import keras_transformer as kt
from keras_transformer.cli import app

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [
    README,
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "saved_models" / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "benchmarks" / "RESULTS.md",
    ROOT / "benchmarks" / "QUALITY.md",
]
# Options of other programs, named in text.
FOREIGN_OPTIONS = {"--auto_config", "--gpus", "--mixed_precision", "--model_type"}
FOREIGN_OPTIONS |= {  # of TensorFlow Serving
    "--allow_version_labels_for_unavailable_models",
    "--enable_batching",
    "--enable_grpc_healthcheck_service",
    "--model_config_file",
    "--model_config_file_poll_wait_seconds",
    "--monitoring_config_file",
}
# Pages whose blocks are one program. (`py` marks what is not run: the code of other
# libraries, and what needs a download or a training.)
RUN_PAGES = [
    "layers.md",
    "constraints.md",
    "alignments.md",
    "keras.md",
    "many_gpus.md",
    "migrating/keras_hub.md",
    "migrating/opennmt_tf.md",
    "migrating/tensorflow_tutorial.md",
    pytest.param("backends.md", marks=pytest.mark.slow),
]
each_page = pytest.mark.parametrize(
    "path", PAGES, ids=lambda path: str(path.relative_to(ROOT))
)


def blocks(path, language):
    """Returns the fenced blocks of a page in one language."""
    pattern = rf"^```{language}\n(.*?)^```$"
    return re.findall(pattern, path.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def commands(path):
    """Yields the arguments of every `keras-transformer` command in a page's blocks.

    Each comes with the text that `echo` pipes into it, or None.
    """
    for block in blocks(path, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            piped = re.match(r'echo "(.*)" \| (.*)', line)
            text, line = piped.groups() if piped else (None, line)
            words = shlex.split(line, comments=True)
            if "keras-transformer" in words:
                yield words[words.index("keras-transformer") + 1 :], text


def parse(arguments):
    """Parses a command line as the shell does, without running the command."""
    command = typer.main.get_command(app)
    context = command.make_context("keras-transformer", list(arguments))
    while isinstance(command, typer.core.TyperGroup):
        name, command, arguments = command.resolve_command(context, arguments)
        context = command.make_context(name, list(arguments), parent=context)


def options(command):
    """Returns the names of all options of a command and of those below it."""
    names = {
        name
        for option in command.params
        for name in (*option.opts, *option.secondary_opts)
    }
    for below in getattr(command, "commands", {}).values():
        names |= options(below)
    return names | {"--help"}


def calls(program):
    """Yields each `kt` function that a program calls, and its keyword arguments."""
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if re.fullmatch(r"kt(\.\w+)+", name):
                yield name, {word.arg for word in node.keywords}


def outside_blocks(path):
    """Returns the text of a page without its fenced blocks."""
    text = path.read_text("utf-8")
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


OF_READERS = {
    "page.html": "<p>August 3, 2024</p>",
    "film.srt": "1\n00:00:01,000 --> 00:00:02,000\nAugust 3, 2024\n",
    "app.po": 'msgid ""\nmsgstr ""\n\nmsgid "Monday"\nmsgstr ""\n',
    "lines.en": "August 3, 2024\n",
    "terms.tsv": "Monday\tMontag\n",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with files of readers, and what the demo leaves: text, a translator."""
    folder = tmp_path_factory.mktemp("readme")
    for name, text in OF_READERS.items():
        (folder / name).write_text(text, "utf-8")
    text = folder / "runs" / "demo-data"
    text.mkdir(parents=True)
    phrases = kt.datasets.locale_phrases("en", "de", train=2000, validation=100)
    for name in ("train", "validation"):
        pairs = getattr(phrases, name)
        for language, lines in (("en", pairs.source), ("de", pairs.target)):
            path = text / f"{name}.{language}"
            path.write_text("\n".join(lines) + "\n", "utf-8")
    tokenizer = kt.text.SubwordTokenizer.train([text / "train.en"], vocabulary_size=500)
    sizes = {"num_layers": 1, "hidden_dim": 8, "num_heads": 2, "intermediate_dim": 16}
    model = kt.models.Transformer(tokenizer.vocabulary_size, **sizes)
    kt.Translator(model, tokenizer).save(folder / "runs" / "demo" / "translator")
    return folder


@pytest.mark.slow
@pytest.mark.needs_tensorflow
def test_the_python_of_the_readme_runs(folder):
    program = "\n".join(blocks(README, "python"))
    done = run_program(program.replace("epochs=10", "epochs=1"), cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "(3, 2)" in done.stdout.split("\n")
    assert Path(folder, "saved_models/dates/1/saved_model.pb").is_file()


@pytest.mark.slow
def test_the_shell_commands_of_the_readme_run(folder, monkeypatch):
    monkeypatch.chdir(folder)
    (demo, _), *others = commands(README)
    assert demo == ["demo"]  # which has its own tests
    for arguments, text in others:
        if arguments[0] == "serve":  # does not end, and has its own tests
            continue
        shorter = [{"5": "1"}.get(argument, argument) for argument in arguments]
        done = CliRunner().invoke(app, shorter, input=text)
        assert done.exit_code == 0, (shorter, done.output)
    assert Path("saved_models/en-de/1/saved_model.pb").is_file()
    assert len(list(Path("german").iterdir())) == 3


@pytest.mark.quick("layers.md", "keras.md", "migrating/opennmt_tf.md")
@pytest.mark.needs_tensorflow
@pytest.mark.parametrize("name", RUN_PAGES)
def test_the_python_of_the_page_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {}
    programs = blocks(ROOT / "docs" / name, "python")
    assert programs
    for program in programs:
        exec(compile(program, name, "exec"), namespace)


def test_the_program_of_the_page_on_training_is_that_of_the_readme():
    first, *_ = blocks(ROOT / "docs" / "training.md", "python")
    imports, program = first.split("\n\n", 1)
    assert program in blocks(README, "python")
    assert imports in README.read_text("utf-8")


@pytest.mark.slow
def test_the_blocks_of_the_page_on_training_run(folder):
    program = "\n".join(blocks(ROOT / "docs" / "training.md", "python"))
    done = run_program(program.replace("epochs=10", "epochs=1"), cwd=folder)
    assert done.returncode == 0, done.stderr


@each_page
def test_every_command_line_is_one_that_the_shell_takes(path):
    for arguments, _ in commands(path):
        parse(arguments)


@each_page
def test_every_option_named_in_text_exists(path):
    named = set(re.findall(r"`(--[a-z_-]+)[^`]*`", outside_blocks(path)))
    assert named <= options(typer.main.get_command(app)) | FOREIGN_OPTIONS


@each_page
def test_the_functions_that_examples_call_take_their_arguments(path):
    for block in blocks(path, "python"):
        for name, given in calls(block):
            function = operator.attrgetter(name.removeprefix("kt."))(kt)
            taken = inspect.signature(function).parameters
            kinds = {parameter.kind for parameter in taken.values()}
            assert inspect.Parameter.VAR_KEYWORD in kinds or given <= set(taken), name


@each_page
def test_every_link_leads_to_a_file(path):
    for target in re.findall(r"\]\(([^)#]+)", outside_blocks(path)):
        if not target.startswith("http"):
            assert (path.parent / target).exists(), target


def test_messages_name_sections_of_the_page_on_what_goes_wrong():
    page = (ROOT / "docs" / "when_it_goes_wrong.md").read_text("utf-8")
    named = set()
    for path in (ROOT / "keras_transformer").rglob("*.py"):
        pattern = r'"([^"]+)" in docs/when_it_goes_wrong.md'
        named |= set(re.findall(pattern, path.read_text("utf-8")))
    assert {"The loss is NaN", "Out of memory", "It learns nothing"} < named
    assert "Overfitting" in named
    assert named <= set(re.findall("^## (.+)$", page, re.MULTILINE))


def test_the_readme_is_short():
    assert len(README.read_text("utf-8").splitlines()) <= 150
