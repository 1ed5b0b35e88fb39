"""Training on several devices and machines: strategies, workers, sums over replicas."""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator

import keras
from keras import ops

from keras_transformer.kernels import target


def pick_strategy(name: str = "auto"):
    """Picks the `tf.distribute` strategy to build and train a model under.

    Each batch is split among the devices; see `split_evenly`. With `TokenCrossentropy`,
    the updates are the same as on one device, except that Keras's own optimizers clip
    gradients on each device separately; `kt.training.Adam` clips their sum.

    Several machines train one model as workers: each runs the same program on the same
    data. Call this function before any other use of TensorFlow; it waits for all
    workers.

    Args:
        name: `"default"`: one device. `"mirrored"`: a copy of the model on each GPU of
            this machine. `"multi_worker"`: on each GPU of the machines in the
            environment variable `TF_CONFIG`. `"slurm"`: on each GPU of the Slurm job
            step that `srun` started. `"auto"`: multi-worker if `TF_CONFIG` names
            several workers, mirrored if there are several GPUs, otherwise default.
            Backends other than TensorFlow only have `"default"`.

    Returns:
        A `tf.distribute.Strategy`, for `with strategy.scope():`.

    Raises:
        ValueError: If the strategy is unknown, or the environment lists no workers.

    Example:
        >>> with pick_strategy("default").scope():
        ...     model = keras.Sequential([keras.layers.Dense(1)])
    """
    import tensorflow as tf

    if target.BACKEND != "tensorflow":
        num_workers = _workers_of_tf_config() if name == "auto" else 0
        if name not in ("auto", "default") or num_workers > 1:
            raise ValueError(
                f'`name` must be "default" on {target.BACKEND}: replicas and workers '
                f"are of TensorFlow. Received: name={name!r}, and {num_workers} "
                "workers in the environment variable `TF_CONFIG`."
            )
        name = "default"
    if name == "auto":
        if _workers_of_tf_config() > 1:
            name = "multi_worker"
        elif len(tf.config.list_logical_devices("GPU")) > 1:
            name = "mirrored"
        else:
            name = "default"
    if name == "default":
        return tf.distribute.get_strategy()
    if name == "mirrored":
        return tf.distribute.MirroredStrategy()
    if name not in ("multi_worker", "slurm"):
        raise ValueError(
            '`name` must be "auto", "default", "mirrored", "multi_worker" or "slurm". '
            f"Received: name={name!r}."
        )
    if name == "slurm":
        return _multi_worker_strategy(_slurm_resolver())
    if not _workers_of_tf_config():
        raise ValueError(
            "The environment variable `TF_CONFIG` must name the workers. Set it, or "
            'choose the strategy "auto".'
        )
    return _multi_worker_strategy()


def _multi_worker_strategy(cluster_resolver=None):
    """Returns a `MultiWorkerMirroredStrategy` that Keras 3 can train under.

    Keras reduces nested values, where TensorFlow accepts only tensors, and reduces
    scalars along an axis that they do not have. This strategy accepts both. A test
    fails when Keras no longer needs it.

    Reference:
        [keras#20585](https://github.com/keras-team/keras/issues/20585)
    """
    import tensorflow as tf

    class MultiWorkerStrategy(tf.distribute.MultiWorkerMirroredStrategy):
        def reduce(self, reduce_op, value, axis):
            """Reduces each value of a structure, scalars only over the replicas."""

            def reduce_one(value):
                is_scalar = self.experimental_local_results(value)[0].shape.rank == 0
                return reduce_value(reduce_op, value, None if is_scalar else axis)

            reduce_value = super().reduce
            return tf.nest.map_structure(reduce_one, value)

    return MultiWorkerStrategy(cluster_resolver)


def _workers_of_tf_config():
    """Returns the number of workers that `TF_CONFIG` names, 0 without it."""
    text = os.environ.get("TF_CONFIG") or "{}"
    try:
        cluster = json.loads(text).get("cluster", {})
        return sum(len(cluster.get(job, ())) for job in ("chief", "worker"))
    except (AttributeError, TypeError, ValueError):
        raise ValueError(
            "The environment variable `TF_CONFIG` must be JSON, such as "
            '{"cluster": {"worker": ["host0:2222", "host1:2222"]}, "task": {"type": '
            f'"worker", "index": 0}}}}. Received: TF_CONFIG={text}'
        ) from None


