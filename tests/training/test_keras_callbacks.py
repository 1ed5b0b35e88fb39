"""Keras's callbacks keep their promises, on one device and on two."""

import importlib.util

import callback_contract
import pytest
from forked import run_program

NAMES = list(callback_contract.CONTRACTS)
has_orbax = importlib.util.find_spec("orbax") is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_callback_keeps_its_promise(name, tmp_path):
    if name == "orbax_checkpoint" and not has_orbax:
        pytest.skip("This test needs orbax-checkpoint.")
    callback_contract.CONTRACTS[name](tmp_path)


@pytest.mark.slow
def test_all_callbacks_keep_their_promises_on_two_devices():
    done = run_program(callback_contract.__file__)
    expected = [name for name in NAMES if has_orbax or name != "orbax_checkpoint"]
    assert [x for x in done.stdout.splitlines() if x in NAMES] == expected, done.stderr
