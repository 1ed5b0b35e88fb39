"""Adam with the settings of the paper and gradient accumulation."""

import keras
import ml_dtypes
from keras import ops

from keras_transformer.checks import check_positive_integers
from keras_transformer.keras_private import trainable_variables, variable_index
from keras_transformer.kernels.graphs import dense_gradient
from keras_transformer.training.distribution import (
    num_replicas,
    num_replicas_of_strategy,
    sum_gradients,
    update_if,
)
from keras_transformer.training.gradient_norm import MeasuredOptimizer


@keras.saving.register_keras_serializable(package="keras_transformer")
class Adam(MeasuredOptimizer, keras.optimizers.Adam):
    """`keras.optimizers.Adam` with the paper's settings, and gradient accumulation.

    It takes every option of `keras.optimizers.Adam`, such as `weight_decay`,
    `global_clipnorm` and `use_ema`, and makes the same updates, with these differences:

    - `gradient_accumulation_steps` makes one update from the mean gradient of several
      batches, to fit a large batch into little memory. Unlike Keras's argument, it
      works under `MirroredStrategy`, and everything counts updates instead of
      batches: `iterations`, the moving average of `use_ema` and its
      `ema_overwrite_frequency`. As in Keras, the mean gradient is clipped, weight decay
      is applied once per update, and a schedule counts batches.
    - Under `MirroredStrategy`, gradients are clipped after they are summed over
      replicas, so several replicas make the update of one.
    - `clipnorm` and `clipvalue` clip an embedding's summed gradient. Keras clips its
      rows before summing the rows of a token.
    - `pop_gradient_norm` returns the mean gradient norm of the last updates.

    Args:
        learning_rate: A float, or a schedule.
        beta_1: Decay rate of the mean gradient.
        beta_2: Decay rate of the mean squared gradient.
        epsilon: Added to the square root of the mean squared gradient.
        gradient_accumulation_steps: Number of batches per update; None means 1.
        name: Name of the optimizer.
        **kwargs: Other options of `keras.optimizers.Adam`: `amsgrad`, `weight_decay`,
            `clipnorm`, `clipvalue`, `global_clipnorm`, `use_ema`, `ema_momentum`,
            `ema_overwrite_frequency` and `loss_scale_factor`.

    Raises:
        ValueError: If `gradient_accumulation_steps` is not a positive integer, for
            options that Keras refuses, if weights are trained in half precision, in
            which `epsilon` is 0 or a beta is 1, or on several replicas with
            `ema_overwrite_frequency`.

    Example:
        >>> model = keras.Sequential([keras.layers.Dense(1)])
        >>> optimizer = Adam(1e-3, gradient_accumulation_steps=4, global_clipnorm=1.0)
        >>> model.compile(optimizer, "mse")

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 5.3;
        accumulation: [Ott et al., 2018](https://arxiv.org/abs/1806.00187)
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 1e-3,
        beta_1: float = 0.9,
        beta_2: float = 0.98,
        epsilon: float = 1e-9,
        gradient_accumulation_steps: int | None = 1,
        name: str = "adam",
        **kwargs,
    ):
        steps = (
            1 if gradient_accumulation_steps is None else gradient_accumulation_steps
        )
        check_positive_integers(gradient_accumulation_steps=steps)
        super().__init__(learning_rate, beta_1, beta_2, epsilon, name=name, **kwargs)
        self.batches_per_update = steps

    def build(self, variables):
        if self.built:
            return
        for dtype in {variable.dtype for variable in variables}:
            limits = ml_dtypes.finfo(dtype)
            largest_beta = max(self.beta_1, self.beta_2)
            if (
                self.epsilon < limits.smallest_normal
                or limits.dtype.type(largest_beta) == 1
            ):
                raise ValueError(
                    "The weights must be float32, or `epsilon` at least "
                    f"{float(limits.smallest_normal):.2g} and every beta less than 1 "
                    f"when rounded to {dtype}. Build the model with "
                    f"dtype='mixed_{dtype}', whose weights are float32. Received: "
                    f"epsilon={self.epsilon}, beta_1={self.beta_1}, "
                    f"beta_2={self.beta_2}."
                )
        super().build(variables)
        if self.batches_per_update > 1:
            self._sums = self.add_optimizer_variables(variables, "gradient_sum")

    @property
    def iterations(self):
        batches = super().iterations
        if self.batches_per_update == 1:
            return batches
        return ops.floor_divide(batches, self.batches_per_update)

    def apply(self, grads, trainable_variables=None):
        if self.ema_overwrite_frequency and num_replicas() > 1:
            raise ValueError(
                "`ema_overwrite_frequency` must be None on several replicas; without "
                "it `fit` ends with the moving averages. Received: "
                f"ema_overwrite_frequency={self.ema_overwrite_frequency}."
            )
        if self.loss_scale_factor is not None or self.clipnorm or self.clipvalue:
            # Keras divides gradients by it, which sparse ones do not allow, and would
            # clip the rows of a sparse one before summing rows of the same token.
            grads = [dense_gradient(gradient) for gradient in grads]
        if self._sums_over_replicas:
            grads = sum_gradients(grads)
        if self.batches_per_update == 1 or not grads:
            super().apply(grads, trainable_variables)
        else:
            self._apply_mean(grads, trainable_variables)

    @property
    def _sums_over_replicas(self):
        """Whether the replicas' gradients are summed before Keras sums them again."""
        is_clipped = self.clipnorm or self.clipvalue or self.global_clipnorm
        return bool(is_clipped or self.batches_per_update > 1)

    def _apply_mean(self, gradients, variables):
        variables = trainable_variables(self) if variables is None else variables
        variables = list(variables)
        self.build(variables)
        sums = [
            None if gradient is None else self._sums[variable_index(self, variable)]
            for gradient, variable in zip(gradients, variables, strict=True)
        ]
        for gradient_sum, gradient in zip(sums, gradients, strict=True):
            if gradient_sum is not None:
                self.assign_add(gradient_sum, gradient)
        counter = super().iterations
        batches = counter + 1

        def update():
            # Those without a sum are None, or what Keras overwrites a variable with.
            means = [
                gradient
                if gradient_sum is None
                else gradient_sum / self.batches_per_update
                for gradient_sum, gradient in zip(sums, gradients, strict=True)
            ]
            super(Adam, self).apply(means, variables)
            for gradient_sum in sums:
                if gradient_sum is not None:
                    zeros = ops.zeros(gradient_sum.shape, gradient_sum.dtype)
                    self.assign(gradient_sum, zeros)

        is_complete = batches % self.batches_per_update == 0
        update_if(is_complete, update, [*trainable_variables(self), *self.variables])
        counter.assign(batches)

    def update_step(self, gradient, variable, learning_rate):
        replicas = num_replicas_of_strategy()
        if self._sums_over_replicas and replicas > 1:
            gradient = ops.divide(gradient, replicas)
        super().update_step(gradient, variable, learning_rate)

    def get_config(self):
        steps = self.batches_per_update
        return {**super().get_config(), "gradient_accumulation_steps": steps}
