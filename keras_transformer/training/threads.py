"""Threads of a CPU that trains."""

from keras_transformer.kernels import target


def one_thread_per_operation() -> None:
    """Makes a CPU compute each operation in one thread, and `fit` train on slices.

    TensorFlow splits every operation among the cores, which wait for each other at its
    end. With one thread for each operation, models train on slices of every batch in
    parallel, a core each, unless `compile(batch_slices=1)` turns it off. All else that
    TensorFlow computes in this process gets one thread for each operation as well.

    Call it before TensorFlow computes anything: no thread can be taken back later.
    Where there is a GPU, and on other backends, it does nothing.

    Raises:
        RuntimeError: If TensorFlow has begun to compute with other threads.
    """
    if not target.is_tensorflow():
        return
    import tensorflow as tf

    if not tf.config.list_physical_devices("GPU"):
        tf.config.threading.set_intra_op_parallelism_threads(1)
