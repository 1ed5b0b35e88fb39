import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorboard.compat.proto import event_pb2

import keras_transformer as kt
from keras_transformer.runs import Run, train
from keras_transformer.runs.recipe import settings_of
from keras_transformer.runs.run import Finished, New, Resumable
from keras_transformer.runs.settings import TextSize
from keras_transformer.runs.training import (
    begun,
    check_precision,
    compiled_model,
    learning_rate,
    optimizer,
    pretrained_model,
    save_average,
    save_best,
)

TRAINED = {"training.epochs": 3}  # as long as the run of `trained`


def last_weights(run):
    checkpoints = run.checkpoints()
    return [v.numpy() for v in checkpoints.load(checkpoints.latest()).variables]


def weights_of(model):
    return {weight.path: np.asarray(weight) for weight in model.weights}


def rows_without_time(run):
    timed = {"seconds": None, "tokens_per_second": None}
    return [{**row, **timed} for row in run.log.rows()]


SIZE = TextSize(53, 424, 20)


# The state


def state_of(run, recipe):
    begun = run.settings if run.has_trained() else None
    return run.state(settings_of(recipe, SIZE, begun))


def test_a_new_run_begins_at_the_start(load, tmp_path):
    state = state_of(Run(tmp_path / "run"), load())
    assert isinstance(state, New)
    assert (state.checkpoint, state.epoch) == (None, 0)
    assert not (tmp_path / "run").exists()


def test_a_run_goes_on_from_its_last_checkpoint(trained, load):
    state = state_of(trained, load(**{"training.epochs": 4}))
    assert isinstance(state, Resumable)
    assert state.checkpoint.name == "epoch-0003.keras"
    assert state.epoch == 3


@pytest.mark.parametrize("epochs", [2, 3])
def test_a_finished_run_is_not_trained_again(trained, load, epochs):
    state = state_of(trained, load(**{"training.epochs": epochs}))
    assert isinstance(state, Finished)


@pytest.mark.parametrize(
    ("losses", "is_finished"), [([3, 1, 2], False), ([1, 2, 2], True), ([1, 2], False)]
)
def test_a_run_that_has_stalled_is_finished(copy, load, losses, is_finished):
    """Epochs that were logged after the last checkpoint do not count."""
    recipe = load(**{"training.epochs": 9, "training.early_stopping": 2})
    copy.log.truncate(0)
    for epoch, loss in enumerate([*losses, 7, 8], start=1):
        copy.log.add({"epoch": epoch, "val_loss": loss})
    for path in copy.checkpoints().paths()[len(losses) :]:
        path.unlink()
    assert isinstance(state_of(copy, recipe), Finished) == is_finished


def test_without_a_whole_checkpoint_nothing_is_resumed(copy, load):
    for path in copy.checkpoints().paths():
        path.write_bytes(b"")
    with (
        pytest.warns(UserWarning, match="skipped"),
        pytest.raises(ValueError, match="no complete checkpoint to resume from"),
    ):
        state_of(copy, load(**TRAINED))


