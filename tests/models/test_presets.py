"""What a model costs, from the formulas of the paper."""

import inspect

import keras
import numpy as np
import pytest

from keras_transformer.models import Transformer

SIZES = {
    # num_layers, hidden_dim, num_heads, intermediate_dim, dropout
    "tiny": (4, 128, 4, 256, 0.3),
    "base": (6, 512, 8, 2048, 0.1),
    "big": (6, 1024, 16, 4096, 0.3),
}
MILLIONS = {"base": 65, "big": 213}  # table 3 of the paper, 37,000 shared tokens


def number_of_weights(num_layers, hidden_dim, intermediate_dim, *vocabularies):
    norm = 2 * hidden_dim
    attention = 4 * (hidden_dim**2 + hidden_dim)
    feed_forward = 2 * hidden_dim * intermediate_dim + intermediate_dim + hidden_dim
    encoder = num_layers * (attention + feed_forward + 2 * norm)
    decoder = num_layers * (2 * attention + feed_forward + 3 * norm)
    return sum(vocabularies) * hidden_dim + encoder + decoder


@pytest.mark.quick("tiny")
@pytest.mark.parametrize("preset", SIZES)
def test_presets_have_their_published_sizes(preset):
    num_layers, hidden_dim, num_heads, intermediate_dim, dropout = SIZES[preset]
    # Weights that have a shape, but no values: that costs neither time nor memory.
    with keras.StatelessScope(initialize_variables=False):
        model = Transformer.from_preset(preset, source_vocabulary_size=37_000)
    config = model.get_config()
    assert config["num_layers"] == num_layers
    assert config["hidden_dim"] == hidden_dim
    assert config["num_heads"] == num_heads
    assert config["intermediate_dim"] == intermediate_dim
    assert config["dropout"] == dropout
    expected = number_of_weights(num_layers, hidden_dim, intermediate_dim, 37_000)
    assert model.count_params() == expected
    if preset in MILLIONS:
        np.testing.assert_allclose(expected / 1e6, MILLIONS[preset], rtol=0.04)


def test_defaults_are_the_base_model():
    parameters = inspect.signature(Transformer.__init__).parameters
    names = ["num_layers", "hidden_dim", "num_heads", "intermediate_dim", "dropout"]
    assert tuple(parameters[name].default for name in names) == SIZES["base"]


def test_two_vocabularies_have_two_tables():
    sizes = {"num_layers": 3, "hidden_dim": 8, "intermediate_dim": 11}
    with keras.StatelessScope(initialize_variables=False):
        shared = Transformer(29, **sizes, num_heads=2)
        apart = Transformer(29, 31, **sizes, num_heads=2)
    assert shared.count_params() == number_of_weights(*sizes.values(), 29)
    assert apart.count_params() == number_of_weights(*sizes.values(), 29, 31)
    assert shared.source_embedding is shared.target_embedding
    assert apart.source_embedding is not apart.target_embedding


def test_pre_norm_adds_the_norms_that_end_the_stacks():
    sizes = {"num_layers": 3, "hidden_dim": 8, "intermediate_dim": 11}
    with keras.StatelessScope(initialize_variables=False):
        model = Transformer(29, **sizes, num_heads=2, normalize_first=True)
    expected = number_of_weights(*sizes.values(), 29) + 2 * 2 * 8
    assert model.count_params() == expected


def test_a_preset_can_be_overridden():
    with keras.StatelessScope(initialize_variables=False):
        model = Transformer.from_preset(
            "tiny",
            17,
            target_vocabulary_size=19,
            num_layers=1,
            dropout=0.2,
            name="mine",
        )
    config = model.get_config()
    assert (config["num_layers"], config["hidden_dim"]) == (1, 128)
    assert (config["dropout"], config["name"]) == (0.2, "mine")
    assert config["target_vocabulary_size"] == 19


def test_unknown_presets_are_refused():
    with pytest.raises(
        ValueError,
        match="`preset` must be one of .*'tiny', 'base', 'big'.* "
        "Received: preset='huge'",
    ):
        Transformer.from_preset("huge", source_vocabulary_size=17)
