import numpy as np
import pytest
from gradients import gradients
from keras import ops

from keras_transformer.kernels.tied_logits import tied_logits, transposed_once

BATCH, LENGTH, SIZE, DIM = 2, 3, 11, 5
RANDOM = np.random.default_rng(7)
STATES = RANDOM.normal(size=(BATCH, LENGTH, DIM)).astype("float32")
TABLE = RANDOM.normal(size=(SIZE, DIM)).astype("float32")
UPSTREAM = RANDOM.normal(size=(BATCH, LENGTH, SIZE)).astype("float32")


def transposed_product(states, table):
    return ops.matmul(states, ops.transpose(table))


@pytest.mark.parametrize("shape", [(BATCH, LENGTH, DIM), (BATCH * LENGTH, DIM)])
def test_logits_and_gradients_are_those_of_a_transposed_product(shape):
    states = STATES.reshape(shape)
    upstream = ops.convert_to_tensor(UPSTREAM.reshape(*shape[:-1], SIZE))

    def total(function):
        return lambda *inputs: ops.sum(function(*inputs) * upstream)

    expected = transposed_product(states, TABLE)
    np.testing.assert_allclose(tied_logits(states, TABLE), expected, 1e-5, 1e-6)
    ours = gradients(total(tied_logits), [states, TABLE])
    theirs = gradients(total(transposed_product), [states, TABLE])
    for found, expected in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(found, expected, 1e-5, 1e-6)


def test_logits_by_a_table_that_is_transposed_once_are_the_same():
    logits = transposed_once(ops.convert_to_tensor(TABLE))
    expected = transposed_product(STATES, TABLE)
    np.testing.assert_allclose(logits(STATES), expected, 1e-5, 1e-6)
