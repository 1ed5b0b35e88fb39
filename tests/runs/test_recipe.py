import os
import typing

import pydantic
import pytest
from small_corpus import SETTINGS, write_recipe

from keras_transformer.models import Transformer
from keras_transformer.models.presets import PRESETS
from keras_transformer.runs.log import MEASURED
from keras_transformer.runs.recipe import Recipe
from keras_transformer.runs.recipe_files import shipped_recipes
from keras_transformer.runs.settings import (
    DecodingSettings,
    ModelSettings,
    TrainingSettings,
)


@pytest.fixture
def path(tmp_path):
    return write_recipe(tmp_path / "small.yaml")


@pytest.mark.parametrize("name", ["demo", "multi30k"])
def test_recipes_come_with_the_package(name):
    assert name in shipped_recipes()
    assert Recipe.load(name).training.epochs > 1


def test_a_file_goes_before_a_shipped_recipe_of_the_same_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_recipe(tmp_path / "demo")
    assert Recipe.load("demo").data.source == SETTINGS["data"]["source"]


def test_what_a_recipe_leaves_out_has_a_default(path):
    recipe = Recipe.load(path)
    assert recipe.training.label_smoothing == TrainingSettings().label_smoothing
    assert recipe.decoding == DecodingSettings(beam_width=2, average=2)


def test_a_recipe_written_out_in_full_reads_the_same(path, tmp_path):
    recipe = Recipe.load(path)
    full = write_recipe(tmp_path / "full.yaml", recipe.model_dump(mode="json"))
    assert Recipe.load(full) == recipe


def test_one_option_changes_the_language_of_every_file(path):
    data = Recipe.load(path, {"data.target": "cc", "data.folder": "text"}).data
    for split, name in (("train", "train.cc"), ("validation", "val.cc")):
        assert [str(p) for p in data.paths(split, "target")] == [f"text/{name}"]
    assert str(data.paths("train", "source")[0]) == "text/train.aa"


def test_a_recipe_may_extend_another(path):
    path.with_name("second.yaml").write_text(
        "extends: small.yaml\ntraining: {seed: 77}\ndata: {train: {source: other}}\n"
    )
    third = path.with_name("third.yaml")
    third.write_text("extends: second.yaml\ndecoding: {average: 1}\n")
    changes = {"training.seed": 77, "data.train.source": "other"}
    assert Recipe.load(path.with_name("second.yaml")) == Recipe.load(path, changes)
    changes["decoding.average"] = 1
    assert Recipe.load(third) == Recipe.load(path, changes)
    changes["training.seed"] = 3
    assert Recipe.load(third, {"training.seed": 3}) == Recipe.load(path, changes)


def test_a_recipe_may_extend_one_that_comes_with_the_package(tmp_path, monkeypatch):
    path = tmp_path / "recipes" / "demo.yaml"
    path.parent.mkdir()
    path.write_text("extends: demo\ntraining: {epochs: 7}\n")
    (tmp_path / "demo").write_text("not beside the recipe\n")
    monkeypatch.chdir(tmp_path)
    recipe = Recipe.load(path)
    monkeypatch.chdir(path.parent)
    assert recipe == Recipe.load("demo", {"training.epochs": 7})


def test_a_pretrained_translator_is_found_beside_the_recipe(
    small_text, tmp_path, monkeypatch
):
    path = tmp_path / "recipes" / "tuned.yaml"
    path.parent.mkdir()
    path.write_text(
        f"extends: {small_text}/small.yaml\nmodel: {{pretrained: ../old}}\n"
    )
    for folder in (tmp_path, path.parent):
        monkeypatch.chdir(folder)
        recipe = Recipe.load(os.path.relpath(path))
        assert recipe.model.pretrained == str(tmp_path / "old")
    for named, found in (("new", str(path.parent / "new")), ("hf://a/b", "hf://a/b")):
        recipe = Recipe.load(path, {"model.pretrained": named})
        assert recipe.model.pretrained == found


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("small.yaml", "small.yaml: `extends` must not lead back to .*small.yaml"),
        ("[demo]", r"small.yaml: `extends` must be one file.*Received: \['demo'\]"),
        ("a.yaml", "small.yaml: .*a.yaml is not a recipe"),
    ],
)
def test_what_cannot_be_extended_is_named(tmp_path, name, message):
    path = tmp_path / "small.yaml"
    path.write_text(f"extends: {name}\n")
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        Recipe.load(path)


def test_a_side_may_be_in_several_files(path):
    recipe = Recipe.load(path, {"data.train.source": ["one.{source}", "two"]})
    names = [str(p) for p in recipe.data.paths("train", "source")]
    assert names == ["one.aa", "two"]


