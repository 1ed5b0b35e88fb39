import hypothesis
import hypothesis.strategies as st
import numpy as np
from hypothesis.extra.numpy import arrays
from keras import ops

from keras_transformer.kernels.selection import in_nucleus


@hypothesis.given(
    arrays("float32", (3, 13), elements=st.integers(-20, 0).map(lambda n: n / 4)),
    st.sampled_from([0.1, 0.5, 0.9, 0.99, 1.0]),
)
@hypothesis.settings(max_examples=50)
def test_the_nucleus_is_what_sorting_finds(log_weights, probability):
    log_weights -= np.max(log_weights, axis=-1, keepdims=True)
    weights = np.exp(log_weights)
    tensors = map(ops.convert_to_tensor, (log_weights, weights))
    kept = ops.convert_to_numpy(in_nucleus(*tensors, probability))
    for row, is_kept in zip(np.exp(log_weights.astype("float64")), kept, strict=True):
        likelier = np.array([np.sum(row[row > weight]) for weight in row])
        excess = likelier - probability * np.sum(row)
        clear = np.abs(excess) > 1e-5
        np.testing.assert_array_equal(is_kept[clear], excess[clear] < 0)
