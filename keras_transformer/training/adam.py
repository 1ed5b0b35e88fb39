"""Adam with the settings of the paper and gradient accumulation."""

import keras
from keras import ops

from keras_transformer.checks import check_positive_integers
from keras_transformer.kernels.adam import adam_update, update_if
from keras_transformer.kernels.keras_private import adam_moments, variable_index


@keras.saving.register_keras_serializable(package="keras_transformer")
class Adam(keras.optimizers.Adam):
    """Adam with the paper's settings as defaults, and gradient accumulation.

    It makes the updates of `keras.optimizers.Adam`, with two differences:

    - On TensorFlow an update is one operation; see `kernels.adam`.
    - `gradient_accumulation_steps` makes one update of the mean gradient of several
      batches, so that a large batch fits into little memory. Unlike the argument of
      Keras it works under `MirroredStrategy`, since each variable is updated after the
      replicas' gradients have been summed. As in Keras, `iterations` counts updates.

    Args:
        learning_rate: A float, or a schedule.
        beta_1: Decay rate of the mean gradient.
        beta_2: Decay rate of the mean squared gradient.
        epsilon: Added to the square root of the mean squared gradient.
        gradient_accumulation_steps: Number of batches per update.
        name: Name of the optimizer.

    Raises:
        ValueError: If `gradient_accumulation_steps` is not a positive integer.

    Example:
        >>> model = keras.Sequential([keras.layers.Dense(1)])
        >>> model.compile(Adam(1e-3, gradient_accumulation_steps=4), "mse")

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 5.3;
        accumulation: [Ott et al., 2018](https://arxiv.org/abs/1806.00187)
    """

    def __init__(
        self,
        learning_rate=1e-3,
        beta_1: float = 0.9,
        beta_2: float = 0.98,
        epsilon: float = 1e-9,
        gradient_accumulation_steps: int = 1,
        name: str = "adam",
    ):
        check_positive_integers(gradient_accumulation_steps=gradient_accumulation_steps)
        super().__init__(learning_rate, beta_1, beta_2, epsilon, name=name)
        self.batches_per_update = gradient_accumulation_steps

    def build(self, variables):
        super().build(variables)
        if self.batches_per_update > 1:
            self._sums = self.add_optimizer_variables(variables, "gradient_sum")

    @property
    def iterations(self):
        batches = super().iterations
        if self.batches_per_update == 1:
            return batches
        return ops.floor_divide(batches, self.batches_per_update)

    def update_step(self, gradient, variable, learning_rate):
        if self.batches_per_update == 1:
            adam_update(self, gradient, variable, learning_rate)
            return
        gradient_sum = self._sums[variable_index(self, variable)]
        self.assign_add(gradient_sum, gradient)

        def update():
            mean = gradient_sum / self.batches_per_update
            adam_update(self, mean, variable, learning_rate)
            self.assign(gradient_sum, ops.zeros(gradient_sum.shape, gradient_sum.dtype))

        is_complete = (super().iterations + 1) % self.batches_per_update == 0
        changed = [variable, gradient_sum, *adam_moments(self, variable)]
        update_if(is_complete, update, changed)

    def get_config(self):
        names = ("learning_rate", "beta_1", "beta_2", "epsilon", "name")
        config = super().get_config()
        return {
            **{name: config[name] for name in names},
            "gradient_accumulation_steps": self.batches_per_update,
        }
