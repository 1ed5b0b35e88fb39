import io

import keras
import numpy as np
import pytest
from matplotlib import colormaps
from matplotlib.colors import same_color

from keras_transformer.plots import pooled_attention

TOKENS = ["\u2581a", "\u2581tru", "ly", "\u2581great", "\u2581film"]
WEIGHTS = np.array([0.05, 0.1, 0.15, 0.6, 0.1], "float32")


def boxes(figure):
    """Returns left edge, bottom, width and height of each box, in points."""
    return np.array([patch.get_bbox().bounds for patch in figure.axes[0].patches])


def render(figure):
    """Draws a figure as it would be written; warnings of it are errors."""
    figure.savefig(io.BytesIO(), format="png")


def test_each_word_has_the_shade_of_its_weight():
    figure = pooled_attention(TOKENS, WEIGHTS)
    text, scale = figure.axes
    assert [each.get_text() for each in text.texts] == [
        "a",
        "tru",
        "·ly",
        "great",
        "film",
    ]
    for patch, weight in zip(text.patches, WEIGHTS, strict=True):
        shade = colormaps["Blues"](float(weight) / 0.6)
        np.testing.assert_allclose(patch.get_facecolor(), shade, atol=0.01)
    assert scale.get_xlim() == (0, pytest.approx(0.6))


def test_words_can_be_read_on_every_shade():
    figure = pooled_attention(TOKENS, WEIGHTS)
    colors = [each.get_color() for each in figure.axes[0].texts]
    assert same_color(colors, ["black"] * 3 + ["white"] + ["black"])


def test_every_word_stands_in_its_box():
    figure = pooled_attention(TOKENS * 11, np.tile(WEIGHTS, 11))
    render(figure)
    for text, patch in zip(figure.axes[0].texts, figure.axes[0].patches, strict=True):
        inner, outer = text.get_window_extent(), patch.get_window_extent()
        assert outer.x0 <= inner.x0 <= inner.x1 <= outer.x1
        assert outer.y0 <= inner.y0 <= inner.y1 <= outer.y1


@pytest.mark.parametrize("largest", [1, 0.6, 0.0219, 0.000731])
def test_the_numbers_of_the_scale_stand_apart(largest):
    figure = pooled_attention(TOKENS, WEIGHTS * largest / 0.6)
    render(figure)
    labels = [label.get_window_extent() for label in figure.axes[1].get_xticklabels()]
    left, right = np.array([(label.x0, label.x1) for label in labels if label.width]).T
    assert len(left) > 1
    assert np.all(right[:-1] < left[1:])


@pytest.mark.parametrize("count", [1, 53, 503])
def test_boxes_follow_each_other_in_lines_and_never_overlap(count):
    figure = pooled_attention(["token"] * count, np.ones(count) / count)
    left, bottom, width, height = boxes(figure).T
    same_line = np.diff(bottom) == 0
    assert (np.diff(left)[same_line] > width[0]).all()
    assert (left[1:][~same_line] == left[0]).all()
    assert (-np.diff(bottom)[~same_line] > height[0]).all()
    inches = figure.get_size_inches()
    assert (left + width).max() <= 72 * inches[0]
    assert bottom.min() > 54  # above the scale
    assert inches.max() < 15


@pytest.mark.parametrize("tokens", [["שלום", "עולם"], ["مرحبا", "بالعالم"]])
def test_a_text_that_is_read_from_the_right_begins_there(tokens):
    figure = pooled_attention(["<s>", *tokens, "1"], [0.1, 0.2, 0.3, 0.4])
    assert (np.diff(boxes(figure)[:, 0]) < 0).all()
    assert boxes(figure)[0, [0, 2]].sum() == 72 * figure.get_size_inches()[0] - 14


@pytest.mark.parametrize("token", ["我喜欢", "हिन्दी", "🙂", "$\\frac{$", "\ud800", ""])
def test_any_script_is_drawn_without_a_warning(token):
    render(pooled_attention(["a", token], [0.3, 0.7]))


def test_weights_may_be_a_tensor_of_half_precision():
    weights = keras.ops.cast(WEIGHTS, "bfloat16")
    assert len(pooled_attention(TOKENS, weights).axes[0].patches) == 5


def test_weights_of_nothing_but_zeros_have_no_shade():
    figure = pooled_attention(TOKENS, np.zeros(5))
    render(figure)
    lightest = colormaps["Blues"](0.0)
    assert all(each.get_facecolor() == lightest for each in figure.axes[0].patches)


@pytest.mark.parametrize("shape", [(3,), (1, 5), (5, 1), ()])
def test_weights_that_do_not_go_with_the_tokens_are_refused(shape):
    with pytest.raises(ValueError, match=r"of tokens, 5. Received: weights of sha"):
        pooled_attention(TOKENS, np.zeros(shape))


def test_a_text_without_tokens_is_refused():
    with pytest.raises(ValueError, match=r"Received: weights of shape \(0,\)"):
        pooled_attention([], np.zeros(0))
