"""Training steps that compute the slices of a batch in parallel."""

import functools
import itertools
import os
from typing import Any

import keras
from keras import ops

from keras_transformer.checks import check_positive_integers
from keras_transformer.kernels import replicas, target
from keras_transformer.kernels.keras_private import ScopeOverVariables
from keras_transformer.kernels.rematerialization import seed_states


class BatchSlicesMixin:
    """Adds `batch_slices` to `compile`: slices of every batch, computed in parallel.

    TensorFlow splits each operation among the processors, which wait for each other
    at its end. With one thread per operation and two slices of the batch, which is then
    the default, two processors wait once per training step:

    ```python
    kt.training.one_thread_per_operation()  # before all else
    model.compile(kt.training.Adam(), kt.training.TokenCrossentropy())
    ```

    Loss, gradients and metrics equal those of the whole batch, up to rounding and
    the random draws of dropout; one slice is the training step of Keras. Several slices
    only help on one device without XLA, which splits steps itself.

    Among the bases of a class, this mixin comes before `keras.Model`.
    """

    batch_slices: int | str = "auto"
    loss: Any

    def compile(self, *args, batch_slices: int | str = "auto", **kwargs):
        """Configures training, as `keras.Model.compile` does.

        Args:
            *args: Arguments of `keras.Model.compile`.
            batch_slices: Number of slices of each training batch. More than one
                needs the TensorFlow backend, one replica, metrics that add up over
                batches, and a loss with a method `weights(y_true, sample_weight)`,
                such as `kt.training.TokenCrossentropy`. "auto": 2 where the loss has
                that method, and TensorFlow trains on one CPU of several cores, without
                XLA and with one thread per operation; else 1.
            **kwargs: Arguments of `keras.Model.compile`.

        Raises:
            ValueError: If `batch_slices` is neither a positive integer nor "auto", or
                there are several and the loss has no such method. The first training
                step raises it for another backend and for several replicas.
        """
        if batch_slices != "auto":
            check_positive_integers(batch_slices=batch_slices)
        super().compile(*args, **kwargs)  # type: ignore[misc]
        is_sliced = batch_slices not in ("auto", 1)
        if is_sliced and not hasattr(self.loss, "weights"):
            raise ValueError(
                "`loss` must have a method `weights`, as `TokenCrossentropy` has, to "
                f"train in {batch_slices} slices. Received: loss={self.loss!r}."
            )
        self.batch_slices = batch_slices

    def get_compile_config(self):
        config = super().get_compile_config()
        if config and self.batch_slices != "auto":
            config["batch_slices"] = self.batch_slices
        return config

    def compile_from_config(self, config):
        # The method of Keras does nothing where `compile` is overridden.
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.optimizer is not None and self.built:
            self.optimizer.build(self.trainable_variables)

    def make_train_function(self, *args, **kwargs):
        # TensorFlow traces a step that creates variables a second time.
        optimizer = self.optimizer
        if target.is_tensorflow() and self.built and not optimizer.built:
            with self.distribute_strategy.scope():
                optimizer.build(self.trainable_variables)
        return super().make_train_function(*args, **kwargs)

    def train_step(self, *args, **kwargs):
        num_slices = self.batch_slices
        if num_slices == "auto":
            num_slices = 2 if self._is_faster_in_slices() else 1
        if num_slices == 1:
            return super().train_step(*args, **kwargs)
        target.require_tensorflow(f"Training in {num_slices} slices")
        return self._train_step_in_slices(num_slices, *args, **kwargs)

    def _is_faster_in_slices(self):
        return (
            hasattr(self.loss, "weights")
            and target.computes_each_operation_in_one_thread()
            and not self.jit_compile
            and replicas.num_replicas() == 1
            and os.cpu_count() > 1
        )

    def _train_step_in_slices(self, num_slices, data):
        import tensorflow as tf

        num_replicas = replicas.num_replicas()
        if num_replicas > 1:
            raise ValueError(
                f"`batch_slices` must be 1 with {num_replicas} replicas. "
                f"Received: batch_slices={num_slices}."
            )
        data = keras.utils.unpack_x_y_sample_weight(data)
        rows = data[1].shape[0] or tf.shape(data[1])[0]
        bounds = [rows * i // num_slices for i in range(num_slices + 1)]
        slices = [_rows(data, *ends) for ends in itertools.pairwise(bounds)]
        weights = [tf.reduce_sum(self.loss.weights(*labels)) for _, *labels in slices]
        total = tf.maximum(tf.add_n(weights), 1e-9)
        compute = self._compute_slice
        if not self.run_eagerly:
            # Not inlined, it is traced and optimised once for all slices.
            compute = tf.function(
                compute,
                autograph=False,
                reduce_retracing=True,
                experimental_attributes={"_noinline": True},
            )
        # `end` is a tensor, since a function is traced again for every other integer.
        results = [
            compute(tf.convert_to_tensor(end), slice_, weight / total)
            for end, slice_, weight in zip(bounds[1:], slices, weights, strict=True)
        ]
        losses, gradients, values = zip(*results, strict=True)
        gradients = [_sum(each) for each in zip(*gradients, strict=True)]
        self.optimizer.apply(gradients, self.trainable_weights)
        for state, each in zip(self._states(), zip(*values, strict=True), strict=True):
            _assign(state, each)
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(tf.add_n(losses), sample_weight=rows)
        return self.get_metrics_result()

    def _compute_slice(self, end, data, fraction):
        """The loss of a slice and its gradients, times its fraction of the batch.

        Slices that assigned to the same variable would wait for each other. So this
        returns what is to be assigned to each of `_states()`, None for nothing.
        """
        import tensorflow as tf

        x, y, sample_weight = data
        with tf.GradientTape() as tape, _SliceScope() as scope:
            # Seeds depend on the last row, so each slice draws different numbers.
            _add_to_seeds(self, 1_000_003 * end)
            y_pred = self(x, training=True)
            loss = self.compute_loss(x, y, y_pred, sample_weight, training=True)
            loss = loss * fraction
            scaled_loss = self.optimizer.scale_loss(loss)
            self.compute_metrics(x, y, y_pred, sample_weight)
            _add_to_seeds(self, -1_000_003 * end)
        gradients = tape.gradient(scaled_loss, self.trainable_weights)
        return loss, gradients, [scope.state_mapping.get(id(x)) for x in self._states()]

    def _states(self):
        return self.metrics_variables + self.non_trainable_variables


class _SliceScope(ScopeOverVariables):
    """Keeps what a slice assigns; sums, such as those of metrics, begin at zero."""

    def get_current_value(self, variable):
        is_sum = not variable.trainable and variable.aggregation == "sum"
        if is_sum and id(variable) not in self.state_mapping:
            return ops.zeros(variable.shape, variable.dtype)
        return super().get_current_value(variable)


def _rows(data, start, end):
    """Rows `start` to `end` of every array in a structure."""
    return keras.tree.map_structure(
        lambda array: None if array is None else array[start:end], data
    )


def _sum(gradients):
    """The sum of one gradient from each slice, all dense or all sparse."""
    import tensorflow as tf

    if not isinstance(gradients[0], tf.IndexedSlices):
        return None if gradients[0] is None else tf.add_n(gradients)
    values, indices = (
        tf.concat([getattr(x, name) for x in gradients], axis=0)
        for name in ("values", "indices")
    )
    return tf.IndexedSlices(values, indices, gradients[0].dense_shape)


def _add_to_seeds(layer, number):
    """Adds a number to the first of the two that each random generator draws by."""
    for seed in seed_states(layer):
        seed.assign(seed + ops.cast(ops.stack([number, 0]), seed.dtype))


def _assign(state, values):
    """Assigns the sum or the mean of what slices would assign, or the largest integer.

    The values of all slices are used. If those of one slice were not, TensorFlow would
    optimise the computation of that slice separately.
    """
    if values[0] is None:
        return
    if state.aggregation == "sum":
        state.assign_add(sum(values))
    elif keras.backend.is_float_dtype(state.dtype):
        state.assign(sum(values) / len(values))
    else:
        state.assign(functools.reduce(ops.maximum, values))
