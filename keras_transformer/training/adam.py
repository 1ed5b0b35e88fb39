"""Adam as the paper sets it, in one pass, from several batches if wished for."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_transformer")
class Adam(keras.optimizers.Adam):
    """Adam with the paper's settings as defaults.

    It makes the updates of `keras.optimizers.Adam`, with two differences:

    - On TensorFlow an update is one operation that goes over weight, gradient
      and moments once, where Keras takes twelve. It counts where XLA does not
      compile the step.
    - `gradient_accumulation_steps` makes one update of the mean gradient of
      several batches: a large batch where memory holds a small one. It works
      under `MirroredStrategy`, where that of Keras fails: Keras decides whether
      to update before the gradients of the replicas are added up, this class
      after it, for each variable. As in Keras, `iterations` count updates.

    Args:
        learning_rate: A float, or a schedule.
        beta_1: Decay of the mean gradient.
        beta_2: Decay of the mean squared gradient.
        epsilon: Added to the root of the mean squared gradient.
        gradient_accumulation_steps: Number of batches to an update.
        name: Name of the optimizer.

    Raises:
        ValueError: If `gradient_accumulation_steps` is not positive.

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
        if gradient_accumulation_steps < 1:
            raise ValueError(
                "`gradient_accumulation_steps` must be a positive integer. "
                f"Received: gradient_accumulation_steps={gradient_accumulation_steps}."
            )
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
            self._update(gradient, variable, learning_rate)
            return
        index = self._get_variable_index(variable)
        total = self._sums[index]
        self.assign_add(total, gradient)

        def learn():
            self._update(total / self.batches_per_update, variable, learning_rate)
            self.assign(total, ops.zeros(total.shape, total.dtype))

        batches = super().iterations + 1
        learns = batches % self.batches_per_update == 0
        if keras.backend.backend() != "jax":
            ops.cond(learns, learn, lambda: None)
            return
        # A condition of JAX may assign nothing.
        states = variable, total, self._momentums[index], self._velocities[index]
        before = [ops.convert_to_tensor(state) for state in states]
        learn()
        for state, old in zip(states, before, strict=True):
            self.assign(state, ops.where(learns, ops.convert_to_tensor(state), old))

    def _update(self, gradient, variable, learning_rate):
        if keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            if not isinstance(gradient, tf.IndexedSlices):
                self._update_in_one_pass(gradient, variable, learning_rate)
                return
        super().update_step(gradient, variable, learning_rate)

    def _update_in_one_pass(self, gradient, variable, learning_rate):
        import tensorflow as tf

        index = self._get_variable_index(variable)
        update = tf.cast(self.iterations + 1, variable.dtype)
        beta_1, beta_2, epsilon, rate = (
            tf.cast(value, variable.dtype)
            for value in (self.beta_1, self.beta_2, self.epsilon, learning_rate)
        )
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=beta_1**update,
            beta2_power=beta_2**update,
            lr=rate,
            beta1=beta_1,
            beta2=beta_2,
            epsilon=epsilon,
            grad=tf.cast(gradient, variable.dtype),
        )

    def get_config(self):
        names = ("learning_rate", "beta_1", "beta_2", "epsilon", "name")
        config = super().get_config()
        return {
            **{name: config[name] for name in names},
            "gradient_accumulation_steps": self.batches_per_update,
        }
