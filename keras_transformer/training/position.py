"""The position of training in its data, saved whenever Keras saves the model."""

import os

import keras
import numpy as np

from keras_transformer.keras_private import begin_at_epoch
from keras_transformer.kernels.rematerialization import seed_states
from keras_transformer.training.distribution import is_trained_by_workers

_END_OF_EPOCH = object()  # stops an epoch that began in its middle


class KeepPosition(keras.callbacks.Callback):
    """Resumes training in the middle of an epoch, as if it had never stopped.

    Keras restores weights, the optimizer and the number of the epoch, and starts the
    epoch again. With this callback, a checkpoint also contains the number of completed
    batches, the states of the random generators (dropout), and the sums of the metrics.
    On one device, training that is killed and resumed then ends with the same weights
    as uninterrupted training, bit for bit:

        dataset = kt.text.parallel_dataset(...)
        backup = keras.callbacks.BackupAndRestore("backup", save_freq=500)
        position = kt.training.KeepPosition(dataset)
        model.fit(dataset, epochs=20, shuffle=False, callbacks=[backup, position])

    Callbacks that save the model in `fit`, such as `ModelCheckpoint`, also save the
    position; `load` restores such a file. `OrbaxCheckpoint` saves everything except the
    position: pass it as `initial_batch`, in a new process, where Keras gives the random
    generators the same names:

        model = keras.saving.load_model("checkpoints")
        batches = int(model.optimizer.iterations)
        position = kt.training.KeepPosition(dataset, initial_batch=batches)

    The state of other callbacks, such as the patience of `EarlyStopping`, is not saved.
    If training ends between the last batch of an epoch and the next checkpoint, that
    epoch is not validated. After `initial_batch`, and with several workers, the
    training metrics of the first epoch only cover the rest of it.

    Args:
        dataset: The `tf.data.Dataset` of `parallel_dataset` or `language_dataset`,
            which may be transformed for `fit`, for example by `split_evenly`. Its
            attributes `epoch` and `batch` are set at the beginning of each epoch.
        steps_per_epoch: As passed to `fit`, with `dataset.repeat()`; by default, an
            epoch is one iteration over the dataset.
        initial_batch: Number of batches, from the first epoch on, that the model was
            trained on before `fit`.

    Raises:
        ValueError: In `fit`, if the number of steps of an epoch has changed, or if a
            callback after this one restores the model.
    """

    def __init__(
        self, dataset, steps_per_epoch: int | None = None, initial_batch: int = 0
    ):
        super().__init__()
        self.dataset = dataset
        self.steps_per_epoch = steps_per_epoch
        self._batches_of_data = int(dataset.cardinality())
        self._steps = steps_per_epoch or self._batches_of_data
        self._start = initial_batch  # where `fit` begins
        self._start_in_data = initial_batch
        self._ahead = 0  # of the dataset, as its epochs may have another length
        self._metrics: list = []

    def load(self, model: keras.Model, path: str | os.PathLike) -> None:
        """Restores a file saved by Keras in `fit` with this callback.

        Args:
            model: The compiled model to train with `fit`.
            path: A `.keras` or `.weights.h5` file.
        """
        self.set_model(model)
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        model.load_weights(path)

    @property
    def epoch(self) -> int:
        """The number of complete epochs before the next batch."""
        return self._start // self._steps

    @property
    def batch(self) -> int:
        """The number of batches of that epoch before the next."""
        return self._start % self._steps

    def set_model(self, model):
        super().set_model(model)
        # Keras saves the layers that are attributes of the optimizer.
        model.optimizer.position = _Position(self)

    def on_train_begin(self, logs=None):
        if self.params["steps"] != self._steps:
            raise ValueError(
                "`steps_per_epoch` must be the same in `fit` and in `KeepPosition`, or "
                "be left out in both, and then `fit` must get all batches. Received: "
                f"{self._steps} in `KeepPosition`, {self.params['steps']} in `fit`."
            )
        together = self.model.steps_per_execution
        if self.steps_per_epoch and (self._steps % together or self.batch % together):
            raise ValueError(
                "`steps_per_epoch`, and the steps of a begun epoch, must be multiples "
                f"of `steps_per_execution`. Received: steps_per_epoch={self._steps}, "
                f"{self.batch} steps and steps_per_execution={together}."
            )
        if self._start:
            begin_at_epoch(self.model, self.epoch)
        self._is_first_epoch = True

    def on_epoch_begin(self, epoch, logs=None):
        first, is_first = epoch * self._steps, self._is_first_epoch
        self._end = first + self._steps
        self._done = max(first, self._start)
        self._is_partial, self._is_first_epoch = self._start > first, False
        self._metrics = self._metrics if self._is_partial else []
        if self._done >= self._end:
            raise ValueError(
                "The callback that restores the model must come before `KeepPosition` "
                f"in `callbacks`. Received: a model after {self._start} batches, in "
                f"epoch {epoch + 1}, which has {self._steps}."
            )
        if is_first:
            begin_at_epoch(self.model, None)  # not in the next call of `fit`
            self._ahead = self._start_in_data - self._start
        if is_first or not self.steps_per_epoch:
            # With `steps_per_epoch`, Keras reads on in the other epochs.
            number, batch = self.position_in_data()
            self.dataset.epoch.assign(number)
            self.dataset.batch.assign(batch)
        self._first_batch, self._start, self._start_in_data = self._done, 0, 0

    def position_in_data(self) -> tuple[int, int]:
        """Returns the epoch of the dataset and its batch that come next."""
        return divmod(self._done + self._ahead, self._batches_of_data)

    def on_train_batch_begin(self, batch, logs=None):
        # Other callbacks may save the model before `on_train_batch_end` is called here.
        after = self._first_batch + batch + self.model.steps_per_execution
        self._done = min(after, self._end)

    def on_train_batch_end(self, batch, logs=None):
        if self._metrics:  # which `fit` has reset, or not even built
            metrics = self.model.metrics_variables
            for variable, before in zip(metrics, self._metrics, strict=True):
                variable.assign(variable + before)
            self._metrics = []
        is_over = self._is_partial and self._done == self._end
        if is_over and not self.model.stop_training:
            self.model.stop_training = _END_OF_EPOCH

    def on_epoch_end(self, epoch, logs=None):
        if self.model.stop_training is _END_OF_EPOCH:
            self.model.stop_training = False

    def on_train_end(self, logs=None):
        del self.model.optimizer.position


