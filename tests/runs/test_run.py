import json
import shutil

import pytest
from interop.random_translator import make_translator

from keras_transformer.decoding import BannedIds, BeamSearch, PowerLengthPenalty
from keras_transformer.runs import Run
from keras_transformer.runs.recipe import settings_of
from keras_transformer.runs.settings import TextSize


def test_a_run_holds_all_that_made_it(trained):
    names = {path.name for path in trained.folder.iterdir()}
    wanted = "settings.yaml run.json tokenizers checkpoints log.csv tensorboard "
    # Others may have translated by it, which exports it.
    assert names - {".lock", "ctranslate2"} == set((wanted + "translator").split())


def test_its_settings_are_those_that_it_was_trained_with(trained, load):
    recipe = load(**{"training.epochs": 3})
    assert trained.settings == settings_of(recipe, TextSize(53, 424, 20))


def test_its_translator_translates(trained):
    assert len(trained.translator().translate(["ba ko li", "mu"])) == 2


def test_a_folder_without_a_run_is_reported(tmp_path):
    with pytest.raises(FileNotFoundError, match="is not a run: it has no settings"):
        _ = Run(tmp_path).settings
    with pytest.raises(FileNotFoundError, match="is not a run: it has no settings"):
        Run(tmp_path).translator()


def test_a_run_without_a_translator_says_how_to_get_one(copy):
    shutil.rmtree(copy.translator_path)
    average = f"3 checkpoints: keras-transformer average {copy.folder}$"
    with pytest.raises(FileNotFoundError, match=f"no translator yet. Fin.*{average}"):
        copy.translator()
    shutil.rmtree(copy.folder / "checkpoints")
    with pytest.raises(FileNotFoundError, match=r"with the command that began it\.$"):
        copy.translator()


def test_a_record_of_a_later_version_or_a_damaged_one_is_named(copy):
    values = json.loads(copy.record_path.read_text())
    values["versions"]["keras-transformer"] = "7.0"
    copy.record_path.write_text(json.dumps({**values, "hope": 1}))
    with pytest.raises(ValueError, match=r"was written by version 7.0 of .*this is"):
        Run(copy.folder).check_kind("training")
    copy.record_path.write_text(json.dumps(values)[:-7])
    with pytest.raises(ValueError, match=r"run.json is damaged: "):
        Run(copy.folder).check_kind("training")


def test_reading_the_tokenizers_trains_none(copy):
    shutil.rmtree(copy.folder / "checkpoints")
    shutil.rmtree(copy.translator_path)
    shutil.rmtree(copy.tokenizers_path)
    with pytest.raises(FileNotFoundError, match="shared.model"):
        copy.tokenizers()
    assert not copy.tokenizers_path.exists()


def test_settings_keep_the_limits_and_ends_of_a_pretrained_search(tmp_path):
    run, translator = Run(tmp_path), make_translator()
    translator.search = BeamSearch(
        3,
        PowerLengthPenalty(0.8),
        processors=[BannedIds([7])],
        end_ids=[3, 5],
    )
    translator.save(run.pretrained_path)

    def searched(**settings):
        run.settings_path.write_text(json.dumps({"decoding": settings}))
        return run.search()

    assert repr(searched()) == repr(translator.search)
    for settings in ({"beam_width": 1}, {"beam_width": 2}, {"length_penalty": 1.5}):
        search = searched(**settings)
        for name in ("processors", "end_ids"):
            assert repr(getattr(search, name)) == repr(getattr(translator.search, name))
    assert repr(search.length_penalty) == repr(PowerLengthPenalty(1.5))
    assert repr(searched(beam_width=2).length_penalty) == repr(PowerLengthPenalty(0.8))