def _slurm_resolver():
    import tensorflow as tf

    if "SLURM_STEP_NODELIST" not in os.environ:
        raise ValueError(
            'The strategy "slurm" must be used in a job step of Slurm, whose nodes are '
            "in SLURM_STEP_NODELIST. Start the program with srun."
        )
    settings = {}
    if not shutil.which("nvidia-smi"):
        # TensorFlow cannot count GPUs without NVIDIA's driver, and places no task on
        # a node that has none. It never uses the GPUs that these settings name.
        tasks = int(os.environ.get("SLURM_STEP_NUM_TASKS", 1))
        settings = {"gpus_per_node": tasks, "gpus_per_task": 1, "auto_set_gpu": False}
    return tf.distribute.cluster_resolver.SlurmClusterResolver(**settings)


def split_evenly(dataset, num_replicas: int, pad_id: int = 0):
    """Pads batches with rows so that all replicas get the same number of rows.

    To learn the shape of the first batch, Keras sums the rows of its replicas, which
    fails if their number differs. `TokenCrossentropy`, `TokenAccuracy` and
    `Perplexity` ignore the rows of padding.

    Args:
        dataset: `tf.data.Dataset` of pairs of inputs and labels, nested tensors
            of shape `(batch, ...)`.
        num_replicas: `num_replicas_in_sync` of the strategy.
        pad_id: Id of the padding, the same as for the model, the loss and the metrics.

    Returns:
        A `tf.data.Dataset`; with one replica, `dataset` itself.

    Example:
        >>> import tensorflow as tf
        >>> batch = np.array([[7], [5], [3]]), np.array([[5], [3], [2]])
        >>> dataset = tf.data.Dataset.from_tensors(batch)
        >>> inputs, labels = next(iter(split_evenly(dataset, 2)))
        >>> labels.numpy().tolist()
        [[5], [3], [2], [0]]
    """
    import tensorflow as tf

    if num_replicas == 1:
        return dataset

    def pad(tensor):
        missing = -tf.shape(tensor)[0] % num_replicas
        paddings = [[0, missing]] + [[0, 0]] * (tensor.shape.rank - 1)
        return tf.pad(tensor, paddings, constant_values=pad_id)

    return dataset.map(lambda *batch: tf.nest.map_structure(pad, batch))


def _parts(dataset, num_parts, pad_id):
    """Returns a dataset of parts of equally many rows, `num_parts` for each batch."""
    import tensorflow as tf

    def into_parts(*batch):
        def split(tensor):
            shape = tf.concat([[num_parts, -1], tf.shape(tensor)[1:]], axis=0)
            return tf.reshape(tensor, shape)

        return tf.data.Dataset.from_tensor_slices(tf.nest.map_structure(split, batch))

    count = dataset.cardinality()
    count = tf.where(count > 0, count * num_parts, count)  # negative if it is endless
    parts = split_evenly(dataset, num_parts, pad_id).flat_map(into_parts)
    return parts.apply(tf.data.experimental.assert_cardinality(count))


