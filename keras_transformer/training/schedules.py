"""The learning rate over the course of training."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_transformer")
class InverseSquareRootSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Rises linearly while warming up, then falls as 1 / sqrt(step).

    `scale * hidden_dim ** -0.5 * min(step ** -0.5, step * warmup_steps ** -1.5)`.

    Args:
        hidden_dim: Width of the model: wider ones learn more slowly.
        warmup_steps: Steps until the peak.
        scale: Factor of the whole; `peak` sets it by the highest rate.

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
        for name, value in (
            ("hidden_dim", hidden_dim),
            ("warmup_steps", warmup_steps),
            ("scale", scale),
        ):
            if value <= 0:
                raise ValueError(
                    f"`{name}` must be positive. Received: {name}={value}."
                )
        self.hidden_dim = hidden_dim
        self.warmup_steps = warmup_steps
        self.scale = scale

    @classmethod
    def with_peak(cls, peak: float, hidden_dim: int, warmup_steps: int = 4000):
        """The schedule whose highest rate, after `warmup_steps`, is `peak`."""
        return cls(hidden_dim, warmup_steps, peak * (hidden_dim * warmup_steps) ** 0.5)

    def __call__(self, step):
        # Keras counts steps from 0, the paper from 1.
        step = ops.cast(step, "float32") + 1.0
        slope = step * self.warmup_steps**-1.5
        return self.scale * self.hidden_dim**-0.5 * ops.minimum(step**-0.5, slope)

    def get_config(self):
        return {
            "hidden_dim": self.hidden_dim,
            "warmup_steps": self.warmup_steps,
            "scale": self.scale,
        }


@keras.saving.register_keras_serializable(package="keras_transformer")
class Cooldown(keras.optimizers.schedules.LearningRateSchedule):
    """Another schedule, brought down to zero at the end of a training.

    From step `start` on, the rate of `schedule` is multiplied by a factor that
    falls evenly from one to zero within `steps`.

    Args:
        schedule: The schedule that is cooled down.
        start: Step at which the factor is one for the last time.
        steps: Steps until it is zero.

    Call arguments:
        step: Number of the step, from 0.

    Returns:
        The learning rate, a float32 tensor of no dimensions.

    Raises:
        ValueError: If `start` is negative or `steps` is not positive.

    Example:
        >>> schedule = Cooldown(InverseSquareRootSchedule(512), start=10_000, steps=100)
        >>> float(schedule(10_100))
        0.0

    Reference:
        [Hägele et al., 2024](https://arxiv.org/abs/2405.18392), section 3
    """

    def __init__(self, schedule, start: int, steps: int):
        if start < 0 or steps < 1:
            raise ValueError(
                "`start` must not be negative, and `steps` must be positive. "
                f"Received: start={start}, steps={steps}."
            )
        self.schedule = schedule
        self.start = start
        self.steps = steps

    def __call__(self, step):
        past = (ops.cast(step, "float32") - self.start) / self.steps
        return self.schedule(step) * (1.0 - ops.clip(past, 0.0, 1.0))

    def get_config(self):
        return {
            "schedule": keras.saving.serialize_keras_object(self.schedule),
            "start": self.start,
            "steps": self.steps,
        }

    @classmethod
    def from_config(cls, config):
        schedule = keras.saving.deserialize_keras_object(config["schedule"])
        return cls(**{**config, "schedule": schedule})
