"""Learning-rate schedules."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_transformer")
class InverseSquareRootSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Rises linearly while warming up, then falls as 1 / sqrt(step).

    `scale * hidden_dim ** -0.5 * min(step ** -0.5, step * warmup_steps ** -1.5)`.

    Args:
        hidden_dim: Width of the model; wider models get lower rates.
        warmup_steps: Number of steps until the peak.
        scale: Factor of every rate; `with_peak` computes it from the highest rate.

    Call arguments:
        step: Number of the step, from 0.

    Returns:
        The learning rate, a float32 tensor of no dimensions.

    Raises:
        ValueError: If an argument is not positive.

    Example:
        >>> schedule = InverseSquareRootSchedule(hidden_dim=512)
        >>> round(float(schedule(3999)), 6)
        0.000699

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 5.3
    """

    def __init__(self, hidden_dim: int, warmup_steps: int = 4000, scale: float = 1.0):
        self.hidden_dim = hidden_dim
        self.warmup_steps = warmup_steps
        self.scale = scale
        if min(hidden_dim, warmup_steps, scale) <= 0:
            raise ValueError(
                "`hidden_dim`, `warmup_steps` and `scale` must be positive. Received: "
                f"hidden_dim={hidden_dim}, warmup_steps={warmup_steps}, scale={scale}."
            )

    @classmethod
    def with_peak(cls, peak: float, hidden_dim: int, warmup_steps: int = 4000):
        """Returns the schedule whose highest rate, after `warmup_steps`, is `peak`.

        Raises:
            ValueError: As in the constructor, or if `peak` is not positive.
        """
        if not peak > 0:
            raise ValueError(f"`peak` must be positive. Received: peak={peak}.")
        return cls(hidden_dim, warmup_steps, peak * (hidden_dim * warmup_steps) ** 0.5)

    def __call__(self, step):
        # Keras counts steps from 0, the paper from 1.
        step = ops.cast(step, "float32") + 1.0
        warmup = step * self.warmup_steps**-1.5
        return self.scale * self.hidden_dim**-0.5 * ops.minimum(step**-0.5, warmup)

    def get_config(self):
        names = ("hidden_dim", "warmup_steps", "scale")
        return {name: getattr(self, name) for name in names}


@keras.saving.register_keras_serializable(package="keras_transformer")
class Cooldown(keras.optimizers.schedules.LearningRateSchedule):
    """Decays another schedule linearly to zero at the end of training.

    From step `start` on, the rate of `schedule` is multiplied by a factor that falls
    linearly from one to zero within `steps` steps.

    Args:
        schedule: The schedule to decay.
        start: The last step at which the factor is one.
        steps: Number of steps until the factor is zero.

    Raises:
        ValueError: If `start` is negative or `steps` is not positive.

    Example:
        >>> schedule = Cooldown(InverseSquareRootSchedule(512), start=10_000, steps=100)
        >>> float(schedule(10_100))
        0.0

    Reference:
        [Hägele et al., 2024](https://arxiv.org/abs/2405.18392), section 3
    """

    def __init__(
        self,
        schedule: keras.optimizers.schedules.LearningRateSchedule,
        start: int,
        steps: int,
    ):
        if start < 0 or steps < 1:
            raise ValueError(
                "`start` must not be negative, and `steps` must be positive. "
                f"Received: start={start}, steps={steps}."
            )
        self.schedule = schedule
        self.start = start
        self.steps = steps

    def __call__(self, step):
        elapsed = (ops.cast(step, "float32") - self.start) / self.steps
        return self.schedule(step) * (1.0 - ops.clip(elapsed, 0.0, 1.0))

    def get_config(self):
        schedule = keras.saving.serialize_keras_object(self.schedule)
        return {"schedule": schedule, "start": self.start, "steps": self.steps}

    @classmethod
    def from_config(cls, config):
        schedule = keras.saving.deserialize_keras_object(config["schedule"])
        return cls(**{**config, "schedule": schedule})
