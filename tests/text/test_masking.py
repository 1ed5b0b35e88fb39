import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.text import mask_tokens, masked_dataset

VOCABULARY, MASK = 29, 4
SETTINGS = {"vocabulary_size": VOCABULARY, "mask_id": MASK}
# Special ids and padding are a quarter of them.
IDS = np.random.default_rng(0).integers(0, VOCABULARY, (211, 97)).astype("int32")
SPECIAL = IDS <= MASK


def masked(seed=(1, 2), **settings):
    found = mask_tokens(IDS, seed, **{**SETTINGS, **settings})
    return [x.numpy() for x in found]


def test_labels_are_the_selected_tokens_and_padding_elsewhere():
    inputs, labels = masked()
    chosen = labels != 0
    np.testing.assert_array_equal(labels[chosen], IDS[chosen])
    np.testing.assert_array_equal(inputs[~chosen], IDS[~chosen])
    assert inputs.dtype == labels.dtype == np.int32


def test_special_ids_are_neither_masked_nor_used_as_random_tokens():
    inputs, labels = masked(probability=1.0)
    assert not labels[SPECIAL].any()
    np.testing.assert_array_equal(inputs[SPECIAL], IDS[SPECIAL])
    put = inputs[~SPECIAL]
    assert set(put) == {MASK, *range(5, VOCABULARY)}


@pytest.mark.parametrize("probability", [0.15, 0.4])
def test_the_probabilities_are_those_of_the_paper(probability):
    inputs, labels = masked(probability=probability)
    chosen = labels != 0
    assert abs(chosen[~SPECIAL].mean() - probability) < 0.01
    hidden, stays = inputs[chosen] == MASK, (inputs == labels)[chosen]
    assert abs(hidden.mean() - 0.8) < 0.03
    # One in 24 of the tokens drawn is the one that was there.
    assert abs(stays.mean() - 0.1 - 0.1 / 24) < 0.03


def test_equal_seeds_mask_equal_tokens_and_other_seeds_do_not():
    first, again, other = masked((3, 5)), masked((3, 5)), masked((3, 7))
    for x, y, z in zip(first, again, other, strict=True):
        np.testing.assert_array_equal(x, y)
        assert np.any(x != z)


def passes(count, **settings):
    batches = tf.data.Dataset.from_tensor_slices(IDS).batch(53)
    dataset = masked_dataset(batches, **SETTINGS, **settings)
    return [
        [np.concatenate(x) for x in zip(*dataset.as_numpy_iterator(), strict=True)]
        for _ in range(count)
    ]


def test_every_pass_masks_other_tokens_of_the_same_text():
    first, second = passes(2, seed=3)
    for inputs, labels in (first, second):
        np.testing.assert_array_equal(np.where(labels, labels, inputs), IDS)
    assert np.mean((first[1] != 0) & (second[1] != 0)) < 0.1
    again = passes(2, seed=3)
    np.testing.assert_array_equal(again, (first, second))
    assert np.any(passes(1, seed=4)[0][1] != first[1])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mask_id": 29}, "`mask_id` must lie in the vocabulary of 29 .* mask_id=29"),
        ({"mask_id": 3}, "`mask_id` must .* not be special. Received: mask_id=3"),
        ({"probability": 0.0}, "`probability` must be above 0 .* probability=0.0"),
        (
            {"probability": 1.1},
            "`probability` must be .* at most 1. .* probability=1.1",
        ),
        ({"vocabulary_size": 5}, "`special_ids` must leave some ids to mask"),
    ],
    ids=lambda x: "+".join(x) if isinstance(x, dict) else "",
)
def test_bad_settings_are_refused_in_one_line(settings, message):
    batches = tf.data.Dataset.from_tensor_slices(IDS).batch(53)
    for call in (
        lambda settings: mask_tokens(IDS, (1, 2), **settings),
        lambda settings: masked_dataset(batches, **settings),
    ):
        with pytest.raises(ValueError, match=message) as caught:
            call({**SETTINGS, **settings})
        assert "\n" not in str(caught.value)
