"""Which devices a training runs on."""


def pick_strategy(name: str = "auto"):
    """Picks the `tf.distribute` strategy to build and train a model under.

    Every strategy splits the batches that it is given, so batches are those
    of all devices together, and the updates those of one device.

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
