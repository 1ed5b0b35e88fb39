import shutil

import numpy as np
import pytest
from small_corpus import write_corpus, write_lines

from keras_transformer.runs import Run


@pytest.fixture
def copy(trained, tmp_path):
    shutil.copytree(trained.folder, tmp_path / "copy")
    return Run(tmp_path / "copy")


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_run_holds_all_that_made_it(trained):
    names = {path.name for path in trained.folder.iterdir()}
    wanted = "settings.yaml tokenizers checkpoints log.csv tensorboard translator"
    assert names == set(wanted.split())


def test_its_settings_are_those_that_it_was_trained_with(trained, load):
    assert trained.recipe() == load(**{"training.epochs": 3})


def test_its_translator_translates(trained):
    assert len(trained.translator().translate(["ba ko li", "mu"])) == 2


@pytest.mark.parametrize("last", [1, 2, 7])
def test_the_translator_is_the_mean_of_the_last_checkpoints(copy, last):
    checkpoints = copy.checkpoints()
    paths = checkpoints.paths()[-last:]
    assert copy.average(last) == paths
    models = [checkpoints.load(path).get_weights() for path in paths]
    means = [np.mean(weights, axis=0) for weights in zip(*models, strict=True)]
    for weight, mean in zip(copy.translator().model.get_weights(), means, strict=True):
        np.testing.assert_allclose(weight, mean, rtol=1e-6, atol=1e-7)


def test_a_damaged_checkpoint_is_left_out_of_the_mean(copy):
    *whole, damaged = copy.checkpoints().paths()
    damaged.write_bytes(damaged.read_bytes()[:1000])
    with pytest.warns(UserWarning, match="epoch-0003.keras: skipped"):
        assert copy.average(2) == whole


def test_without_a_checkpoint_there_is_nothing_to_average(copy):
    shutil.rmtree(copy.folder / "checkpoints")
    with pytest.raises(FileNotFoundError, match="no whole checkpoint. Train first"):
        copy.average(2)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("training.seed", 7, "training.seed was 1 and is 7"),
        ("tokenizer.vocabulary_size", 31, "vocabulary_size was 29 and is 31"),
        ("data.target", "cc", "data.target was bb and is cc"),
    ],
)
def test_a_run_of_other_settings_stays_as_it_is(copy, load, name, value, message):
    before = contents(copy.folder)
    with pytest.raises(ValueError, match=f"holds another model: .*{message}.*another"):
        copy.begin(load(**{name: value}))
    assert contents(copy.folder) == before


def test_a_run_of_other_text_stays_as_it_is(copy, load, tmp_path):
    write_corpus(tmp_path)
    write_lines(tmp_path / "train.aa", ["ba ko"] * 53)
    with pytest.raises(ValueError, match="its training text was crc32:"):
        copy.begin(load(**{"data.folder": str(tmp_path)}))


def test_text_that_only_moved_is_the_same(copy, load, tmp_path):
    write_corpus(tmp_path)
    copy.begin(load(**{"data.folder": str(tmp_path)}))
    assert copy.recipe().data.folder == str(tmp_path)


def test_a_folder_of_other_things_stays_as_it_is(tmp_path, load):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(ValueError, match="something else than a run. Name a new"):
        Run(tmp_path).begin(load())
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_is_no_run(tmp_path, load):
    (tmp_path / "file").write_text("precious")
    with pytest.raises(ValueError, match="something else than a run"):
        Run(tmp_path / "file").begin(load())


def test_before_anything_is_learnt_settings_may_change(tmp_path, load):
    run = Run(tmp_path / "run")
    run.begin(load())
    run.tokenizers()
    run.begin(load(**{"tokenizer.vocabulary_size": 31, "tokenizer.shared": False}))
    source, target = run.tokenizers()
    assert source.vocabulary_size == target.vocabulary_size == 31
    assert source.model_proto != target.model_proto


def test_a_missing_file_makes_no_folder(tmp_path, load):
    with pytest.raises(FileNotFoundError):
        Run(tmp_path / "run").begin(load(**{"data.train.source": "none"}))
    assert not (tmp_path / "run").exists()


def test_a_folder_without_a_run_is_told(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no run: there is no settings"):
        Run(tmp_path).recipe()


def test_a_run_without_a_translator_says_how_to_get_one(copy):
    shutil.rmtree(copy.translator_path)
    with pytest.raises(FileNotFoundError, match="no translator yet. Train to the end"):
        copy.translator()