@pytest.mark.parametrize("kept", [[], ["best.keras"]])
def test_a_run_without_checkpoints_is_not_trained_anew(copy, load, kept):
    for path in (copy.folder / "checkpoints").iterdir():
        if path.name not in kept:
            path.unlink()
    if kept:
        shutil.rmtree(copy.translator_path)
    with pytest.raises(ValueError, match="no complete checkpoint to resume from"):
        state_of(copy, load(**TRAINED))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"data.train.source": "none"}, "none does not exist, which `data.train.sou"),
        ({"data.validation.target": "none"}, "which `data.validation.target` names"),
    ],
)
def test_a_missing_file_is_named_before_anything_is_written(
    load, tmp_path, settings, message
):
    with pytest.raises(FileNotFoundError, match=message):
        train(load(**settings), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_learning_rate_rises_falls_and_cools_down(load):
    settings = load(
        **{
            "training.epochs": 5,
            "training.cooldown_epochs": 2,
            "training.warmup_steps": 7,
            "training.learning_rate": 0.25,
        }
    ).training
    schedule = learning_rate(settings, steps_per_epoch=11)
    rates = [float(schedule(step)) for step in range(56)]
    assert max(rates) == rates[6] == pytest.approx(0.25)
    assert rates[:7] == sorted(rates[:7])
    assert rates[33] == pytest.approx(0.25 * (7 / 34) ** 0.5)
    assert rates[44] == pytest.approx(0.25 * (7 / 45) ** 0.5 / 2)
    assert rates[55] == 0


def test_a_cooldown_is_no_longer_than_the_training(load):
    settings = {"training.epochs": 1, "training.cooldown_epochs": 3}
    schedule = learning_rate(load(**settings).training, steps_per_epoch=11)
    assert (schedule.start, schedule.steps) == (0, 11)


@pytest.mark.parametrize("name", ["adam", "muon"])
def test_the_weights_decay_of_muon_only_matrices(load, name):
    settings = {"training.optimizer": name, "training.weight_decay": 0.5}
    made = optimizer(load(**settings).training, lambda: 0.1)
    sizes = {"num_layers": 1, "hidden_dim": 8, "num_heads": 2}
    variables = kt.models.Transformer.from_preset("tiny", 29, **sizes).trainable_weights
    for variable in variables:
        variable.assign(tf.ones(variable.shape))
    made.apply([tf.zeros(x.shape) for x in variables], variables)
    for variable in variables:
        decays = name == "adam" or variable.path.endswith("/kernel")
        np.testing.assert_allclose(variable, 0.95 if decays else 1.0, 1e-6)
    if name == "muon":
        velocities = zip(variables, made.adam_velocities, strict=True)
        by_muon = {x.path for x, velocity in velocities if velocity is None}
        assert by_muon == {x.path for x in variables if x.path.endswith("/kernel")}


@pytest.mark.parametrize("name", ["adam", "muon"])
def test_gradients_are_clipped_where_the_recipe_says_so(load, name):
    settings = {"training.optimizer": name, "training.global_clipnorm": 0.5}
    assert optimizer(load(**settings).training, lambda: 0.1).global_clipnorm == 0.5
    assert optimizer(load().training, lambda: 0.1).global_clipnorm is None


def test_an_update_is_of_as_many_batches_as_the_recipe_says(load):
    settings = {"training.batches_per_update": 2, "training.optimizer": None}
    recipe = load(**settings)
    made = optimizer(settings_of(recipe, SIZE).training, lambda: 0.1)
    variable = keras.Variable([0.0])
    for gradient, expected in [(1.0, 0.0), (3.0, -0.1)]:
        made.apply([tf.constant([gradient])], [variable])
        np.testing.assert_allclose(variable, [expected], rtol=1e-5)


def test_half_precision_is_refused_where_overflows_are_not_seen():
    check_precision("mixed_float16", num_replicas=1)
    check_precision("mixed_bfloat16", num_replicas=2)
    with pytest.raises(
        ValueError, match="mixed_bfloat16 on 2 devices. .* 'mixed_float16'"
    ):
        check_precision("mixed_float16", num_replicas=2)


@pytest.mark.parametrize(("num_replicas", "compiled"), [(1, True), (2, False)])
def test_a_resumed_model_computes_its_steps_as_the_recipe_says(
    copy, load, num_replicas, compiled
):
    how = {"epochs": 4, "steps_per_execution": 2, "jit_compile": True}
    recipe = load(**{f"training.{name}": value for name, value in how.items()})
    schedule = learning_rate(recipe.training, 11)
    with begun(recipe, copy.folder) as state:
        model = compiled_model(state, schedule, num_replicas)
    assert model.steps_per_execution == (2 if compiled else 1)
    assert model.jit_compile == compiled
    steps = int(model.optimizer.iterations)
    assert steps > 3
    rate = float(model.optimizer.learning_rate)
    assert rate == pytest.approx(float(schedule(steps)))


# From a pretrained translator


@pytest.fixture
def started(trained, load, tmp_path):
    """Function from settings to a run that starts from `trained`."""

    def start(**settings):
        recipe = load(**{"model.pretrained": str(trained.folder), **settings})
        with begun(recipe, tmp_path / "tuned") as state:
            return state.run

    return start


def test_a_pretrained_model_has_the_weights_and_the_dropout_of_the_recipe(
    trained, started
):
    model = pretrained_model(started(**{"model.dropout": 0.0}))
    assert model.get_config()["dropout"] == 0
    found, expected = weights_of(model), weights_of(trained.translator().model)
    assert found.keys() == expected.keys()
    for path, weight in expected.items():
        np.testing.assert_array_equal(found[path], weight)


@pytest.mark.slow  # as test_lora.py shows
def test_only_an_adaptation_is_trained(trained, started):
    model = pretrained_model(started(**{"model.lora_rank": 2}))
    assert all("lora_kernel" in x.path for x in model.trainable_weights)
    assert model.trainable_weights
    expected = weights_of(trained.translator().model)
    rest = {x.path for x in model.non_trainable_weights}
    assert rest == expected.keys()


def test_what_is_frozen_must_be_a_layer(started):
    with pytest.raises(ValueError, match=r"such as .*encoder, decoder.*: 'incoder'"):
        pretrained_model(started(**{"model.frozen": "incoder"}))


@pytest.mark.slow
def test_fine_tuning_trains_all_but_what_is_frozen(trained, started, load):
    names = ["embedding", "encoder", "decoder/block_0/self_attention"]
    settings = {"model.frozen": names, "training.epochs": 1}
    run = started(**settings)
    train(load(**{"model.pretrained": str(trained.folder), **settings}), run.folder)
    before, after = (weights_of(x.translator().model) for x in (trained, run))
    prefixes = tuple(f"{name}/" for name in names)
    for path, weight in before.items():
        is_frozen = path.startswith(prefixes)
        assert np.array_equal(weight, after[path]) == is_frozen, path
    after = run.translator().source_tokenizer
    assert after.equals(trained.translator().source_tokenizer)


@pytest.mark.slow
def test_an_adaptation_is_resumed(trained, load, tmp_path):
    settings = {"model.pretrained": str(trained.folder), "model.lora_rank": 2}
    settings["training.learning_rate"] = 0.1
    run = Run(tmp_path / "tuned")
    for epochs in (1, 2):
        train(load(**settings, **{"training.epochs": epochs}), run.folder)
    # The mean of two adaptations is merged into the kernels that they adapt.
    before, after = (weights_of(x.translator().model) for x in (trained, run))
    assert before.keys() == after.keys()
    changed = {path for path in before if not np.array_equal(before[path], after[path])}
    assert changed
    assert all(path.endswith(("query/kernel", "value/kernel")) for path in changed)
    assert len(run.log.rows()) == 2


@pytest.mark.slow
def test_training_goes_on_to_learn(trained, load, tmp_path):
    one = {"training.epochs": 1}
    tuned = load(**one, **{"model.pretrained": str(trained.folder)})
    (row,) = train(tuned, tmp_path / "tuned").log.rows()
    (fresh,) = train(load(**one), tmp_path / "fresh").log.rows()
    assert float(row["val_loss"]) < float(fresh["val_loss"])
    assert float(row["val_loss"]) != float(trained.log.rows()[-1]["val_loss"])


@pytest.mark.slow
def test_an_interrupted_training_needs_no_pretrained_translator(copy, load, tmp_path):
    settings, run = {"model.pretrained": str(copy.folder)}, Run(tmp_path / "tuned")
    train(load(**settings, **{"training.epochs": 1}), run.folder)
    copy.folder.rename(copy.folder.with_name("moved"))
    train(load(**settings, **{"training.epochs": 2}), run.folder)
    assert len(run.log.rows()) == 2


def test_a_pretrained_translator_reads_sources_as_long_as_before(
    trained, load, tmp_path
):
    translator = trained.translator()
    for longest, expected in ((77, 77), (11, 2 * 16)):
        translator.max_source_length = longest
        translator.save(tmp_path / f"of-{longest}")
        recipe = load(**{"model.pretrained": str(tmp_path / f"of-{longest}")})
        with begun(recipe, tmp_path / f"run-{longest}") as (run, *_):
            pass
        assert run.translator_of(translator.model).max_source_length == expected


def test_the_search_is_that_of_the_translator_unless_one_is_named(
    trained, load, tmp_path
):
    translator = trained.translator()
    penalty = kt.decoding.PowerLengthPenalty(0.7)
    forced = kt.decoding.ForcedPrefix([7], is_scored=False)
    translator.search = kt.decoding.BeamSearch(3, penalty, processors=[forced])
    translator.save(tmp_path / "saved")
    settings = {
        "model.pretrained": str(tmp_path / "saved"),
        "decoding.beam_width": None,
    }
    with begun(load(**settings), tmp_path / "run") as (run, *_):
        assert repr(run.search()) == repr(translator.search)
    for beam_width in (2, 4):  # 4 is the default without a pretrained translator
        settings["decoding.beam_width"] = beam_width
        with begun(load(**settings), tmp_path / "run") as (run, *_):
            search = run.search()
        assert search.beam_width == beam_width
        assert repr(search.length_penalty) == repr(penalty)
        assert [repr(x) for x in search.processors] == [repr(forced)]


# What a training leaves


def test_every_epoch_has_a_row_and_a_checkpoint(trained):
    assert [int(row["epoch"]) for row in trained.log.rows()] == [1, 2, 3]
    names = [path.name for path in trained.checkpoints().paths()]
    assert names == ["epoch-0001.keras", "epoch-0002.keras", "epoch-0003.keras"]


def test_the_best_checkpoint_has_the_lowest_loss_of_the_log(trained):
    losses = [float(row["val_loss"]) for row in trained.log.rows()]
    checkpoints = trained.checkpoints()
    best = checkpoints.epoch_of(checkpoints.best_path)
    assert losses[best - 1] == min(losses)


def test_a_row_tells_all_that_was_measured(trained):
    for row in trained.log.rows():
        bleu, chrf = row.pop("val_bleu"), row.pop("val_chrf")
        assert bool(bleu) == bool(chrf) == (row["epoch"] == "2")  # bleu_every is 2
        assert all(np.isfinite(float(value)) for value in row.values())


def test_tensorboard_shows_what_was_measured(trained):
    shown = {"train": set(), "validation": set()}
    for path in (trained.folder / "tensorboard").rglob("events*"):
        for record in tf.data.TFRecordDataset(str(path)):
            event = event_pb2.Event.FromString(record.numpy())
            shown[path.parent.name] |= {value.tag for value in event.summary.value}
    names = "loss", "token_accuracy", "perplexity", "padding"
    measured = {f"epoch_{x}" for x in names}
    names = "learning_rate", "gradient_norm", "tokens_per_second"
    once = {f"epoch_{x}" for x in names}
    assert shown["train"] >= measured | once
    assert shown["validation"] >= measured | {"epoch_bleu", "epoch_chrf"}
    assert not shown["validation"] & once


def test_the_learning_rate_is_logged(trained):
    rates = [float(row["learning_rate"]) for row in trained.log.rows()]
    assert 0 < rates[0] < rates[1] < rates[2] < 1e-3


@pytest.mark.slow
def test_a_training_that_was_cut_off_ends_as_if_it_had_not(trained, copy, load, capsys):
    last = copy.checkpoints().paths()[-1]
    last.write_bytes(last.read_bytes()[:1000])
    (copy.folder / "checkpoints" / "best.keras").unlink()  # as a kill may leave it
    with pytest.warns(UserWarning, match="epoch-0003.keras: skipped"):
        train(load(**TRAINED), copy.folder)
    assert "Resuming after epoch 2 of 3.\n" in capsys.readouterr().out
    assert rows_without_time(copy) == rows_without_time(trained)
    for weight, wanted in zip(last_weights(copy), last_weights(trained), strict=True):
        np.testing.assert_array_equal(weight, wanted)
    best = [run.checkpoints().best() for run in (copy, trained)]
    assert best[0].name == best[1].name == "best.keras"
    assert copy.checkpoints().epoch_of(best[0]) == trained.checkpoints().epoch_of(
        best[1]
    )


def test_a_finished_run_gets_the_best_checkpoint_by_another_metric(copy, load):
    best = {"training.best": "val_bleu"}  # of epoch 2, since bleu_every is 2
    (copy.folder / "checkpoints" / "best.keras").unlink()
    rows = copy.log.rows()
    train(load(**TRAINED, **best), copy.folder)
    assert copy.log.rows() == rows
    checkpoints = copy.checkpoints()
    assert checkpoints.epoch_of(checkpoints.best_path) == 2
    saved = checkpoints.load(checkpoints.best_path).get_weights()
    assert save_best(copy) == checkpoints.best_path
    for translator in (copy.translator(), copy.translator(checkpoints.best_path)):
        weights = translator.model.get_weights()
        for weight, wanted in zip(weights, saved, strict=True):
            np.testing.assert_array_equal(weight, wanted)


@pytest.mark.slow
def test_two_vocabularies_and_a_training_that_ends_without_gain(load, tmp_path):
    recipe = load(
        **{
            "data.target": "cc",
            "tokenizer.shared": False,
            "training.learning_rate": 1e-12,
            "training.early_stopping": 1,
            "training.epochs": 7,
            "training.bleu_every": None,
        }
    )
    run = train(recipe, tmp_path / "run")
    assert len(run.log.rows()) == 2
    config = run.translator().model.get_config()
    assert config["target_vocabulary_size"] == 29
    assert isinstance(state_of(run, recipe), Finished)


@pytest.mark.slow
def test_activations_that_are_computed_again_are_the_same(load, tmp_path):
    ends = []
    for recompute in (False, True):
        settings = {"training.recompute": recompute, "training.bleu_every": None}
        ends.append(train(load(**settings), tmp_path / str(recompute)))
    weights = map(last_weights, ends)
    for found, expected in zip(*weights, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)


# Its translator


def test_without_the_metric_there_is_no_best_translator(copy):
    shutil.rmtree(copy.folder / "checkpoints")
    with pytest.raises(FileNotFoundError, match="no complete checkpoint with val_loss"):
        save_best(copy)


@pytest.mark.quick("1")
@pytest.mark.parametrize("last", [1, 2, 7])
def test_the_translator_is_the_mean_of_the_last_checkpoints(copy, last):
    checkpoints = copy.checkpoints()
    paths = checkpoints.paths()[-last:]
    assert save_average(copy, last) == paths
    models = [checkpoints.load(path).get_weights() for path in paths]
    means = [np.mean(weights, axis=0) for weights in zip(*models, strict=True)]
    for weight, mean in zip(copy.translator().model.get_weights(), means, strict=True):
        np.testing.assert_allclose(weight, mean, rtol=1e-6, atol=1e-7)


@pytest.mark.quick("2")
@pytest.mark.parametrize("damaged", [1, 2])
def test_a_damaged_checkpoint_is_left_out_of_the_mean(copy, damaged):
    whole = copy.checkpoints().paths()
    path = whole.pop(damaged)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.warns(UserWarning, match=f"{path.name}: skipped"):
        assert save_average(copy, 2) == whole


@pytest.mark.parametrize(
    ("losses", "used"), [([3, 1, 2], [1, 2]), ([1, 2, 3], [1]), ([3, 2, 1], [2, 3])]
)
def test_after_early_stopping_later_checkpoints_are_not_averaged(copy, losses, used):
    stopping = copy.settings.replace({"training.early_stopping": 1})
    copy.write(copy.record, stopping)
    copy.log.truncate(0)
    for epoch, loss in enumerate(losses, start=1):
        copy.log.add({"epoch": epoch, "val_loss": loss})
    checkpoints = copy.checkpoints()
    assert [checkpoints.epoch_of(path) for path in save_average(copy, 2)] == used


def test_a_best_checkpoint_that_alone_was_kept_is_the_translator(copy):
    """The last ones are of later epochs, which made it worse."""
    copy.write(copy.record, copy.settings.replace({"training.early_stopping": 2}))
    copy.log.truncate(0)
    for epoch, loss in enumerate([1, 2, 3], start=1):
        copy.log.add({"epoch": epoch, "val_loss": loss})
    checkpoints = copy.checkpoints()
    checkpoints.paths()[0].unlink()
    assert save_average(copy, 2) == [checkpoints.best_path]


def test_without_a_checkpoint_there_is_nothing_to_average(copy):
    shutil.rmtree(copy.folder / "checkpoints")
    with pytest.raises(FileNotFoundError, match="no complete checkpoint. Train first"):
        save_average(copy, 2)
