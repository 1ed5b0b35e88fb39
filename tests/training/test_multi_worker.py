import json

import numpy as np
import pytest
from worker_processes import outputs, workers

from keras_transformer.training import Workers, pick_strategy

# Run by two workers and by a process alone. Only at its start can a process join the
# others, so all of it is in one program.
PROGRAM = """
import json
import sys

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.models import Transformer
from keras_transformer.text import (
    SubwordTokenizer, parallel_dataset, prepared_dataset,
)
from keras_transformer.training import (
    Adam, Perplexity, StopTogether, TokenAccuracy, TokenCrossentropy, Workers,
    pick_strategy, split_evenly,
)

strategy = pick_strategy()
workers = Workers(strategy)
text, = sys.argv[1:]
tokenizer = SubwordTokenizer.load(f"{text}/tokenizer.model")


def batches(shuffle=True):
    # Batches of 7 rows, so one is filled up. One bucket, for every shape is traced.
    return parallel_dataset(
        f"{text}/train.aa", f"{text}/train.bb", tokenizer, tokenizer,
        tokens_per_batch=112, max_length=16, buckets=[16], shuffle=shuffle, seed=5,
    )


def split(data):
    return split_evenly(data, strategy.num_replicas_in_sync)


def transformer(vocabulary_size):
    return Transformer(
        vocabulary_size, num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=11,
        dropout=0,
    )


def bigrams(vocabulary_size):
    ids = keras.Input((None,), dtype="int32")
    logits = keras.layers.Embedding(vocabulary_size, vocabulary_size)(ids)
    return keras.Model({"target_ids": ids}, logits)


def fit(model, accumulated=1):
    keras.utils.set_random_seed(7)
    with strategy.scope():
        model = model(tokenizer.vocabulary_size)
        model.compile(
            # Adam divides by the size of a gradient: where that is a rounding error, a
            # larger epsilon keeps it one.
            Adam(0.01, epsilon=1e-4, gradient_accumulation_steps=accumulated),
            TokenCrossentropy(0.1), metrics=[TokenAccuracy(), Perplexity()],
            jit_compile=False,
        )
    data = batches()
    count = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, _: data.epoch.assign(epoch)
    )
    history = model.fit(
        split(data), validation_data=split(batches(shuffle=False)), epochs=3,
        shuffle=False, verbose=0, callbacks=[count, StopAtTwo(), StopTogether(workers)],
    ).history
    weights = np.concatenate([weight.ravel() for weight in model.get_weights()])
    return {"history": history, "weights": weights.tolist()}


class StopAtTwo(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if workers.is_chief and epoch == 1:
            self.model.stop_training = True


def error_of_keras_alone():
    if workers.count == 1:
        return None
    ours = type(strategy)
    repaired = ours.reduce
    del ours.reduce
    try:
        fit(bigrams)
        return None
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        ours.reduce = repaired


def own_shards():
    # Three shards: one worker has more pairs than the other.
    return prepared_dataset(
        f"{text}/ids", tokens_per_batch=112, num_shards=workers.count,
        shard_index=workers.index,
    )


def fit_own_shards():
    with strategy.scope():
        model = bigrams(tokenizer.vocabulary_size)
        model.compile(
            Adam(0.0), TokenCrossentropy(), metrics=[TokenAccuracy(), Perplexity()],
            jit_compile=False,
        )
    draw = np.random.default_rng(5)
    model.set_weights([draw.normal(size=w.shape) for w in model.get_weights()])
    data = own_shards()
    count = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, _: data.epoch.assign(epoch)
    )
    history = model.fit(
        workers.own_batches(data), epochs=2, shuffle=False, verbose=0, callbacks=[count]
    ).history
    steps = int(model.optimizer.iterations.numpy())
    model.optimizer.learning_rate = 0.1
    model.fit(workers.own_batches(data), shuffle=False, verbose=0)
    weights = np.concatenate([weight.ravel() for weight in model.get_weights()])
    return {"history": history, "steps": steps, "weights": weights.tolist()}


def own_rows():
    rows = [row for _, labels in own_shards() for row in labels.numpy()]
    return sorted(row[row != 0].tolist() for row in rows if row.any())


def shard():
    data = strategy.experimental_distribute_dataset(split(batches(shuffle=False)))
    return [
        strategy.experimental_local_results(inputs["target_ids"])[0].numpy().tolist()
        for inputs, _ in data
    ]


print(json.dumps({
    "is_chief": workers.is_chief,
    "gathered": workers.gather(7 if workers.is_chief else 5),
    "error_of_keras_alone": error_of_keras_alone(),
    "shard": shard(),
    "transformer": fit(transformer),
    "accumulating": fit(bigrams, accumulated=2),
    "own": fit_own_shards(),
    "own_rows": own_rows(),
}))
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What each of two workers, and a process alone, made of the same program."""
    from small_corpus import write_corpus

    from keras_transformer.text import SubwordTokenizer, prepare

    text = tmp_path_factory.mktemp("text")
    write_corpus(text)
    files = [text / "train.aa", text / "train.bb"]
    tokenizer = SubwordTokenizer.train(files, vocabulary_size=29)
    tokenizer.save(text / "tokenizer.model")
    sizes = {"max_length": 16, "buckets": [16], "num_shards": 3}
    prepare(*files, tokenizer, tokenizer, text / "ids", keep_duplicates=True, **sizes)
    found = []
    for count in (2, 1):
        with workers("-c", PROGRAM, text, count=count) as processes:
            for process, (stdout, stderr) in zip(
                processes, outputs(processes), strict=True
            ):
                assert process.returncode == 0, stderr
                found.append(json.loads(stdout))
    return found