def test_a_pattern_names_files_in_their_order(path, tmp_path):
    for name in ("b.aa", "a.aa", "c.bb"):
        (tmp_path / name).touch()
    settings = {"data.train.source": "*.{source}", "data.folder": str(tmp_path)}
    data = Recipe.load(path, settings).data
    assert [x.path.name for x in data.paths("train", "source")] == ["a.aa", "b.aa"]
    data = Recipe.load(path, settings | {"data.train.target": "*.cc"}).data
    with pytest.raises(FileNotFoundError, match=r"\*\.cc does not exist, which `data"):
        data.check_files("train")


def test_an_epoch_may_hold_several_texts(path):
    texts = [
        {"source": "one.aa", "target": "one.bb", "weight": 3},
        {"source": ["two.aa", "three.aa"], "target": ["two.bb", "three.bb"]},
        {"source": "bt.aa", "target": "bt.bb", "tag": "<bt>", "weight": 2},
    ]
    recipe = Recipe.load(path, {"data.train": texts})
    sides = [recipe.data.paths("train", side) for side in ("source", "target")]
    names = ["one"] * 3 + ["two", "three"] + ["bt"] * 2
    for side, suffix in zip(sides, ("aa", "bb"), strict=True):
        assert [file.path.name for file in side] == [f"{x}.{suffix}" for x in names]
    assert [file.tag for file in sides[0]] == [""] * 5 + ["<bt>"] * 2
    assert {file.tag for file in sides[1]} == {""}
    assert recipe.symbols() == ["<bt>"]
    texts[2] = {**texts[2], "weight": 1}
    [line] = recipe.differences(Recipe.load(path, {"data.train": texts}))
    assert line == "data.train[2].weight was 2 and is 1"
    assert len(recipe.differences(Recipe.load(path, {"data.train": texts[:2]}))) == 4


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "`data.train` .* at least 1 item"),
        ([{"source": "a"}], "`data.train.target` is missing"),
        ({"source": "a", "target": "b", "weight": 0}, "`data.train.weight` must be gr"),
        (
            {"source": "a", "target": "b", "weight": 0.5},
            "`data.train.weight` must be a",
        ),
        ({"source": "a", "target": "b", "tag": "<b t>"}, "`tag` must have no spaces"),
    ],
)
def test_faults_of_texts_are_named(path, texts, message):
    with pytest.raises(ValueError, match=f"small.yaml: {message}"):
        Recipe.load(path, {"data.train": texts})


def test_both_sides_may_be_in_one_table(path):
    recipe = Recipe.load(path, {"data.train": "{source}.csv"})
    assert (
        recipe.data.train[0].source == recipe.data.train[0].target == ("{source}.csv",)
    )
    assert [str(p) for p in recipe.data.paths("train", "target")] == ["aa.csv"]
    with pytest.raises(ValueError, match="must be one .csv, .*Rec.*: 'train'"):
        Recipe.load(path, {"data.train": "train"})
    with pytest.raises(ValueError, match="`data.columns` must name two columns"):
        Recipe.load(path, {"data.columns": ["aa"]})


@pytest.mark.parametrize(
    ("split", "side"), [("test", "target"), ("train", "tokenized")]
)
def test_files_that_a_recipe_does_not_name_are_asked_for(path, split, side):
    recipe = Recipe.load(path, {"data.test": None})
    with pytest.raises(ValueError, match=f"`data.{split}.{side}` must name files"):
        recipe.data.paths(split, side)


@pytest.mark.parametrize(
    ("text", "number"), [("3e-3", 0.003), ("1", 1.0), ("0.5", 0.5), (".5", 0.5)]
)
def test_numbers_may_be_written_in_any_way(path, text, number):
    other = path.with_name("other.yaml")
    other.write_text(
        f"extends: small.yaml\ntraining: {{learning_rate: {text}}}\n", "utf-8"
    )
    rate = Recipe.load(other).training.learning_rate
    assert rate == number
    assert isinstance(rate, float)


def test_words_are_never_true_or_false(path):
    path.with_name("norwegian.yaml").write_text(
        "extends: small.yaml\ndata: {source: on, target: no}\n"
    )
    data = Recipe.load(path.with_name("norwegian.yaml")).data
    assert (data.source, data.target) == ("on", "no")


def choices(section, name):
    """Returns the values that a setting may have, without None."""
    kind = section.model_fields[name].annotation
    kinds = [kind, *typing.get_args(kind)]
    [literal] = [x for x in kinds if typing.get_origin(x) is typing.Literal]
    return typing.get_args(literal)


def test_choices_are_what_the_parts_of_the_package_know():
    assert set(choices(ModelSettings, "preset")) == set(PRESETS)
    assert set(choices(TrainingSettings, "best")) <= set(MEASURED)
    for name in choices(ModelSettings, "positions"):
        assert Transformer.from_preset("tiny", 17, num_layers=1, positions=name)


