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
        # The gradient of a key's bias is zero but for rounding errors, up to 1.5e-5.
        atol = 2e-5 if "weight gradients" in key else 1e-5
        np.testing.assert_allclose(array, wanted, 1e-5, atol * scale, err_msg=key)
