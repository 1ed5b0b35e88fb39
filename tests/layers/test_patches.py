import numpy as np
import pytest
from keras import ops
from layer_contract import check_layer

from keras_transformer.layers import ClassToken, PatchEmbedding

IMAGES = np.random.default_rng(0).normal(size=(2, 6, 9, 5)).astype("float32")


def test_patches_keep_the_contract_of_layers():
    settings = {"patch_size": 3, "hidden_dim": 7}
    check_layer(PatchEmbedding, settings, IMAGES, (2, 6, 7), supports_masking=False)


def test_the_class_token_keeps_the_contract_of_layers():
    states = IMAGES[:, 0]
    check_layer(ClassToken, {}, states, (2, 10, 5), supports_masking=False)


def test_patches_are_projected_row_by_row_from_the_left():
    layer = PatchEmbedding(patch_size=3, hidden_dim=45)
    layer.build(IMAGES.shape)
    layer.set_weights([np.eye(45), np.zeros(45)])
    expected = [
        IMAGES[:, row : row + 3, column : column + 3].reshape(2, 45)
        for row in (0, 3)
        for column in (0, 3, 6)
    ]
    np.testing.assert_array_equal(layer(IMAGES), np.stack(expected, axis=1))


def test_the_class_token_stands_before_the_rest():
    layer = ClassToken()
    states = IMAGES[:, 0]
    outputs = ops.convert_to_numpy(layer(states))
    np.testing.assert_array_equal(outputs[:, 1:], states)
    np.testing.assert_array_equal(outputs[0, 0], layer.token)
    np.testing.assert_array_equal(outputs[1, 0], layer.token)


@pytest.mark.parametrize("name", ["patch_size", "hidden_dim"])
def test_sizes_must_be_positive(name):
    with pytest.raises(ValueError, match=f"`{name}` must be .* {name}=0"):
        PatchEmbedding(**{"patch_size": 2, "hidden_dim": 3, name: 0})


def test_patches_must_tile_the_image():
    message = "`patch_size` must divide .* patch_size=4, images of 6 x 9"
    with pytest.raises(ValueError, match=message):
        PatchEmbedding(patch_size=4, hidden_dim=3).build(IMAGES.shape)
    with pytest.raises(ValueError, match="`patch_size` must .* images of 6 x None"):
        PatchEmbedding(patch_size=3, hidden_dim=3).build((None, 6, None, 5))


def test_images_of_other_sizes_are_cut_into_patches_or_refused():
    layer = PatchEmbedding(patch_size=3, hidden_dim=3)
    layer.build(IMAGES.shape)
    assert layer(IMAGES[:, :3]).shape == (2, 3, 3)
    # 3 images of 4 x 9 have as many pixels as 4 of 3 x 9.
    with pytest.raises(ValueError, match="`patch_size` must .* images of 4 x 9"):
        layer(np.ones((3, 4, 9, 5), "float32"))
    with pytest.raises(ValueError, match="`patch_size` must .* images of None x None"):
        layer.compute_output_shape((None, None, None, 5))


def test_images_must_have_four_axes():
    with pytest.raises(ValueError, match=r"`inputs` must have .* shape \(6, 9, 5\)"):
        PatchEmbedding(patch_size=3, hidden_dim=3).build(IMAGES.shape[1:])