class _Position(keras.Layer):
    """Saves what `KeepPosition` needs of a model beside its weights."""

    def __init__(self, callback):
        super().__init__()
        self.callback = callback

    def save_own_variables(self, store):
        model = self.callback.model
        position = divmod(self.callback._done, self.callback._steps)
        store["position"] = np.array([position, self.callback.position_in_data()])
        for i, seed in enumerate(seed_states(model)):
            store[f"seed_{i}"] = keras.ops.convert_to_numpy(seed)
        # One worker alone saves.
        metrics = [] if is_trained_by_workers(model) else model.metrics_variables
        for i, variable in enumerate(metrics):
            store[f"metric_{i}"] = keras.ops.convert_to_numpy(variable)

    def load_own_variables(self, store):
        names, callback = list(store.keys()), self.callback
        if not names:
            return  # saved without the callback
        if "position" in names:
            # The epoch counts, although it may have another number of batches now.
            sizes = callback._steps, callback._batches_of_data
            positions = zip(*np.asarray(store["position"]).T, sizes, strict=True)
            callback._start, callback._start_in_data = (
                int(epoch * size + min(batch, size)) for epoch, batch, size in positions
            )
        else:  # of version 0.1.0
            callback._start = callback._start_in_data = int(store["batches"][()])
        for i, seed in enumerate(seed_states(callback.model)):
            seed.assign(store[f"seed_{i}"])
        count = sum(name.startswith("metric_") for name in names)
        callback._metrics = [store[f"metric_{i}"][()] for i in range(count)]
