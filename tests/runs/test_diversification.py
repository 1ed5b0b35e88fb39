"""Training text that models of both directions have translated."""

import json
import shutil

import numpy as np
import pytest

from keras_transformer.decoding import GreedySearch, Sampling
from keras_transformer.runs import Run, train
from keras_transformer.runs.diversification import (
    Teacher,
    student_recipe,
    teachers_of,
)
from keras_transformer.runs.text_files import DataSettings, TextFiles

# Models of one epoch write long sentences.
pytestmark = pytest.mark.filterwarnings("ignore:.*longer than max_length")

ONE_EPOCH = {
    "training.epochs": 1,
    "training.bleu_every": None,
    "tokenizer.split_digits": True,
    "diversification": {"epochs": 1, "learning_rate": 1e-12, "dropout": 0.0},
}


def lines_of(path):
    return path.read_text("utf-8").splitlines()


@pytest.fixture(scope="module")
def diversified(load, tmp_path_factory):
    """A run that goes on from its teacher, but changes no weight."""
    return train(load(**ONE_EPOCH), tmp_path_factory.mktemp("diversified") / "run")


@pytest.fixture
def nothing_trains(monkeypatch):
    monkeypatch.setattr(
        "keras_transformer.runs.training.prepare", lambda *_: pytest.fail("trained")
    )


def test_models_of_both_directions_translate_the_training_text(diversified, text):
    folder = diversified.diversification_path
    for name, source, target in (("aa-bb-1", "aa", "bb"), ("bb-aa-1", "bb", "aa")):
        lines = lines_of(text / f"train.{source}")
        teacher = Run(folder / name)
        assert teacher.recipe().data.source == source
        translations = teacher.translator().translate(lines, GreedySearch())
        translations = [" ".join(x.split()) for x in translations]
        expected = [pair for pair in zip(lines, translations, strict=True) if pair[1]]
        sides = (lines_of(folder / f"{name}.{x}") for x in (source, target))
        assert list(zip(*sides, strict=True)) == expected


def test_lines_without_a_translation_are_left_out(trained, load, tmp_path):
    (tmp_path / "train.aa").write_text("ba ko\n\nli\n \n", "utf-8")
    recipe = load(**{"data.folder": str(tmp_path)})
    run = Run(tmp_path / "aa-bb-1")
    shutil.copytree(trained.folder, run.folder)
    teacher = Teacher(recipe, run)
    assert not teacher.has_translated()
    teacher.translate()
    assert teacher.has_translated()
    assert lines_of(tmp_path / "aa-bb-1.aa") == ["ba ko", "li"]
    expected = trained.translator().translate(["ba ko", "li"], GreedySearch())
    assert lines_of(tmp_path / "aa-bb-1.bb") == expected


def test_the_text_is_that_of_both_and_of_the_recipe(diversified, text):
    folder, data = diversified.diversification_path, diversified.recipe().data
    names = folder / "aa-bb-1", folder / "bb-aa-1"
    for side, language in (("source", "aa"), ("target", "bb")):
        made = [name.with_name(f"{name.name}.{language}") for name in names]
        assert data.paths("train", side) == [text / f"train.{language}", *made]


def test_training_goes_on_from_the_first_model_that_is_wanted(diversified):
    teacher = Run(diversified.diversification_path / "aa-bb-1").translator()
    translator = diversified.translator()
    assert translator.model.get_config()["dropout"] == 0
    assert translator.source_tokenizer.equals(teacher.source_tokenizer)
    weights = (x.model.get_weights() for x in (translator, teacher))
    for found, expected in zip(*weights, strict=True):
        np.testing.assert_allclose(found, expected, 0, 1e-9)