CASES = ["transformer", "accumulating"]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_workers_train_to_equal_weights(results, case):
    chief, other, _ = results
    assert chief[case]["weights"] == other[case]["weights"]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_two_workers_learn_what_one_process_does(results, case):
    chief, _, alone = results
    found, wanted = chief[case]["weights"], alone[case]["weights"]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=3e-6)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_workers_show_what_one_process_does(results, case):
    chief, other, alone = (result[case]["history"] for result in results)
    assert chief == other
    assert chief.keys() == alone.keys()
    assert len(chief) == 6
    for name, values in chief.items():
        np.testing.assert_allclose(values, alone[name], 1e-5, err_msg=name)


@pytest.mark.slow
def test_every_worker_stops_when_the_chief_does(results):
    assert [len(result["transformer"]["history"]["loss"]) for result in results] == [
        2,
        2,
        2,
    ]


@pytest.mark.slow
def test_workers_share_every_batch_without_overlap(results):
    chief, other, alone = (result["shard"] for result in results)
    assert len(chief) == len(other) == len(alone)
    for first, second, batch in zip(chief, other, alone, strict=True):
        assert len(first) == len(second)
        assert first + second == [*batch, [0] * 16]  # a row of padding fills it up


@pytest.mark.slow
def test_workers_with_shards_of_their_own_see_every_pair_once_an_epoch(results):
    chief, other, alone = results
    assert len(chief["own_rows"]) == 53 - 18 > len(other["own_rows"])
    assert sorted(chief["own_rows"] + other["own_rows"]) == alone["own_rows"]
    # With weights that stay as they are, the metrics tell which tokens they are of.
    for name in ("perplexity", "token_accuracy"):
        found, wanted = (x["own"]["history"][name] for x in (chief, alone))
        np.testing.assert_allclose(found, wanted, 1e-5, err_msg=name)
    # Where the other worker has but padding, the update is finite and the same.
    assert chief["own"] == other["own"]
    assert np.isfinite(chief["own"]["weights"]).all()
    assert chief["own"]["steps"] == 2 * -(-(53 - 18) // 3)
    assert alone["own"]["steps"] == 2 * -(-53 // 7)


@pytest.mark.slow
def test_one_worker_is_the_chief_and_all_know_what_each_says(results):
    assert [result["is_chief"] for result in results] == [True, False, True]
    assert [result["gathered"] for result in results] == [[7, 5], [7, 5], [7]]


@pytest.mark.slow
def test_keras_alone_still_fails_with_several_workers(results):
    for result in results[:2]:
        assert result["error_of_keras_alone"], (
            "Keras now trains under `MultiWorkerMirroredStrategy` by itself: delete "
            "`_multi_worker_strategy`, and this test, and let `pick_strategy` return "
            "TensorFlow's strategy."
        )


# Picking


@pytest.mark.slow
def test_without_workers_the_strategy_of_workers_is_refused(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(ValueError, match="`TF_CONFIG` must name the workers. Set it"):
        pick_strategy("multi_worker")


@pytest.mark.slow
@pytest.mark.parametrize("text", ["worker0", "[]", '{"cluster": {"worker": 2}}'])
@pytest.mark.parametrize("name", ["auto", "multi_worker"])
def test_a_tf_config_that_is_none_is_told(monkeypatch, name, text):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(ValueError, match="`TF_CONFIG` must be JSON, such as .* Rec"):
        pick_strategy(name)


@pytest.mark.slow
def test_a_single_worker_needs_no_strategy_of_workers(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["localhost:2222"]}}')
    strategy = pick_strategy("default")
    assert pick_strategy("auto") is strategy
    assert Workers(strategy).is_chief


def test_outside_of_slurm_its_strategy_is_refused(monkeypatch):
    monkeypatch.delenv("SLURM_STEP_NODELIST", raising=False)
    with pytest.raises(ValueError, match="in a job step of Slurm.* with srun"):
        pick_strategy("slurm")


@pytest.mark.slow
def test_the_workers_of_slurm_are_the_tasks_of_its_job_step(monkeypatch):
    from keras_transformer.training.distribution import _slurm_resolver

    variables = {
        "SLURM_STEP_NODELIST": "node[3-4]",
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
        "SLURM_PROCID": "1",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    resolver = _slurm_resolver()
    cluster = resolver.cluster_spec().as_dict()
    assert cluster == {"worker": ["node3:8888", "node4:8888"]}
    assert (resolver.task_type, resolver.task_id) == ("worker", 1)
