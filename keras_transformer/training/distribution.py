"""Which devices a training runs on."""


def pick_strategy(name: str = "auto"):
    """Picks the `tf.distribute` strategy to build and train a model under.

    A batch is shared out among the devices; see `split_evenly`. With
    `TokenCrossentropy` the updates are those of one device, save that Keras
    clips gradients, if asked to, on each device by itself.

    Args:
        name: `"auto"`: mirrored if there is more than one GPU, else default.
            `"mirrored"`: a copy of the model on each GPU. `"default"`: one
            device.

    Returns:
        A `tf.distribute.Strategy`, for `with strategy.scope():`.

    Raises:
        ValueError: If there is no such strategy.

    Example:
        >>> with pick_strategy("default").scope():
        ...     model = keras.Sequential([keras.layers.Dense(1)])
    """
    import tensorflow as tf

    if name == "auto":
        several = len(tf.config.list_logical_devices("GPU")) > 1
        name = "mirrored" if several else "default"
    if name == "mirrored":
        return tf.distribute.MirroredStrategy()
    if name == "default":
        return tf.distribute.get_strategy()
    raise ValueError(
        f'`name` must be "auto", "mirrored" or "default". Received: name={name!r}.'
    )


def split_evenly(dataset, num_replicas: int):
    """Fills batches up until every replica gets equally many rows.

    Keras adds the parts of the first batch up to learn its shape, which parts
    of several shapes do not allow. The new rows are padding: they count for
    nothing in `TokenCrossentropy`, `TokenAccuracy` and `Perplexity`.

    Args:
        dataset: `tf.data.Dataset` of pairs of inputs and labels, nested tensors
            of shape `(batch, ...)`.
        num_replicas: `strategy.num_replicas_in_sync` of the strategy that the
            model is trained under.

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

    def fill(tensor):
        missing = -tf.shape(tensor)[0] % num_replicas
        return tf.pad(tensor, [[0, missing]] + [[0, 0]] * (tensor.shape.rank - 1))

    return dataset.map(lambda *batch: tf.nest.map_structure(fill, batch))