def test_every_seed_is_one_more_model_of_each_direction(load, tmp_path):
    recipe = load(**ONE_EPOCH, **{"diversification.seeds": 2, "training.seed": 7})
    run = Run(tmp_path / "run")
    found = teachers_of(recipe, run)
    seeds = [
        (teacher.run.folder.name, teacher.recipe.training.seed) for teacher in found
    ]
    assert seeds == [("aa-bb-7", 7), ("aa-bb-8", 8), ("bb-aa-7", 7), ("bb-aa-8", 8)]
    student = student_recipe(recipe, run)
    assert student.model.pretrained == str(found[0].run.folder)
    paths = [student.data.paths("train", side) for side in ("source", "target")]
    sources, targets = ([path.name for path in side] for side in paths)
    names = "train", "aa-bb-7", "aa-bb-8", "bb-aa-7", "bb-aa-8"
    assert sources == [f"{name}.aa" for name in names]
    assert targets == [f"{name}.bb" for name in names]


def test_the_models_that_are_wanted_teach_the_last_one(load, tmp_path):
    settings = {"diversification.seeds": 2, "diversification.distillation": 3.0}
    recipe, run = load(**ONE_EPOCH, **settings), Run(tmp_path / "run")
    student = student_recipe(recipe, run)
    teachers = [x.run.folder for x in teachers_of(recipe, run)[:2]]
    assert [x.name for x in teachers] == ["aa-bb-1", "aa-bb-2"]
    assert student.training.teachers == tuple(map(str, teachers))
    assert student.training.distillation == 3.0
    assert student.model.pretrained == str(teachers[0])
    assert student_recipe(load(**ONE_EPOCH), run).training.teachers == ()


def test_a_last_model_of_another_size_begins_anew(diversified, load, tmp_path):
    folder = tmp_path / "run" / "diversification"
    shutil.copytree(diversified.diversification_path, folder)
    settings = {
        "diversification.hidden_dim": 12,
        "diversification.intermediate_dim": 13,
        "diversification.distillation": 4.0,
    }
    run = train(load(**ONE_EPOCH, **settings), tmp_path / "run")
    config = run.translator().model.get_config()
    assert (config["hidden_dim"], config["intermediate_dim"]) == (12, 13)
    assert not run.pretrained_path.exists()
    teacher = Run(folder / "aa-bb-1")
    assert teacher.translator().model.get_config()["hidden_dim"] == 8
    assert run.tokenizers()[0].equals(teacher.tokenizers()[0])
    [row] = run.log.rows()
    [plain] = diversified.log.rows()
    assert float(row["loss"]) > 2 * float(plain["loss"])


def test_further_translations_are_sampled(trained, load, tmp_path):
    sources = [f"ba ko {x}" for x in ("li", "mu", "ta", "so", "ne", "pi")]
    (tmp_path / "train.aa").write_text("\n".join(sources) + "\n", "utf-8")
    recipe = load(**{"data.folder": str(tmp_path)})
    run = Run(tmp_path / "aa-bb-1")
    shutil.copytree(trained.folder, run.folder)
    Teacher(recipe, run).translate()
    teacher = Teacher(recipe, run, translations=3)
    assert not teacher.has_translated()
    greedy = tmp_path / "aa-bb-1.bb"
    greedy.write_text(greedy.read_text("utf-8") + "kept\n", "utf-8")
    teacher.translate()
    assert teacher.has_translated()
    assert lines_of(greedy)[-1] == "kept"
    translator = trained.translator()
    for number in (2, 3):
        sampled = translator.translate(sources, Sampling(0.5, seed=number - 1))
        sampled = [" ".join(x.split()) for x in sampled]
        pairs = [pair for pair in zip(sources, sampled, strict=True) if pair[1]]
        sides = (lines_of(tmp_path / f"aa-bb-1-{number}.{x}") for x in ("aa", "bb"))
        assert list(zip(*sides, strict=True)) == pairs


