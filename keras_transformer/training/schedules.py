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
