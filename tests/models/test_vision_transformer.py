import functools
import random

import keras
import numpy as np
import pytest
from keras import ops
from sklearn.datasets import load_digits

from keras_transformer.layers import AttentionPooling
from keras_transformer.models import VisionTransformer

SETTINGS = {
    "image_shape": (6, 9, 2),
    "patch_size": 3,
    "num_classes": 5,
    "num_layers": 2,
    "hidden_dim": 8,
    "num_heads": 2,
    "intermediate_dim": 11,
    "dropout": 0.1,
}
IMAGES = np.random.default_rng(0).normal(size=(3, 6, 9, 2)).astype("float32")
VARIANTS = {
    "class token": dict,
    "attention pooling": lambda: {"pooling": AttentionPooling(num_heads=2)},
    "average pooling": lambda: {"pooling": keras.layers.GlobalAveragePooling1D()},
    "post-norm": lambda: {"normalize_first": False, "activation": "relu"},
    "mixed_bfloat16": lambda: {"dtype": "mixed_bfloat16"},
}


@functools.cache
def variant(name):
    """A small model in which every weight matters."""
    model = VisionTransformer(**{**SETTINGS, **VARIANTS[name]()})
    draw = np.random.default_rng(1)
    for weight in model.weights:
        mean = float(weight.path.endswith("gamma"))
        weight.assign(draw.normal(mean, 0.3, weight.shape))
    return model


def logits_of(model, images, **kwargs):
    return ops.convert_to_numpy(model(images, **kwargs))


@pytest.mark.quick("class token")
@pytest.mark.parametrize("name", VARIANTS)
def test_logits_are_float32_and_every_patch_matters(name):
    model = variant(name)
    before = logits_of(model, IMAGES)
    assert (before.shape, before.dtype) == ((3, 5), "float32")
    for row in (0, 3):
        for column in (0, 3, 6):
            changed = IMAGES.copy()
            changed[0, row + 1, column + 1] += 2
            after = logits_of(model, changed)
            assert np.abs(after - before)[0].max() > 1e-3
            np.testing.assert_allclose(after[1:], before[1:], 1e-4, 1e-5)


@pytest.mark.parametrize("name", ["class token", "attention pooling"])
def test_where_a_patch_stands_matters(name):
    model = variant(name)
    turned = IMAGES[:, ::-1].reshape(3, 2, 3, 9, 2)[:, :, ::-1].reshape(IMAGES.shape)
    # The two rows of patches have changed places, each as it was.
    np.testing.assert_array_equal(turned[:, :3], IMAGES[:, 3:])
    difference = np.abs(logits_of(model, turned) - logits_of(model, IMAGES))
    assert difference.max() > 0.01


@pytest.mark.parametrize(
    ("name", "positions"), [("class token", 7), ("attention pooling", 6)]
)
def test_attention_scores_say_what_was_looked_at(name, positions):
    scores = variant(name).attention_scores(IMAGES)
    assert set(scores) == {"encoder"}
    assert scores["encoder"].shape == (2, 3, 2, positions, positions)
    np.testing.assert_allclose(ops.sum(scores["encoder"], axis=-1), 1, 1e-5)


def test_attention_scores_of_images_of_another_size_are_refused():
    with pytest.raises(ValueError, match=r"image_shape=\(6, 9, 2\).*\(3, 9, 6, 2\)"):
        variant("class token").attention_scores(IMAGES.swapaxes(1, 2))


@pytest.mark.quick("average pooling")
@pytest.mark.parametrize("name", VARIANTS)
def test_a_reloaded_model_gives_the_live_logits(name, tmp_path):
    model = variant(name)
    model.save(tmp_path / "model.keras")
    reloaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(reloaded) is VisionTransformer
    assert reloaded.get_config() == model.get_config()
    np.testing.assert_array_equal(logits_of(reloaded, IMAGES), logits_of(model, IMAGES))


def test_models_that_are_given_one_pooling_layer_learn_one_each():
    pooling = AttentionPooling(num_heads=2)
    one, other = (VisionTransformer(**SETTINGS, pooling=pooling) for _ in range(2))
    one.pooling.query.assign(np.ones(one.pooling.query.shape))
    assert not np.any(ops.convert_to_numpy(other.pooling.query))
    assert not pooling.built


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"image_shape": (6, 9)}, r"`image_shape` must be .* image_shape=\(6, 9\)"),
        ({"image_shape": (6, 0, 2)}, r"`image_shape` must be .*\(6, 0, 2\)"),
        ({"patch_size": 4}, "`patch_size` must divide .* patch_size=4"),
        ({"patch_size": 0}, "`patch_size` must be a positive integer"),
        ({"num_classes": 0}, "`num_classes` must be a positive integer"),
        ({"num_layers": 0}, "`num_layers` must be a positive integer"),
        ({"hidden_dim": 0}, "`hidden_dim` must be a positive integer"),
        ({"num_heads": 3}, "`num_heads` must divide .* num_heads=3, hidden_dim=8"),
    ],
    ids=lambda x: "+".join(x) if isinstance(x, dict) else "",
)
def test_bad_settings_are_refused_in_one_line(arguments, message):
    with pytest.raises(ValueError, match=message) as caught:
        VisionTransformer(**{**SETTINGS, **arguments})
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_it_reads_97_of_100_handwritten_digits_that_it_has_not_seen():
    random.seed(7)
    digits = load_digits()
    images, labels = digits.images[..., None] / 8 - 1, digits.target
    draw = np.random.default_rng(7)
    shuffled = draw.permutation(len(images))
    held_out, seen = np.split(shuffled, [len(images) // 5])
    model = VisionTransformer(
        image_shape=(8, 8, 1),
        patch_size=2,
        num_classes=10,
        num_layers=2,
        hidden_dim=32,
        num_heads=4,
        intermediate_dim=64,
        dropout=0.1,
    )
    epochs, batch_size = 40, 64
    order = np.concatenate([draw.permutation(seen) for _ in range(epochs)])
    noisy = images[order] + draw.normal(0, 0.3, images[order].shape)
    steps = len(order) // batch_size
    schedule = keras.optimizers.schedules.CosineDecay(
        0.0, steps, warmup_target=4e-3, warmup_steps=100
    )
    model.compile(
        keras.optimizers.AdamW(schedule, weight_decay=1e-2),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(noisy, labels[order], batch_size, shuffle=False, verbose=0)
    _, accuracy = model.evaluate(images[held_out], labels[held_out], verbose=0)
    assert accuracy >= 0.97
