"""JAX and PyTorch compute what TensorFlow does; `make test-backends` runs this."""

import os

import numpy as np
import pytest
from backend_numbers import NUMBERS, numbers

VARIABLE = "KERAS_TRANSFORMER_NUMBERS"


@pytest.fixture(scope="module")
def reference():
    """The numbers of TensorFlow, by their names."""
    if VARIABLE not in os.environ:
        pytest.skip(f"No numbers to compare with: {VARIABLE} names no file of them.")
    return dict(np.load(os.environ[VARIABLE]))


@pytest.mark.parametrize("name", NUMBERS)
def test_every_backend_computes_the_numbers_of_tensorflow(name, reference):
    expected = {key: x for key, x in reference.items() if key.split("/")[0] == name}
    found = numbers(name)
    assert found.keys() == expected.keys()
    for key, array in found.items():
        wanted = expected[key]
        assert array.dtype == wanted.dtype, key
        scale = max(1.0, np.max(np.abs(wanted[np.isfinite(wanted)]), initial=0.0))
        # A key's bias has no gradient but rounding errors, of 1.5e-5 at most.
        np.testing.assert_allclose(array, wanted, 1e-5, 2e-5 * scale, err_msg=key)