class Workers:
    """The workers of a strategy: processes, usually one per machine.

    One of them, the chief, writes checkpoints and logs; the others write nothing. Under
    a strategy for one machine there is one worker, the chief. `index` is the number of
    this worker, from 0, and `count` is the number of workers.

    Args:
        strategy: A `tf.distribute.Strategy`; see `pick_strategy`.

    Example:
        >>> workers = Workers(kt.training.pick_strategy("default"))
        >>> workers.is_chief, workers.gather(7)
        (True, [7])
    """

    def __init__(self, strategy):
        self.strategy = strategy
        self.num_replicas = strategy.num_replicas_in_sync
        resolver = strategy.cluster_resolver
        cluster = resolver.cluster_spec().as_dict() if resolver else {}
        tasks = [
            (job, index)
            for job in ("chief", "worker")
            for index in range(len(cluster.get(job, ())))
        ]
        self.count = len(tasks) or 1
        self.index = 0
        if self.count > 1:
            self.index = tasks.index((resolver.task_type, resolver.task_id))
        self.is_chief = self.index == 0

    def own_batches(self, dataset, pad_id: int = 0):
        """Distributes batches when each worker has read its own part of them.

        `fit` would treat the parts as whole batches that every worker has read, and
        split them among the workers. Here, each part is padded and split as in
        `split_evenly`, but only among the replicas of its worker.

        Args:
            dataset: `tf.data.Dataset` of this worker's batches, the same number as on
                every worker, such as `text.prepared_dataset` with
                `num_shards=workers.count` and `shard_index=workers.index`.
            pad_id: Id of the padding.

        Returns:
            A `tf.distribute.DistributedDataset`, for `fit`; with one worker, the result
            of `split_evenly`.
        """
        if self.count == 1:
            return split_evenly(dataset, self.num_replicas, pad_id)
        parts = _parts(dataset, self.num_replicas // self.count, pad_id)
        return self.strategy.distribute_datasets_from_function(lambda _: parts)

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
        """Turns TensorFlow's errors about lost workers into a clear one-line error.

        Raises:
            ConnectionError: If TensorFlow can no longer reach one of the workers.
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


def is_trained_by_workers(model) -> bool:
    """Returns whether several workers train a model.

    They must then read metrics together, whose values are sums over all of them.
    """
    is_tensorflow = target.BACKEND == "tensorflow"
    return is_tensorflow and Workers(model.distribute_strategy).count > 1


class StopTogether(keras.callbacks.Callback):
    """Stops training on all workers as soon as one of them stops.

    List it after the callbacks that set `model.stop_training`.

    Args:
        workers: The `Workers` of the strategy that the model is trained under.
    """

    def __init__(self, workers: Workers):
        super().__init__()
        self.workers = workers

    def on_epoch_end(self, epoch, logs=None):
        stop = bool(self.model.stop_training)
        self.model.stop_training = any(self.workers.gather(stop))


def num_replicas() -> int:
    """Returns the number of replicas that train together, 1 outside of replicas."""
    context = _replica_context()
    return 1 if context is None else context.num_replicas_in_sync


def num_replicas_of_strategy() -> int:
    """Returns the number of replicas of the strategy in scope, 1 without a strategy."""
    if target.BACKEND != "tensorflow":
        return 1
    import tensorflow as tf

    return tf.distribute.get_strategy().num_replicas_in_sync


def sum_gradients(gradients):
    """Sums gradients over all replicas, in one exchange; returns a list.

    Those of the calling replica may be tensors, `tf.IndexedSlices`, or None.
    """
    if num_replicas() == 1:
        return list(gradients)
    given = [gradient for gradient in gradients if gradient is not None]
    sums = iter(_replica_context().all_reduce("SUM", given))
    return [None if gradient is None else next(sums) for gradient in gradients]


def update_if(condition, update, variables):
    """Calls `update`, which assigns to `variables`, on all replicas or on none.

    The condition is a boolean tensor of no dimensions, the same on every replica. This
    is `ops.cond(condition, update, lambda: None)`, with two exceptions. Inside of
    `cond`, the replicas of a `MirroredStrategy`, of a single one too, could not wait
    for each other, so there the condition is evaluated outside of the replicas. On JAX
    a condition cannot assign to variables, so `update` always runs, and is undone if
    the condition does not hold.
    """
    if target.BACKEND == "jax":
        before = [ops.convert_to_tensor(variable) for variable in variables]
        update()
        for variable, old in zip(variables, before, strict=True):
            variable.assign(ops.where(condition, ops.convert_to_tensor(variable), old))
        return
    replica = _replica_context()
    if replica is not None:
        import tensorflow as tf

        distribute = tf.__internal__.distribute
        if not distribute.strategy_supports_no_merge_call():

            def on_all_replicas(strategy, conditions):
                first = strategy.experimental_local_results(conditions)[0]
                ops.cond(first, lambda: strategy.run(update), lambda: None)

            replica.merge_call(on_all_replicas, args=(condition,))
            return
    ops.cond(condition, update, lambda: None)


def sum_over_replicas(*values):
    """Sums float32 scalars over all replicas, in one exchange; returns a list.

    There are no gradients.
    """
    values = ops.stop_gradient(ops.stack(values))
    if num_replicas() > 1:
        values = _replica_context().all_reduce("SUM", values)
    return ops.unstack(values)


def _replica_context():
    if target.BACKEND != "tensorflow":
        return None
    import tensorflow as tf

    return tf.distribute.get_replica_context()
