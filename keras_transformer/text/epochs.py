"""Passes over a text that are numbered epochs, each in an order of its own."""

import tensorflow as tf

# More passes than an epoch can take.
ENDLESS = 1 << 20


def epoch_number(initial_epoch: int) -> tf.Variable:
    """Returns the variable that holds the number of the next epoch."""
    with tf.device("CPU:0"):  # where `tf.data` runs
        return tf.Variable(initial_epoch, dtype=tf.int64, trainable=False)


def next_epoch(epoch: tf.Variable, seed: int, dataset_of_pass, num_passes: int = 1):
    """Returns a dataset each pass over which is the next epoch.

    Args:
        epoch: As `epoch_number` returned it.
        seed: Seed of all epochs.
        dataset_of_pass: Function of the seed of a pass, a scalar int64 tensor, that
            returns a dataset.
        num_passes: Passes that an epoch may take.
    """

    def passes(_):
        first = (epoch.assign_add(1) - 1) * ENDLESS
        return tf.data.Dataset.range(first, first + num_passes)

    def seeded(number):
        # This graph's seed, lest the order depend on the global one too.
        tf.compat.v1.set_random_seed(1)
        return dataset_of_pass(seed + number * 1_000_003)

    return tf.data.Dataset.range(1).flat_map(passes).flat_map(seeded)


def shuffled(dataset: tf.data.Dataset, buffer_size: int, seed) -> tf.data.Dataset:
    """Returns the elements of a pass in the order that its seed gives."""
    return dataset.shuffle(buffer_size, seed=seed, reshuffle_each_iteration=False)


def training_data(batches: tf.data.Dataset, num_batches: int, epoch: tf.Variable):
    """Returns the batches of an epoch, so many, for one worker or for several."""
    batches = batches.take(num_batches)
    batches = batches.apply(tf.data.experimental.assert_cardinality(num_batches))
    options = tf.data.Options()
    options.deterministic = True
    # Workers share every batch, so that many train on what one would train on.
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.DATA
    )
    dataset = batches.with_options(options).prefetch(tf.data.AUTOTUNE)
    dataset.epoch = epoch
    return dataset
