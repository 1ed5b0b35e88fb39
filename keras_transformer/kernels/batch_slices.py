"""Training steps of several parts, one for each processor."""

import itertools
import types

import keras

from keras_transformer.training.losses import TokenCrossentropy


def train_in_parts(model, parts: int = 2):
    """Lets `model.fit` take every batch in parts, which are computed at once.

    TensorFlow shares each operation among the processors, one after the other,
    and they wait for each other at its end. With one thread to an operation and
    a part of the batch to each processor they wait once a step:

    ```python
    tf.config.threading.set_intra_op_parallelism_threads(1)  # before all else
    model = train_in_parts(kt.models.Transformer(...))
    model.compile(
        kt.training.Adam(), kt.training.TokenCrossentropy(), jit_compile=False
    )
    ```

    The loss, its gradient and the metrics are those of the whole batch, but for
    rounding, and for what dropout draws. For one device, and for graph mode: XLA
    shares a step among processors in its own way.

    Args:
        model: A Keras model whose loss will be a `TokenCrossentropy` and whose
            metrics add up over batches.
        parts: How many, such as there are processors.

    Returns:
        `model`.

    Raises:
        ValueError: If `parts` is not positive, the backend is not TensorFlow, or,
            in training, if the loss is another or there are several replicas.

    Example:
        >>> model = train_in_parts(keras.Sequential([keras.layers.Embedding(5, 5)]))
        >>> model.compile("sgd", TokenCrossentropy())
        >>> ids = np.array([[1, 2, 3, 0], [4, 0, 0, 0]])
        >>> history = model.fit(ids, ids, verbose=0)
    """
    if parts < 1:
        raise ValueError(
            f"`parts` must be a positive integer. Received: parts={parts}."
        )
    backend = keras.backend.backend()
    if backend != "tensorflow":
        raise ValueError(
            "`train_in_parts` shapes TensorFlow's steps, and needs its backend. "
            f"Received: KERAS_BACKEND={backend}."
        )
    model.train_step = types.MethodType(_step_in(parts), model)
    model.train_function = None  # That of the whole batch, if Keras made one already.
    return model


def _step_in(parts):
    """The training step of `keras.Model` in TensorFlow, in parts."""
    import tensorflow as tf

    def train_step(model, data):
        if not isinstance(model.loss, TokenCrossentropy):
            raise ValueError(
                "A step in parts needs `TokenCrossentropy` as the loss, to weigh the "
                f"parts by their tokens. Received: loss={model.loss!r}."
            )
        if tf.distribute.get_strategy().num_replicas_in_sync > 1:
            raise ValueError(
                "`train_in_parts` is for one device. Received: a strategy of "
                f"{tf.distribute.get_strategy().num_replicas_in_sync} replicas."
            )
        x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
        rows = y.shape[0] or tf.shape(y)[0]
        ends = [rows * i // parts for i in range(parts + 1)]
        losses, counts = [], []
        with tf.GradientTape() as tape:
            for start, end in itertools.pairwise(ends):
                x_, y_, weights_ = _rows((x, y, weights), start, end)
                y_pred = model(x_, training=True)
                loss = model.compute_loss(x_, y_, y_pred, weights_, training=True)
                losses.append(loss)
                counts.append(tf.reduce_sum(model.loss.weights(y_, weights_)))
                model.compute_metrics(x_, y_, y_pred, weights_)
            shares = tf.stack(counts) / tf.maximum(tf.add_n(counts), 1e-9)
            loss = tf.reduce_sum(tf.stack(losses) * shares)
            scaled = model.optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, model.trainable_weights)
        model.optimizer.apply_gradients(
            zip(gradients, model.trainable_weights, strict=True)
        )
        for metric in model.metrics:
            if metric.name == "loss":
                metric.update_state(loss, sample_weight=rows)
        return model.get_metrics_result()

    return train_step


def _rows(data, start, end):
    """What lies from `start` to `end` in every array of a structure."""
    return keras.tree.map_structure(
        lambda array: None if array is None else array[start:end], data
    )
