"""Numbered epochs: training data that an interrupted run can continue."""

import tensorflow as tf

_MAX_PASSES_PER_EPOCH = 1 << 20


def numbered_epochs(
    read_pass,
    make_batches,
    num_batches: int,
    seed: int,
    initial_epoch: int,
    repeat: bool = False,
) -> tf.data.Dataset:
    """Returns a dataset of batches; each iteration over it is the next epoch.

    `read_pass` returns the elements of one pass over the text, given its seed, a scalar
    int64 tensor; `make_batches` turns them into batches. With `repeat`, an epoch takes
    further passes if one has too few batches.

    The attributes `epoch` and `batch`, int64 `tf.Variable`s, are the position at which
    the next iteration begins: the number of the epoch, and how many of its batches are
    left out. `batch` is 0 again afterwards.
    """
    with tf.device("CPU:0"):  # where `tf.data` runs
        epoch = tf.Variable(initial_epoch, dtype=tf.int64, trainable=False)
        batch = tf.Variable(0, dtype=tf.int64, trainable=False)

    def rest_of_epoch(_):
        first = (epoch.assign_add(1) - 1) * _MAX_PASSES_PER_EPOCH
        count = _MAX_PASSES_PER_EPOCH if repeat else 1
        done = batch.read_value()
        batch.assign(0)
        passes = tf.data.Dataset.range(first, first + count)
        batches = passes.flat_map(batches_of_pass).take(num_batches)
        counted = tf.data.experimental.assert_cardinality(num_batches)
        return batches.apply(counted).skip(done)

    def batches_of_pass(number):
        # The seed of this graph, so that orders do not depend on the global seed.
        tf.compat.v1.set_random_seed(1)
        return make_batches(read_pass(seed + number * 1_000_003))

    once = tf.data.Dataset.range(1)
    batches = once.flat_map(rest_of_epoch)
    # Keras is told `num_batches`, though an epoch that begins in its middle has fewer:
    # TensorFlow takes what repeats a dataset of unknown length for endless.
    nothing = once.flat_map(lambda _: batches.take(0)).repeat()
    batches = batches.concatenate(nothing).take(num_batches)
    options = tf.data.Options()
    options.deterministic = True
    # With autotuning, the end of an epoch may wait a minute for its thread: after
    # almost every epoch on one core (TensorFlow 2.21).
    options.autotune.enabled = False
    # Workers split every batch between them, so all train on the batches of one.
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.DATA
    )
    dataset = batches.with_options(options).prefetch(tf.data.AUTOTUNE)
    dataset.epoch, dataset.batch = epoch, batch
    return dataset


def shuffled(dataset: tf.data.Dataset, buffer_size: int, seed) -> tf.data.Dataset:
    """Shuffles a pass in the order that its seed determines."""
    return dataset.shuffle(buffer_size, seed=seed, reshuffle_each_iteration=False)
