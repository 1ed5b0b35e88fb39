"""What `fit` shows of a training: a line for every epoch, and a bar in a terminal."""

import statistics
import time
from collections import deque

import keras
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress

from keras_transformer.training.distribution import is_trained_by_workers
from keras_transformer.training.gradient_norm import MeasuredOptimizer
from keras_transformer.training.metrics import Padding

_STEPS_OF_ESTIMATE = 50


class ShowProgress(keras.callbacks.Callback):
    """Measures every epoch, and shows how far a training is, with `verbose=0` of `fit`.

    Later callbacks find in the logs of an epoch its learning rate, its seconds, the
    tokens of a second, and the mean norm of its gradients, if the optimizer is an
    `Adam` or `Muon` of this package. The tokens are real target tokens, after the first
    step and before the validation; several workers measure none.

    Every epoch has one line. In a terminal, within `with callback.bar:`, a bar has the
    steps of the epoch, and the time left in the epoch and in the training. Elsewhere a
    line estimates the time after 50 steps.

    Args:
        steps: Steps of an epoch.

    Example:
        >>> model = keras.Sequential([keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse", metrics=[Padding()])
        >>> data = np.ones((5, 3)), np.ones((5, 1))
        >>> callback = ShowProgress(steps=5)
        >>> how = {"batch_size": 1, "verbose": 0, "callbacks": [callback]}
        >>> with callback.bar:
        ...     _ = model.fit(*data, validation_data=data, **how)
        Epoch 1/1 - ... s - loss: ...
    """

    def __init__(self, steps: int):
        super().__init__()
        self.steps = steps
        console = Console()
        columns = "{task.description}", BarColumn(10), MofNCompleteColumn()
        self.bar = Progress(
            *(*columns, "{task.fields[speed]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self.bar.add_task("", total=steps, speed="")
        self._durations: deque[float] = deque(maxlen=100)  # seconds of the last steps
        self._after_steps = 0.0  # seconds from the last step of an epoch to its end

    def on_epoch_begin(self, epoch, logs=None):
        self._start = self._latest = time.monotonic()
        self._epochs_left = self.params["epochs"] - epoch - 1
        self._first, self._done = None, 0
        name = f"Epoch {epoch + 1}/{self.params['epochs']}"
        self.bar.reset(self._task, description=name, speed="")

    def on_train_batch_end(self, batch, logs=None):
        now, steps = time.monotonic(), batch + 1 - self._done
        if self._first is None:
            self._first = self._progress()  # after a step that may be compiled
        else:
            self._durations.append((now - self._latest) / steps)
        self._latest, self._done = now, batch + 1
        if not self._durations:
            return
        in_epoch, in_all = map(_in_words, self._seconds_left())
        if not self.bar.disable:
            tokens, seconds = self._progress() - self._first
            speed = f"{tokens / seconds:,.0f} tokens/s, " if tokens else ""
            speed += f"{in_epoch} left, {in_all} in all"
            self.bar.update(self._task, completed=self._done, speed=speed)
        elif len(self._durations) == _STEPS_OF_ESTIMATE and not self._after_steps:
            self._print(
                f"About {in_all} are left, validation aside, at "
                f"{1 / statistics.median(self._durations):.3g} steps a second."
            )

    def on_test_begin(self, logs=None):
        self._last = self._progress()

    def on_epoch_end(self, epoch, logs=None):
        tokens, seconds = self._last - self._first
        if tokens:
            logs["tokens_per_second"] = tokens / seconds
        optimizer = self.model.optimizer
        logs["learning_rate"] = float(optimizer.learning_rate)
        if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
            optimizer = optimizer.inner_optimizer
        if isinstance(optimizer, MeasuredOptimizer):
            norm = optimizer.pop_gradient_norm()
            if norm is not None:
                logs["gradient_norm"] = norm
        measured = [f"{name}: {_in_digits(value)}" for name, value in logs.items()]
        now = time.monotonic()
        logs["seconds"] = now - self._start
        self._after_steps = now - self._latest
        parts = [_in_words(logs["seconds"])]
        if self._epochs_left:
            parts.append(f"{_in_words(self._seconds_left()[1])} left")
        name = f"Epoch {epoch + 1}/{self.params['epochs']}"
        self._print(" - ".join([name, ", ".join(parts), *measured]))

    def _progress(self):
        """Returns the tokens of the epoch so far, 0 if they are not known, and now."""
        # One worker alone writes. The last metric of a model holds those of `compile`.
        is_alone = not is_trained_by_workers(self.model)
        metrics = self.model.metrics[-1].metrics if is_alone else ()
        tokens = sum(x.num_tokens() for x in metrics if isinstance(x, Padding))
        return np.array([tokens, time.monotonic()])

    def _seconds_left(self):
        """Returns the seconds that are left in the epoch, and in the training."""
        step = statistics.median(self._durations or [self._latest - self._start])
        in_epoch = step * (self.steps - self._done)
        whole = step * self.steps + self._after_steps
        return in_epoch, in_epoch + self._epochs_left * whole

    def _print(self, line):
        self.bar.console.print(line, soft_wrap=True, highlight=False, markup=False)


def _in_words(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _in_digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