def test_only_what_is_named_is_an_argument(path):
    assert Recipe.load(path).model.arguments() == {
        name: value for name, value in SETTINGS["model"].items() if name != "preset"
    }


@pytest.mark.quick("activation_dropout-0.2", "positions-rotary")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("attention_dropout", 0.1),
        ("activation_dropout", 0.2),
        ("seed", 0),
        ("positions", "rotary"),
    ],
)
def test_options_are_passed_to_the_model(path, name, value):
    model = Recipe.load(path, {f"model.{name}": value}).model
    assert model.arguments() == Recipe.load(path).model.arguments() | {name: value}
    settings = Transformer.from_preset("tiny", 17, **model.arguments()).settings
    assert settings[name] == value


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("training.epoch", 3, "no setting `training.epoch`. Did you mean .*epochs`"),
        ("speed", 3, "no setting `speed`. There are `data`, `tokenizer`"),
        ("epochs", 3, r"no setting `epochs`. Did you mean `training.epochs`\?"),
        ("source", "en", r"no setting `source`. Did you mean `data.source`\?"),
        ("speed.limit", 3, "no setting `speed`"),
        ("data.train.goal", "x", "no setting `data.train.goal`"),
        ("training.epochs.many", 3, "no setting `training.epochs.many`"),
        ("training.epochs", "many", "must be a valid integer. Received: 'many'.$"),
        ("training.epochs", 2.5, "`training.epochs` must be a valid integer"),
        ("training.epochs", True, "`training.epochs` must be a valid integer"),
        ("training.epochs", 0, "greater than or equal to 1. Received: 0.$"),
        ("training.learning_rate", "fast", "must be a valid number"),
        ("training.learning_rate", float("nan"), "must be a finite number"),
        ("training.learning_rate", float("inf"), "must be a finite number"),
        ("training.learning_rate", 0, "must be greater than 0. Received: 0.$"),
        ("training.label_smoothing", 1, "must be less than 1. Received: 1.$"),
        ("training.seed", 2**32, "than or equal to 4294967295. Received: 4294967296"),
        ("training.optimizer", "sgd", "must be 'adam' or 'muon'. Received: 'sgd'"),
        ("training.precision", None, "must be 'float32', 'mixed_bfloat16' or"),
        ("training.jit_compile", 1, "must be a valid boolean. Received: 1"),
        ("training", 3, "`training` must be a section of settings. Received: 3"),
        ("tokenizer.sampling", 2, "must be less than or equal to 1. Received: 2"),
        ("model.attention_dropout", -0.1, "must be greater than or equal to 0"),
        ("model.seed", 1.5, "`model.seed` must be a valid integer"),
        ("model.preset", "small", "must be 'tiny', 'base' or 'big'. Rec.* 'small'"),
        ("data.target", False, "must be a valid string. Received: False"),
        ("data.train.source", [1], "`data.train.source` must be a valid string"),
        ("data.train.source", 1, "must be text or a list of texts. Received: 1"),
    ],
)
def test_a_wrong_setting_is_named_with_its_file(path, name, value, message):
    with pytest.raises(ValueError, match=f"small.yaml: .*{message}"):
        Recipe.load(path, {name: value})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"training.best": "val_bleu", "training.bleu_every": 3}, "best=val_bleu, .*3"),
        ({"training.best": "val_chrf", "training.bleu_every": None}, "bleu_every=None"),
        ({"training.tokens_per_batch": 13}, "tokens_per_batch=13, max_length=16"),
        (
            {"training.batches_per_update": 4, "training.optimizer": "muon"},
            "optimizer` be adam. Received: batches_per_update=4",
        ),
        ({"training.steps": 9}, "validate_every=None, epochs=2"),
        (
            {
                "training.steps": 9,
                "training.validate_every": 2,
                "training.epochs": None,
            },
            "steps` must be a multiple of .*steps=9, validate_every=2",
        ),
        (
            {"training.validate_every": 101, "training.steps_per_execution": 2},
            "validate_every` must be a multiple of `training.steps_per_execution",
        ),
        ({"model.lora_rank": 2}, "must be left out without `model.pretrained`"),
        ({"model.frozen": "encoder"}, "must be left out without `model.pretrained`"),
    ],
)
def test_settings_that_contradict_each_other_are_named(path, settings, message):
    with pytest.raises(ValueError, match=f"small.yaml: `.*{message}"):
        Recipe.load(path, settings)


def test_every_setting_is_described():
    schema = Recipe.model_json_schema()
    for name, section in schema["$defs"].items():
        for setting in section["properties"].values():
            assert setting["description"], name
        assert not section["additionalProperties"]


