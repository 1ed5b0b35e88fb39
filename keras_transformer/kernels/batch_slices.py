"""Training steps that compute the slices of a batch in parallel."""

import itertools
import os
from typing import Any

import keras

from keras_transformer.checks import check_positive_integers
from keras_transformer.kernels import replicas, target


class BatchSlicesMixin:
    """Adds `batch_slices` to `compile`: slices of every batch, computed in parallel.

    TensorFlow splits each operation among the processors, which wait for each other
    at its end. With one thread per operation and two slices of the batch, which is then
    the default, two processors wait once per training step:

    ```python
    tf.config.threading.set_intra_op_parallelism_threads(1)  # before all else
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
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        rows = y.shape[0] or tf.shape(y)[0]
        bounds = [rows * i // num_slices for i in range(num_slices + 1)]
        losses, weights = [], []
        with tf.GradientTape() as tape:
            for start, end in itertools.pairwise(bounds):
                x_, y_, sample_weight_ = _rows((x, y, sample_weight), start, end)
                y_pred = self(x_, training=True)
                losses.append(
                    self.compute_loss(x_, y_, y_pred, sample_weight_, training=True)
                )
                weights.append(tf.reduce_sum(self.loss.weights(y_, sample_weight_)))
                self.compute_metrics(x_, y_, y_pred, sample_weight_)
            fractions = tf.stack(weights) / tf.maximum(tf.add_n(weights), 1e-9)
            loss = tf.reduce_sum(tf.stack(losses) * fractions)
            scaled_loss = self.optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled_loss, self.trainable_weights)
        self.optimizer.apply(gradients, self.trainable_weights)
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss, sample_weight=rows)
        return self.get_metrics_result()


def _rows(data, start, end):
    """Rows `start` to `end` of every array in a structure."""
    return keras.tree.map_structure(
        lambda array: None if array is None else array[start:end], data
    )
