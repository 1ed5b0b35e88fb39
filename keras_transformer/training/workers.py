"""The processes that train one model together, and the one that saves it."""

import contextlib
from collections.abc import Iterator

import keras


class Workers:
    """The workers of a strategy: processes, usually one per machine.

    One of them, the chief, writes checkpoints and logs; the others write nothing.
    Under a strategy for one machine there is one worker, the chief.

    Args:
        strategy: A `tf.distribute.Strategy`; see `pick_strategy`.

    Example:
        >>> workers = Workers(kt.training.pick_strategy("default"))
        >>> workers.is_chief, workers.gather(7)
        (True, [7])
    """

    def __init__(self, strategy):
        self.strategy = strategy
        resolver = strategy.cluster_resolver
        cluster = resolver.cluster_spec().as_dict() if resolver else {}
        self.count = sum(len(cluster.get(job, ())) for job in ("chief", "worker")) or 1
        first = ("chief" if "chief" in cluster else "worker", 0)
        self.is_chief = (
            self.count == 1 or (resolver.task_type, resolver.task_id) == first
        )

    def gather(self, number: int) -> list[int]:
        """Collects one number from every worker, in the order of the workers.

        Every worker must call it, and waits until all others have.
        """
        if self.count == 1:
            return [number]
        import tensorflow as tf

        def gather_all():
            replica = tf.distribute.get_replica_context()
            return replica.all_gather(tf.constant([number], tf.int64), axis=0)

        numbers = tf.function(self.strategy.run)(gather_all)
        numbers = self.strategy.experimental_local_results(numbers)[0].numpy().tolist()
        return numbers[:: len(numbers) // self.count]  # one per worker

    def wait(self) -> None:
        """Waits until all workers have called it."""
        self.gather(0)

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Turns TensorFlow's errors about lost workers into one clear line.

        Raises:
            ConnectionError: If TensorFlow no longer reaches one of the workers.
        """
        if self.count == 1:
            yield
            return
        import tensorflow as tf

        try:
            yield
        except (
            tf.errors.AbortedError,
            tf.errors.CancelledError,
            tf.errors.DeadlineExceededError,
            tf.errors.UnavailableError,
        ) as error:
            raise ConnectionError(
                f"One of the {self.count} workers has stopped, so this one stops too; "
                "the output of the other may say why. Start all of them again: they "
                "continue after the last checkpoint."
            ) from error


class StopTogether(keras.callbacks.Callback):
    """Stops training on all workers as soon as one of them stops.

    It comes after the callbacks that set `model.stop_training`.

    Args:
        workers: The `Workers` of the strategy that the model is trained under.
    """

    def __init__(self, workers: Workers):
        super().__init__()
        self.workers = workers

    def on_epoch_end(self, epoch, logs=None):
        stop = bool(self.model.stop_training)
        self.model.stop_training = any(self.workers.gather(stop))
