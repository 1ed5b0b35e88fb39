import pytest
from forked import run_program

import keras_transformer as kt

pytestmark = pytest.mark.needs_tensorflow

TRAINING = """
import sys
import keras
import numpy as np
import keras_transformer as kt
from keras_transformer.kernels.batch_slices import BatchSlicesMixin

if sys.argv[1] == "late":
    keras.random.uniform(())
for _ in range(2):
    kt.training.one_thread_per_operation()
slices = []
train = BatchSlicesMixin._train_step_in_slices
BatchSlicesMixin._train_step_in_slices = lambda model, count, data: (
    slices.append(count) or train(model, count, data)
)
model = kt.models.LanguageModel(13, 1, 8, 2, 16)
settings = {"batch_slices": 1} if sys.argv[1] == "off" else {}
model.compile("sgd", kt.training.TokenCrossentropy(), jit_compile=False, **settings)
model.fit(np.ones((5, 3), "int32"), np.ones((5, 3), "int32"), verbose=0)
print(slices)
"""


@pytest.mark.parametrize(("what", "slices"), [("on", "[2]"), ("off", "[]")])
def test_with_one_thread_per_operation_fit_takes_slices(what, slices):
    done = run_program(TRAINING, what)
    assert done.stdout.split("\n")[-2] == slices, done.stderr


def test_once_tensorflow_has_begun_threads_stay_as_they_are():
    done = run_program(TRAINING, "late")
    assert "RuntimeError" in done.stderr
    assert "cannot be modified after initialization" in done.stderr


def test_other_backends_have_no_such_threads(monkeypatch):
    monkeypatch.setattr(kt.kernels.target, "is_tensorflow", lambda: False)
    kt.training.one_thread_per_operation()
