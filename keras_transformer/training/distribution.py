"""Strategies for training on several devices and machines."""

import json
import os
import shutil


def pick_strategy(name: str = "auto"):
    """Picks the `tf.distribute` strategy to build and train a model under.

    Each batch is split among the devices; see `split_evenly`. With
    `TokenCrossentropy` the updates are those of one device, except that Keras's own
    optimizers clip gradients, if asked to, on each device separately;
    `kt.training.Adam` clips their sum.

    Several machines train one model as workers: each runs the same program on the same
    data. Call this before any other use of TensorFlow; it waits for all workers.

    Args:
        name: `"default"`: one device. `"mirrored"`: a copy of the model on each GPU
            of this machine. `"multi_worker"`: on each GPU of the machines in the
            environment variable `TF_CONFIG`. `"slurm"`: on each GPU of the Slurm job
            step that `srun` started. `"auto"`: multi-worker if `TF_CONFIG` names
            several workers, mirrored if there are several GPUs, else default.

    Returns:
        A `tf.distribute.Strategy`, for `with strategy.scope():`.

    Raises:
        ValueError: If the strategy is unknown, or the environment names no workers.

    Example:
        >>> with pick_strategy("default").scope():
        ...     model = keras.Sequential([keras.layers.Dense(1)])
    """
    import tensorflow as tf

    if name == "auto":
        if connects_workers(name):
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
    from keras_transformer.training.multi_worker import MultiWorkerStrategy

    if name == "slurm":
        return MultiWorkerStrategy(cluster_resolver=_slurm_resolver())
    if not _workers_of_tf_config():
        raise ValueError(
            "The environment variable `TF_CONFIG` must name the workers. Set it, or "
            'name the strategy "auto".'
        )
    return MultiWorkerStrategy()


def connects_workers(name: str) -> bool:
    """Returns whether `pick_strategy` connects workers under this name."""
    if name == "auto":
        return _workers_of_tf_config() > 1
    return name in ("multi_worker", "slurm")


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
    """Pads batches with rows so that all replicas get the same number.

    To learn the shape of the first batch, Keras sums the rows of its replicas, which
    fails if their number differs. `TokenCrossentropy`, `TokenAccuracy` and
    `Perplexity` ignore the rows of padding.

    Args:
        dataset: `tf.data.Dataset` of pairs of inputs and labels, nested tensors
            of shape `(batch, ...)`.
        num_replicas: `num_replicas_in_sync` of the strategy.
        pad_id: Id of the padding, that of the model, the loss and the metrics.

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
