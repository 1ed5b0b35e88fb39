"""Training on the probabilities of translators."""

import pytest

import keras_transformer as kt
from keras_transformer.runs import Run, train
from keras_transformer.runs.distillation import read_teacher

ONE_EPOCH = {"training.epochs": 1, "training.bleu_every": None}


@pytest.fixture
def distilled(trained, load, tmp_path):
    """Function from settings to a run of one epoch that `trained` teaches."""

    def distill(teachers=trained.folder, folder=tmp_path / "distilled", **settings):
        settings = {"training.teachers": str(teachers), **ONE_EPOCH, **settings}
        return train(load(**settings), folder)

    return distill


def test_a_model_of_another_size_has_the_tokenizers_of_its_teacher(trained, distilled):
    run = distilled(**{"model.hidden_dim": 12})
    teacher, translator = trained.translator(), run.translator()
    assert translator.source_tokenizer.equals(teacher.source_tokenizer)
    assert translator.model.get_config()["hidden_dim"] == 12
    assert (run.tokenizer_path("shared")).is_file()


def test_the_teacher_is_learnt_from(distilled, load, tmp_path):
    """The loss that is shown has the term, times its weight."""
    settings = {"training.learning_rate": 1e-12, "model.dropout": 0.0}
    settings["tokenizer.sampling"] = 0.0
    losses = []
    for weight in (1.0, 3.0):
        more = {"training.distillation": weight}
        run = distilled(folder=tmp_path / str(weight), **settings, **more)
        losses.append(float(run.log.rows()[0]["loss"]))
    plain = train(load(**ONE_EPOCH, **settings), tmp_path / "plain")
    loss = float(plain.log.rows()[0]["loss"])
    assert losses[0] - loss > 1.0
    assert losses[1] - loss == pytest.approx(3 * (losses[0] - loss), rel=1e-3)


@pytest.mark.slow
def test_an_interrupted_training_goes_on_with_its_teachers(distilled, tmp_path):
    distilled()
    run = distilled(**{"training.epochs": 2})
    whole = distilled(folder=tmp_path / "whole", **{"training.epochs": 2})
    found, expected = (x.log.rows()[1]["loss"] for x in (run, whole))
    assert float(found) == pytest.approx(float(expected), rel=1e-4)


@pytest.mark.slow
def test_several_teachers_and_ensembles_teach_together(
    trained, distilled, load, tmp_path
):
    translators = [trained.translator(), trained.translator()]
    kt.translator.ensemble(translators).save(tmp_path / "both")
    teachers = [str(tmp_path / "both"), str(trained.folder)]
    recipe = load(**{"training.teachers": teachers, **ONE_EPOCH})
    assert len(read_teacher(recipe, trained.tokenizers()).models) == 3
    # Copies of one model have its probabilities.
    runs = train(recipe, tmp_path / "run"), distilled()
    found, expected = (float(run.log.rows()[0]["loss"]) for run in runs)
    assert found == pytest.approx(expected, rel=1e-4)


def test_what_does_not_agree_is_refused(trained, distilled, load, text, tmp_path):
    with pytest.raises(ValueError, match="that of the teachers, 29, or be left out"):
        distilled(**{"tokenizer.vocabulary_size": 31})
    with pytest.raises(FileNotFoundError, match="nowhere is not a folder"):
        distilled("nowhere")
    capitals = {"data.target": "cc", "tokenizer.vocabulary_size": 41}
    other = train(load(**capitals, **ONE_EPOCH), tmp_path / "cc")
    settings = {"model.pretrained": str(trained.folder)}
    with pytest.raises(ValueError, match="must have the tokenizers of the run. .*cc"):
        distilled(other.folder, tmp_path / "run", **settings)


def test_tokenizers_of_each_language_are_copied_too(load, distilled, tmp_path):
    own = {"tokenizer.shared": False, "tokenizer.vocabulary_size": 23}
    teacher = train(load(**own, **ONE_EPOCH), tmp_path / "teacher")
    with pytest.raises(ValueError, match="`tokenizer.shared` must be false"):
        distilled(teacher.folder, **{"tokenizer.vocabulary_size": 23})
    run = distilled(teacher.folder, tmp_path / "run", **own)
    found = zip(Run(run.folder).tokenizers(), teacher.tokenizers(), strict=True)
    assert all(one.equals(other) for one, other in found)