def test_settings_may_be_put_into_a_section_that_is_null(tmp_path):
    values = {"data": {**SETTINGS["data"], "test": None}, "training": None}
    path = write_recipe(tmp_path / "small.yaml", values)
    test = {"data.test.source": "s", "data.test.target": "t"}
    recipe = Recipe.load(path, {"training.epochs": 7, **test})
    assert recipe.training.epochs == 7
    assert recipe.data.test.source == ("s",)


def test_a_setting_without_default_must_be_there(tmp_path):
    data = {key: value for key, value in SETTINGS["data"].items() if key != "target"}
    path = write_recipe(tmp_path / "small.yaml", {**SETTINGS, "data": data})
    with pytest.raises(ValueError, match="small.yaml: `data.target` is missing"):
        Recipe.load(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"data: [\n", "small.yaml:2 is not valid YAML"),
        (b"data: {a: b: c}\n", "small.yaml:1 is not valid YAML: .* got ':'.$"),
        (b"data: {a: train.{source}}\n", "small.yaml:1 .* braces in quotes.$"),
        (b"data: [\n raw/{source}]\n", "small.yaml:2 .* braces in quotes.$"),
        (b"\xff\xfe\xfa", "small.yaml is not UTF-8"),
        (b"", "small.yaml must hold settings"),
        (b"- a\n- b\n", "small.yaml must hold settings"),
        (b"a: {b: 1}\nc: 2\na: {d: 3}\n", 'small.yaml:3 .*duplicate key "a"'),
        (b"a: {b: 1, b: 2}\n", 'small.yaml:1 .*duplicate key "b"'),
        (b"1: 2\n", "small.yaml must hold settings"),
    ],
)
def test_invalid_yaml_is_reported_with_its_line(path, text, message):
    path.write_bytes(text)
    with pytest.raises(ValueError, match=message):
        Recipe.load(path)


def test_a_date_that_does_not_exist_is_reported_with_the_file(path):
    path.write_text("data: {folder: 2024-02-30}\n", "utf-8")
    with pytest.raises(ValueError, match="small.yaml is not valid YAML: day is out of"):
        Recipe.load(path)


def test_a_setting_changes_alone_where_two_sections_are_one_in_yaml(path):
    path.write_text(
        "data: {source: aa, target: bb, train: &text {source: a, target: b}, "
        "validation: *text}",
        "utf-8",
    )
    data = Recipe.load(path, {"data.train.source": "x"}).data
    assert (data.train[0].source, data.validation.source) == (("x",), ("a",))


def test_an_unknown_recipe_is_reported_with_those_that_exist(tmp_path):
    with pytest.raises(FileNotFoundError, match="not a recipe. Pass.*: demo, multi30k"):
        Recipe.load(tmp_path / "none.yaml")


def test_a_name_that_is_nearly_right_is_answered_with_the_right_one(path):
    with pytest.raises(FileNotFoundError, match=f"Did you mean {path}?"):
        Recipe.load(path.with_suffix(".yml"))
    with pytest.raises(FileNotFoundError, match=r"Did you mean multi30k\?"):
        Recipe.load("multi3k")


def test_missing_text_is_reported_with_what_is_there(tmp_path):
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "train.fr.gz").touch()
    data = Recipe.load("multi30k", {"data.folder": str(tmp_path)}).data
    with pytest.raises(FileNotFoundError) as caught:
        data.check_files("train")
    assert str(caught.value) == (
        f"{tmp_path}/raw/train.en.gz does not exist, which `data.train.source` names. "
        f"{tmp_path}/raw holds train.fr.gz. Set the folder of the text with "
        "`data.folder`, which is --data in the shell. Clone "
        "https://github.com/multi30k/dataset and name its folder data/task1."
    )
    (tmp_path / "raw" / "train.fr.gz").unlink()
    (tmp_path / "raw").rmdir()
    tmp_path.rmdir()
    with pytest.raises(FileNotFoundError, match=f"{tmp_path} is missing. Set"):
        data.check_files("train")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("training.epochs", 7),
        ("training.cooldown_epochs", 3),
        ("decoding.average", 1),
        ("decoding.length_penalty", 0.0),
        ("data.folder", "elsewhere"),
        ("data.test.source", "another"),
        ("data.test", None),
        ("data.validation.tokenized", "tok.bb"),
    ],
)
def test_some_settings_may_change_when_a_run_goes_on(path, name, value):
    assert Recipe.load(path).differences(Recipe.load(path, {name: value})) == []


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("training.seed", 7, "training.seed was 1 and is 7"),
        ("model.hidden_dim", 12, "model.hidden_dim was 8 and is 12"),
        ("data.target", "cc", "data.target was bb and is cc"),
    ],
)
def test_others_make_another_run(path, name, value, line):
    assert Recipe.load(path).differences(Recipe.load(path, {name: value})) == [line]


def test_settings_cannot_be_changed_in_place(path):
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        Recipe.load(path).training.epochs = 3
