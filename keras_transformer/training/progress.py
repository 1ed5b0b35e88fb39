"""The progress of `fit`: a line for every epoch, and a bar in a terminal."""

import shutil
import statistics
import sys
import time
from collections import deque

import keras

from keras_transformer.training.distribution import is_trained_by_workers
from keras_transformer.training.gradient_norm import MeasuredOptimizer
from keras_transformer.training.metrics import Padding


class ShowProgress(keras.callbacks.Callback):
    """Measures every epoch, and shows the progress of a `fit` with `verbose=0`.

    It adds to the logs of each epoch, for later callbacks: the learning rate, the time
    in seconds, the tokens per second and, if the optimizer is an `Adam` or `Muon` of
    this package, the mean gradient norm. It counts real target tokens, between the
    first step and validation; with several workers, it counts none.

    Every epoch prints one line. In a terminal, a bar shows the steps of the epoch, and
    the time left in the epoch and in training. Elsewhere, a line estimates the time
    after 50 steps.

    Args:
        steps: Number of steps per epoch.
    """

    def __init__(self, steps: int):
        super().__init__()
        self.steps = steps
        self._durations: deque[float] = deque(maxlen=100)  # seconds of the last steps
        self._after_steps = 0.0  # seconds from the last step of an epoch to its end

    def on_epoch_begin(self, epoch, logs=None):
        self._start = self._latest = time.monotonic()
        self._done = self._shown = 0
        self._speed: float | None = None
        self._epochs_left = self.params["epochs"] - epoch - 1
        self._name = f"Epoch {epoch + 1}/{self.params['epochs']}"

    def on_train_batch_end(self, batch, logs=None):
        now, steps = time.monotonic(), batch + 1 - self._done
        if self._done:
            self._durations.append((now - self._latest) / steps)
        else:  # after a step that may be compiled
            self._first_time, self._first_tokens = now, self._tokens()
        self._latest, self._done = now, batch + 1
        if self._durations and sys.stdout.isatty():
            if now - self._shown > 0.2 or self._done == self.steps:
                self._shown = now
                self._show_bar()
        elif len(self._durations) == 50 and not self._after_steps:
            print(
                f"About {_in_words(self._seconds_left()[1])} left, without validation, "
                f"at {1 / statistics.median(self._durations):.3g} steps per second"
            )

    def _show_bar(self):
        speed, (in_epoch, in_all) = self._tokens_per_second(), self._seconds_left()
        bar = f"{'━' * (10 * self._done // self.steps):─<10}"
        line = f"{self._name} {bar} {self._done}/{self.steps}, "
        line += f"{speed:,.0f} tokens/s, " if speed else ""
        line += f"{_in_words(in_epoch)} left in the epoch, {_in_words(in_all)} in all"
        width = shutil.get_terminal_size().columns - 1
        print(f"\r{line:{width}.{width}}", end="", flush=True)

    def on_test_begin(self, logs=None):
        self._speed = self._tokens_per_second()

    def on_epoch_end(self, epoch, logs=None):
        # A validation has reset the metrics.
        speed = self._tokens_per_second() if self._speed is None else self._speed
        if speed:
            logs["tokens_per_second"] = speed
        optimizer = self.model.optimizer
        logs["learning_rate"] = float(optimizer.learning_rate)
        if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
            optimizer = optimizer.inner_optimizer
        if isinstance(optimizer, MeasuredOptimizer):
            norm = optimizer.pop_gradient_norm()
            if norm is not None:
                logs["gradient_norm"] = norm
        line = "".join(
            f" - {name}: " + (f"{value:,.0f}" if value >= 1000 else f"{value:.4g}")
            for name, value in logs.items()
        )
        now = time.monotonic()
        logs["seconds"], self._after_steps = now - self._start, now - self._latest
        left = f", {_in_words(self._seconds_left()[1])} left" * bool(self._epochs_left)
        line = f"{self._name} - {_in_words(logs['seconds'])}{left}{line}"
        clear = "\r\x1b[K" if sys.stdout.isatty() else ""
        print(clear + line, flush=True)

    def _tokens_per_second(self):
        seconds = self._latest - self._first_time
        return (self._tokens() - self._first_tokens) / seconds if seconds else 0.0

    def _tokens(self):
        """Returns the tokens of the epoch so far; 0 if they are not known."""
        if is_trained_by_workers(self.model):
            return 0.0  # they would have to read a metric together
        # The last metric of a model holds the metrics of `compile`.
        metrics = getattr(self.model.metrics[-1], "metrics", ())
        return sum(x.num_tokens() for x in metrics if isinstance(x, Padding))

    def _seconds_left(self):
        """Returns the seconds that are left in the epoch, and in the training."""
        step = statistics.median(self._durations or [self._latest - self._start])
        in_epoch = step * (self.steps - self._done)
        whole = step * self.steps + self._after_steps
        return in_epoch, in_epoch + self._epochs_left * whole


def _in_words(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
