"""Models that are split over devices are those of one device."""

import json
import os

import keras
import numpy as np
import pytest
from forked import run_program
from model_cases import CASES, SIZES

import keras_transformer as kt
from keras_transformer.kernels import target
from keras_transformer.models import devices

if target.BACKEND == "torch":
    pytest.skip("Keras has no distribution on PyTorch.", allow_module_level=True)

needs_jax = pytest.mark.skipif(
    target.BACKEND != "jax", reason="Only JAX splits weights over devices."
)
WIDE = {**SIZES, "hidden_dim": 8, "intermediate_dim": 12}
MODELS = [
    *((case[0], case[1]) for case in CASES),
    (
        kt.models.Transformer,
        {
            "source_vocabulary_size": 16,
            "target_vocabulary_size": 20,
            "positions": kt.layers.LearnedPositionalEncoding(max_length=12),
        },
    ),
]


def layout_of(axes=("batch", "model")):
    devices = keras.distribution.list_devices()[:1]
    mesh = keras.distribution.DeviceMesh((1,) * len(axes), list(axes), devices)
    return kt.training.layout_map(mesh)


@pytest.fixture
def parallel():
    """Returns a function that sets a `ModelParallel`, which ends with the test."""

    def set_parallel(layout):
        parallel = keras.distribution.ModelParallel(layout_map=layout)
        keras.distribution.set_distribution(parallel)

    yield set_parallel
    keras.distribution.set_distribution(None)


@pytest.mark.parametrize(
    ("model_class", "settings"), MODELS, ids=[model[0].__name__ for model in MODELS]
)
def test_every_matrix_of_every_model_is_split(model_class, settings):
    model, layout = model_class(**{**settings, **WIDE}), layout_of()
    split = {
        weight.path: layout[weight.path]
        for weight in model.weights
        if len(weight.shape) > 1
    }
    assert [path for path, axes in split.items() if axes is None] == []
    assert all("model" in axes.axes for axes in split.values())
    for weight in model.weights:
        axes = layout[weight.path]
        assert axes is None or len(axes.axes) == len(weight.shape)


def test_a_rule_without_a_weight_is_an_error(parallel):
    model = kt.models.LanguageModel(16, **WIDE)
    model.compile(kt.training.Adam(), kt.training.TokenCrossentropy())
    ids = np.array([[2, 5, 7]])
    layout = layout_of()
    layout["decoder/block_0/feed_forward/widened/kernel"] = ("model", None)
    parallel(layout)
    message = r"Every rule .* Received: 'decoder/.*widened/kernel', which fits none"
    uses = [lambda: model.train_on_batch(ids, ids), lambda: model.generate(ids)]
    for use in uses:
        with pytest.raises(ValueError, match=message):
            use()


def test_a_large_weight_without_a_rule_is_an_error(parallel, monkeypatch):
    model = kt.models.LanguageModel(16, **WIDE)
    layout = layout_of()
    whole = keras.distribution.LayoutMap(layout.device_mesh)
    whole["embedding/embeddings"] = ("model", None)
    parallel(whole)
    devices.check_layout(model)  # all others are small
    monkeypatch.setattr(devices, "LARGE_WEIGHT", 64)
    with pytest.raises(ValueError, match=r"none for 'decoder/block_0/.*query/kernel'"):
        devices.check_layout(model)
    parallel(layout)
    devices.check_layout(model)


def test_a_mesh_without_an_axis_for_the_model_is_an_error():
    with pytest.raises(ValueError, match=r"an axis 'model'.*Received: .*\['batch'\]"):
        layout_of(["batch"])


def test_a_single_device_needs_no_layout():
    with kt.training.all_devices() as num_models:
        assert num_models == 1
        assert keras.distribution.distribution() is None


# JAX makes several devices of one processor only before it starts.
TRAINED = """
import json
import sys

import keras
import numpy as np
from keras.distribution import DataParallel, DeviceMesh, ModelParallel, list_devices

import keras_transformer as kt

SIZES = dict(num_layers=1, hidden_dim=16, num_heads=4, intermediate_dim=24, seed=5)
draw = np.random.default_rng(7)
ids = draw.integers(4, 24, (32, 7)).astype("int32") * (np.arange(7) < 5)
ids[:16] = draw.integers(4, 24, (16, 7))


def transformer():
    inputs = {"source_ids": ids[:, ::-1], "target_ids": np.roll(ids, 1, axis=1)}
    return kt.models.Transformer(24, 40, dropout=0.1, **SIZES), inputs


def language_model():
    model = kt.models.LanguageModel(24, dropout=0.1, positions="rotary", **SIZES)
    return model, np.roll(ids, 1, axis=1)


def train(make, distribution):
    keras.distribution.set_distribution(distribution)
    keras.utils.set_random_seed(7)
    model, inputs = make()
    # Adam divides by the size of a gradient, which may be a rounding error.
    optimizer = kt.training.Adam(
        0.01, epsilon=1e-4, global_clipnorm=0.5, gradient_accumulation_steps=2
    )
    loss = kt.training.TokenCrossentropy(label_smoothing=0.1)
    model.compile(optimizer, loss, metrics=[kt.training.TokenAccuracy()])
    history = model.fit(
        inputs, ids, 16, epochs=2, shuffle=False, verbose=0, validation_split=0.5
    ).history
    whole = kept = 0
    for weight in [*model.weights, *optimizer.variables]:
        if len(weight.shape) > 1:
            whole += weight.value.nbytes
            kept += weight.value.addressable_shards[0].data.nbytes
    searches = kt.decoding.GreedySearch(), kt.decoding.BeamSearch(3)
    found = [model.generate(ids[:7], search, 9) for search in searches]
    return {
        "history": history,
        "weights": [weight.tolist() for weight in model.get_weights()],
        "ids": [x.ids.tolist() for x in found],
        "split": kept / whole,
    }


devices = list_devices()
mesh = DeviceMesh((2, 4), ["batch", "model"], devices)
layout = kt.training.layout_map(mesh)
distributions = {
    "one": None,
    "data": DataParallel(devices=devices),
    "model": ModelParallel(layout_map=layout, batch_dim_name="batch"),
}
make = globals()[sys.argv[1]]
found = {name: train(make, x) for name, x in distributions.items()}
print(json.dumps([len(devices), found]))
"""


@needs_jax
@pytest.mark.parametrize(
    "model",
    ["transformer", pytest.param("language_model", marks=pytest.mark.slow)],
)
def test_eight_devices_learn_and_generate_what_one_does(model):
    flags = [os.environ["XLA_FLAGS"], "--xla_force_host_platform_device_count=8"]
    done = run_program(TRAINED, model, XLA_FLAGS=" ".join(flags))
    assert done.returncode == 0, done.stderr
    num_devices, found = json.loads(done.stdout)
    assert num_devices == 8
    one = found.pop("one")
    for other in found.values():
        for name, values in one["history"].items():
            np.testing.assert_allclose(other["history"][name], values, 1e-5)
        for weights, expected in zip(other["weights"], one["weights"], strict=True):
            np.testing.assert_allclose(weights, expected, 0, 1e-5)
        assert other["ids"] == one["ids"]
    assert found["data"]["split"] == 1
    assert found["model"]["split"] == 1 / 4
