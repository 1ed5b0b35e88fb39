"""Training on the probabilities of translators."""

import pytest

import keras_transformer as kt
from keras_transformer.runs import Run, train
from keras_transformer.runs.distillation import copy_tokenizers, read_teacher
from keras_transformer.text import SubwordTokenizer, VocabularyTokenizer

ONE_EPOCH = {"training.epochs": 1, "training.bleu_every": None}


@pytest.fixture
def distilled(trained, load, tmp_path):
    """Function from settings to a run of one epoch that `trained` teaches."""

    def distill(teachers=trained.folder, folder=tmp_path / "distilled", **settings):
        settings = {"training.teachers": str(teachers), **ONE_EPOCH, **settings}
        return train(load(**settings), folder)

    return distill


@pytest.fixture
def of_two_tokenizers(text, tmp_path):
    """Folder of a translator, not trained, with a tokenizer for each language."""
    tokenizers = [
        SubwordTokenizer.train(text / f"train.{language}", vocabulary_size=size)
        for language, size in (("aa", 23), ("cc", 25))
    ]
    model = kt.models.Transformer.from_preset("tiny", 23, target_vocabulary_size=25)
    kt.Translator(model, *tokenizers).save(tmp_path / "teacher")
    return tmp_path / "teacher"


def test_a_model_of_another_size_has_the_tokenizers_of_its_teacher(trained, distilled):
    run = distilled(**{"model.hidden_dim": 12})
    teacher, translator = trained.translator(), run.translator()
    assert translator.source_tokenizer.equals(teacher.source_tokenizer)
    assert translator.model.get_config()["hidden_dim"] == 12
    assert (run.tokenizer_path("shared")).is_file()


def test_special_subwords_are_those_of_the_teacher(distilled, text, tmp_path):
    subwords = SubwordTokenizer.train(text / "train.aa", vocabulary_size=23)
    pieces = subwords.pieces(range(23))
    table = {piece: 22 - index for index, piece in enumerate(pieces)}
    tokenizer = VocabularyTokenizer(subwords.model_proto, table)
    assert (tokenizer.pad_id, tokenizer.end_id) == (22, 19)
    ids = {"pad_id": 22, "start_id": 22, "end_id": 19}
    model = kt.models.Transformer.from_preset("tiny", 23, num_layers=1, **ids)
    kt.Translator(model, tokenizer).save(tmp_path / "teacher")
    settings = {"tokenizer.vocabulary_size": 23, "tokenizer.sampling": 0.0}
    run = distilled(tmp_path / "teacher", **settings)
    config = run.translator().model.get_config()
    assert {name: config[name] for name in ids} == ids


def test_the_teacher_is_learnt_from(distilled, tmp_path):
    """The loss that is shown has the term, times its weight, and that of the labels."""
    settings = {"training.learning_rate": 1e-12, "model.dropout": 0.0}
    settings["tokenizer.sampling"] = 0.0
    losses = []
    for weight in (1.0, 3.0):
        more = {"training.distillation": weight}
        run = distilled(folder=tmp_path / str(weight), **settings, **more)
        losses.append(float(run.log.rows()[0]["loss"]))
    term = (losses[1] - losses[0]) / 2
    assert term > 1.0
    assert losses[0] - term > 1.0


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


def test_what_does_not_agree_is_refused(
    trained, distilled, of_two_tokenizers, tmp_path
):
    with pytest.raises(ValueError, match="that of the teachers, 29, or be left out"):
        distilled(**{"tokenizer.vocabulary_size": 31})
    with pytest.raises(FileNotFoundError, match="nowhere is not a folder"):
        distilled("nowhere")
    with pytest.raises(ValueError, match="`tokenizer.shared` must be false"):
        distilled(of_two_tokenizers, **{"tokenizer.vocabulary_size": 23})
    with pytest.raises(ValueError, match="`tokenizer.split_digits` must be left out"):
        distilled(**{"tokenizer.split_digits": True})
    settings = {"model.pretrained": str(trained.folder)}
    with pytest.raises(ValueError, match="must have the tokenizers of the run"):
        distilled(of_two_tokenizers, tmp_path / "run", **settings)


def test_tokenizers_of_each_language_are_copied_too(load, of_two_tokenizers, tmp_path):
    settings = {"tokenizer.shared": False, "tokenizer.vocabulary_size": 23}
    run = Run(tmp_path / "run")
    recipe = load(**{"training.teachers": str(of_two_tokenizers), **settings})
    copy_tokenizers(recipe, run)
    teacher = kt.Translator.load(of_two_tokenizers)
    for side in ("source", "target"):
        copied = SubwordTokenizer.load(run.tokenizer_path(side))
        assert copied.equals(getattr(teacher, f"{side}_tokenizer"))