def test_every_translation_is_more_training_text(load, tmp_path):
    recipe = load(**ONE_EPOCH, **{"diversification.translations": 2})
    data = student_recipe(recipe, Run(tmp_path / "run")).data
    names = "train", "aa-bb-1", "aa-bb-1-2", "bb-aa-1", "bb-aa-1-2"
    for side, language in (("source", "aa"), ("target", "bb")):
        found = [path.name for path in data.paths("train", side)]
        assert found == [f"{name}.{language}" for name in names]


def test_nothing_that_is_done_is_done_again(diversified, load, tmp_path):
    folder = tmp_path / "run" / "diversification"
    shutil.copytree(diversified.diversification_path, folder)
    (folder / "bb-aa-1.aa").unlink()
    shutil.rmtree(folder / "bb-aa-1" / "translator")  # as if it had been killed
    kept = [folder / "aa-bb-1" / "settings.yaml", folder / "aa-bb-1.bb"]
    kept += (folder / "bb-aa-1" / "checkpoints").iterdir()
    before = [path.stat().st_mtime_ns for path in kept]
    run = train(load(**ONE_EPOCH), tmp_path / "run")
    assert [path.stat().st_mtime_ns for path in kept] == before
    assert len(lines_of(folder / "bb-aa-1.aa")) == len(lines_of(folder / "bb-aa-1.bb"))
    assert len(run.log.rows()) == 1


def test_text_of_a_model_that_was_removed_is_removed_too(
    diversified, load, tmp_path, nothing_trains
):
    run = Run(tmp_path / "run")
    shutil.copytree(diversified.diversification_path, run.diversification_path)
    shutil.rmtree(run.diversification_path / "aa-bb-1")
    with pytest.raises(pytest.fail.Exception, match="trained"):
        train(load(**ONE_EPOCH), run.folder)
    left = {path.name for path in run.diversification_path.iterdir()}
    assert left == {"bb-aa-1", "bb-aa-1.aa", "bb-aa-1.bb"}


