import csv

import keras
import numpy as np
import pytest

from keras_transformer.evaluation import cased_bleu, chrf
from keras_transformer.training import (
    Adam,
    BleuCallback,
    Checkpoints,
    SaveCheckpoints,
    StopAtNaN,
)

SOURCES = ["A dog runs in the snow.", "A man rides a bike.", "Two girls read."]
REFERENCES = ["Ein Hund rennt im Schnee.", "Ein Mann fährt Rad.", "Zwei Mädchen lesen."]


class Learner:
    """Translates one sentence more each time, and the others not at all."""

    def __init__(self):
        self.known = 0

    def __call__(self, texts):
        assert isinstance(texts, list)
        self.known += 1
        right = dict(zip(SOURCES, REFERENCES, strict=True))
        known = SOURCES[: self.known]
        return [right[text] if text in known else text for text in texts]


def fit(epochs, *callbacks):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    inputs, outputs = np.ones((5, 3)), np.ones((5, 2))
    return model.fit(
        inputs, outputs, epochs=epochs, verbose=0, callbacks=[*callbacks]
    ).history


def when_known(score, *counts):
    return pytest.approx(
        [score(REFERENCES[:n] + SOURCES[n:], REFERENCES)[0] for n in counts]
    )


def test_both_figures_are_in_the_logs_of_every_epoch():
    history = fit(3, BleuCallback(Learner(), SOURCES, REFERENCES))
    assert history["val_bleu"] == when_known(cased_bleu, 1, 2, 3)
    assert history["val_chrf"] == when_known(chrf, 1, 2, 3)
    assert len(history["loss"]) == 3


def test_the_language_chooses_how_bleu_splits_words():
    chinese = ["一名男子骑着自行车在街上。", "两只狗在雪地里玩耍。"]
    worse = [chinese[0].replace("街", "路"), chinese[1]]
    logs = {}
    BleuCallback(lambda _: worse, ["a", "b"], chinese, language="zh").on_epoch_end(
        0, logs
    )
    assert logs["val_bleu"] == cased_bleu(worse, chinese, language="zh")[0] > 70


def test_between_translations_the_logs_have_no_figures():
    seen = []
    names = {"name": "bleu", "chrf_name": "chrf"}
    callback = BleuCallback(Learner(), SOURCES, REFERENCES, every=3, **names)
    look = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: seen.append(logs.keys() & {"bleu", "chrf"})
    )
    history = fit(5, callback, look)
    assert seen == [set(), set(), {"bleu", "chrf"}, set(), set()]
    assert history["bleu"] == when_known(cased_bleu, 1)
    assert history["chrf"] == when_known(chrf, 1)


def test_callbacks_after_it_use_the_figure(tmp_path):
    callback = BleuCallback(Learner(), SOURCES, REFERENCES)
    history = fit(
        17,
        callback,
        keras.callbacks.CSVLogger(tmp_path / "log.csv"),
        keras.callbacks.EarlyStopping("val_bleu", mode="max", patience=2),
    )
    assert len(history["loss"]) == 5  # all are known after three epochs
    with open(tmp_path / "log.csv") as file:
        logged = [float(row["val_bleu"]) for row in csv.DictReader(file)]
    assert logged == pytest.approx(history["val_bleu"])


def test_every_must_be_positive():
    with pytest.raises(ValueError, match="`every` must be a positive integer.*every=0"):
        BleuCallback(Learner(), SOURCES, REFERENCES, every=0)


@pytest.mark.parametrize(("sources", "references"), [(2, 3), (3, 2), (0, 0)])
def test_each_source_needs_a_reference(sources, references):
    message = f"Received: {sources} sources and {references} references"
    with pytest.raises(ValueError, match=message):
        BleuCallback(Learner(), SOURCES[:sources], REFERENCES[:references])


@pytest.mark.quick("inf")
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_loss_that_is_no_number_ends_the_training_with_good_weights(tmp_path, value):
    targets = np.ones((15, 2))
    targets[5:10] = value  # the second batch of five
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    checkpoints = Checkpoints(tmp_path)
    callbacks = [SaveCheckpoints(checkpoints), StopAtNaN()]
    inputs, settings = np.ones((15, 3)), {"shuffle": False, "verbose": 0}
    model.fit(inputs[:5], targets[:5], callbacks=callbacks, **settings)
    with pytest.raises(FloatingPointError, match=r"batch 2 of epoch 2\. The check"):
        model.fit(
            inputs,
            targets,
            batch_size=5,
            initial_epoch=1,
            epochs=5,
            callbacks=callbacks,
            **settings,
        )
    assert [checkpoints.epoch_of(path) for path in checkpoints.paths()] == [1]
    for weight in checkpoints.load(checkpoints.latest()).get_weights():
        assert np.all(np.isfinite(weight))


@pytest.mark.needs_tensorflow
@pytest.mark.parametrize("steps", [1, 5])
def test_under_a_strategy_a_loss_that_is_no_number_is_found_too(steps):
    import tensorflow as tf

    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
        model.compile(Adam(gradient_accumulation_steps=steps), "mse")
    targets = np.ones((9, 2))
    targets[3:6] = np.nan  # the second batch of three
    settings = {"batch_size": 3, "shuffle": False, "verbose": 0}
    with pytest.raises(FloatingPointError, match="nan after batch 2 of epoch 1"):
        model.fit(np.ones((9, 3)), targets, callbacks=[StopAtNaN()], **settings)
