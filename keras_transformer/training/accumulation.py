"""Adam that learns from several batches at a time, on one device or many."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_transformer")
class AccumulatingAdam(keras.optimizers.Adam):
    """Adam with one update for the mean gradient of several batches.

    A large batch where memory holds a small one. It does what
    `gradient_accumulation_steps` does in the optimizers of Keras, and does it
    under `MirroredStrategy` too, where those fail: they decide whether to
    update before the gradients of the replicas are added up, this one after
    it, for each variable. Like theirs, its `iterations` count updates.

    Args:
        learning_rate: A float, or a schedule.
        gradient_accumulation_steps: Number of batches to an update.
        beta_1: Decay of the mean gradient, per update.
        beta_2: Decay of the mean squared gradient, per update.
        epsilon: Added to the root of the mean squared gradient.
        name: Name of the optimizer.

    Raises:
        ValueError: If `gradient_accumulation_steps` is not positive.

    Example:
        >>> model = keras.Sequential([keras.layers.Dense(1)])
        >>> model.compile(AccumulatingAdam(1e-3, gradient_accumulation_steps=4), "mse")

    Reference:
        [Ott et al., 2018](https://arxiv.org/abs/1806.00187), section 3.3
    """

    def __init__(
        self,
        learning_rate=1e-3,
        gradient_accumulation_steps: int = 1,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        name: str = "accumulating_adam",
    ):
        if gradient_accumulation_steps < 1:
            raise ValueError(
                "`gradient_accumulation_steps` must be a positive integer. "
                f"Received: gradient_accumulation_steps={gradient_accumulation_steps}."
            )
        super().__init__(learning_rate, beta_1, beta_2, epsilon, name=name)
        self.batches_per_update = gradient_accumulation_steps

    def build(self, variables):
        super().build(variables)
        self._sums = self.add_optimizer_variables(variables, "gradient_sum")

    @property
    def iterations(self):
        return ops.floor_divide(super().iterations, self.batches_per_update)

    def update_step(self, gradient, variable, learning_rate):
        total = self._sums[self._get_variable_index(variable)]
        self.assign_add(total, gradient)
        update = super().update_step

        def learn():
            update(total / self.batches_per_update, variable, learning_rate)
            self.assign(total, ops.zeros_like(total))

        batches = super().iterations + 1
        ops.cond(batches % self.batches_per_update == 0, learn, lambda: None)

    def get_config(self):
        names = ("learning_rate", "beta_1", "beta_2", "epsilon", "name")
        config = super().get_config()
        return {
            **{name: config[name] for name in names},
            "gradient_accumulation_steps": self.batches_per_update,
        }