def test_the_last_model_is_measured_if_the_others_are(load, tmp_path):
    for every, expected in ((14, 1), (1, 1), (None, None)):
        recipe = load(**ONE_EPOCH | {"training.bleu_every": every})
        training = student_recipe(recipe, Run(tmp_path / "run")).training
        assert training.bleu_every == expected


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"diversification.hidden_dim": 15}, "must divide the width.*15"),
        (
            {"training.rdrop": 5.0, "diversification.distillation": 4.0},
            "`training.rdrop` .* with `diversification.distillation`",
        ),
        ({"model.lora_rank": 2}, "lora_rank` must be left out with `diversification`"),
    ],
)
def test_settings_of_the_last_model_are_checked_before_hours_are_lost(
    load, tmp_path, nothing_trains, settings, message
):
    with pytest.raises(ValueError, match=message):
        train(load(**ONE_EPOCH, **settings), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_finished_run_needs_its_teachers_no_more(diversified, load, tmp_path):
    run = Run(tmp_path / "run")
    shutil.copytree(diversified.folder, run.folder)
    folders = [x for x in run.diversification_path.iterdir() if x.is_dir()]
    assert len(folders) == 2
    for folder in folders:
        shutil.rmtree(folder)
    train(load(**ONE_EPOCH), run.folder)
    assert len(run.log.rows()) == 1
    (run.diversification_path / "bb-aa-1.aa").unlink()
    with pytest.raises(FileNotFoundError, match=r"bb-aa-1\.aa does not exist"):
        train(load(**ONE_EPOCH), run.folder)
    assert not any(folder.exists() for folder in folders)


def test_a_run_may_be_moved(diversified, load, tmp_path):
    moved = Run(tmp_path / "moved")
    shutil.copytree(diversified.folder, moved.folder)
    recipe = moved.recipe()
    *_, last = recipe.data.paths("train", "target")
    assert last == moved.diversification_path / "bb-aa-1.bb"
    assert recipe.model.pretrained == str(moved.diversification_path / "aa-bb-1")
    assert recipe.differences(student_recipe(load(**ONE_EPOCH), moved)) == []


@pytest.mark.parametrize("changes_text", [False, True])
def test_a_teacher_of_something_else_is_found_before_hours_are_lost(
    diversified, load, text, tmp_path, nothing_trains, changes_text
):
    name = "bb-aa-1"
    folder = tmp_path / "run" / "diversification"
    shutil.copytree(diversified.diversification_path / name, folder / name)
    settings = {"training.learning_rate": 0.5}
    difference = "learning_rate was .* is 0.5"
    if changes_text:
        shutil.copytree(text, tmp_path / "text")
        (tmp_path / "text" / "train.aa").write_text("ba ko\n" * 53, "utf-8")
        settings = {"data.folder": str(tmp_path / "text")}
        difference = "its training text was crc32:"
    with pytest.raises(ValueError, match=f"{name} holds another model: .*{difference}"):
        train(load(**ONE_EPOCH, **settings), tmp_path / "run")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model.pretrained": "runs/x"}, r"`model.pretrained` must be left out with"),
        ({"training.teachers": "runs/x"}, r"set `diversification.distillation`"),
        ({"training.strategy": "slurm"}, r"`diversification` must be left out where"),
        ({"data.target": "aa"}, r"must differ with `diversification`.*'aa' twice"),
    ],
)
def test_what_it_cannot_be_combined_with(
    load, tmp_path, nothing_trains, settings, message
):
    with pytest.raises(ValueError, match=message):
        train(load(**ONE_EPOCH, **settings), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_only_several_workers_are_too_many(load, tmp_path, monkeypatch):
    recipe, run = load(**ONE_EPOCH), Run(tmp_path / "run")

    def set_workers(*workers):
        task = {"type": "worker", "index": 0}
        config = {"cluster": {"worker": workers}, "task": task}
        monkeypatch.setenv("TF_CONFIG", json.dumps(config))

    set_workers("localhost:7001")
    assert len(teachers_of(recipe, run)) == 2
    set_workers("localhost:7001", "localhost:7002")
    with pytest.raises(ValueError, match="=auto, TF_CONFIG=.*localhost:7002"):
        teachers_of(recipe, run)


def test_a_folder_of_something_else_is_found_before_hours_are_lost(
    copy, load, tmp_path, nothing_trains
):
    with pytest.raises(ValueError, match=r"holds another model: .*data\.train\.source"):
        train(load(**ONE_EPOCH), copy.folder)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").touch()
    with pytest.raises(ValueError, match="holds something other than a run"):
        train(load(**ONE_EPOCH), tmp_path / "other")


def test_the_files_of_the_other_direction():
    data = DataSettings(
        source="en",
        target="de",
        train=TextFiles(source=("{source}/{target}", "a"), target=("x.{target}", "b")),
        validation=TextFiles(
            source=("v.{source}",), target=("v.{target}",), tokenized=("t.{target}",)
        ),
        test=TextFiles(source=("s",), target=("t",), tokenized=("tokenized",)),
        folder="data",
    )
    other = data.reversed()
    assert (other.source, other.target) == ("de", "en")
    for split in ("train", "validation", "test"):
        assert other.paths(split, "source") == data.paths(split, "target")
        assert other.paths(split, "target") == data.paths(split, "source")
    assert [str(x) for x in other.paths("validation", "tokenized")] == ["data/t.en"]
    assert other.test.tokenized == ()
    assert other.reversed().train == data.train


def test_settings_of_the_recipe_are_those_of_the_teachers(diversified, load):
    teacher = Run(diversified.diversification_path / "bb-aa-1").recipe()
    run, recipe = diversified.recipe(), load(**ONE_EPOCH)
    assert teacher.model == recipe.model
    assert teacher.training == recipe.training
    assert teacher.decoding == recipe.decoding
    assert run.training.learning_rate == 1e-12
    assert run.decoding.average == 3
    assert teacher.diversification is run.diversification is None
