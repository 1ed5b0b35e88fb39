"""Random masking of tokens, to train masked language models."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf


def mask_tokens(
    ids,
    seed,
    vocabulary_size: int,
    mask_id: int,
    special_ids: Sequence[int] = (0, 1, 2, 3),
    probability: float = 0.15,
):
    """Masks random tokens, as in the training of BERT.

    Each token that is not special is selected with a `probability`. Of the selected
    tokens, 80% become `mask_id`, 10% become a random token that is not special, and 10%
    stay the same: the model cannot tell which tokens are correct.

    Args:
        ids: Int32 tensor of shape `(batch, length)`.
        seed: Integer tensor of shape `(2,)`; equal seeds mask the same tokens.
        vocabulary_size: Number of tokens, including `mask_id`.
        mask_id: Id of the mask token.
        special_ids: Ids that are never selected or drawn; the first is the padding.
        probability: Probability that a token is selected.

    Returns:
        The masked ids, as model inputs, and the labels: the original ids of selected
        tokens, and padding elsewhere; both int32 of shape `(batch, length)`.

    Raises:
        ValueError: If `mask_id` lies outside the vocabulary or is special, if
            `probability` is not above 0 and at most 1, or if every id is special.

    Example:
        >>> ids = np.arange(5, 17)[None]
        >>> inputs, labels = mask_tokens(ids, (1, 2), vocabulary_size=17, mask_id=4)
        >>> inputs.shape, labels.shape
        (TensorShape([1, 12]), TensorShape([1, 12]))

    Reference:
        [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 3.1, A.1
    """
    ordinary = _ordinary_ids(vocabulary_size, mask_id, special_ids, probability)
    ids = tf.cast(ids, tf.int32)
    shape = tf.shape(ids)
    # Which tokens are selected, what becomes of them, and the random tokens.
    uniform = tf.random.stateless_uniform(tf.concat([[2], shape], axis=0), seed)
    selection, replacement = uniform[0], uniform[1]
    next_seed = tf.cast(seed, tf.int64) + tf.constant([0, 1], tf.int64)
    indices = tf.random.stateless_uniform(shape, next_seed, 0, len(ordinary), tf.int32)
    random_ids = tf.gather(ordinary, indices)
    special = tf.constant([*special_ids, mask_id])
    is_special = tf.reduce_any(ids[..., None] == special, axis=-1)
    is_selected = (selection < probability) & ~is_special
    replaced = tf.where(
        replacement < 0.8, mask_id, tf.where(replacement < 0.9, random_ids, ids)
    )
    inputs = tf.where(is_selected, replaced, ids)
    return inputs, tf.where(is_selected, ids, special_ids[0])


def masked_dataset(
    dataset: tf.data.Dataset,
    vocabulary_size: int,
    mask_id: int,
    special_ids: Sequence[int] = (0, 1, 2, 3),
    probability: float = 0.15,
    seed: int = 0,
) -> tf.data.Dataset:
    """Masks random tokens of a dataset, different tokens in each iteration.

    `dataset` contains batches of ids, int32 of shape `(batch, length)`. With equal
    seeds, the nth iterations over two datasets mask the same tokens. The other
    arguments and the errors are as in `mask_tokens`.

    Returns:
        A dataset of `(ids, labels)`, for `model.fit` of a `MaskedLanguageModel`.

    Reference:
        [Liu et al., 2019](https://arxiv.org/abs/1907.11692), section 4.1
    """
    _ordinary_ids(vocabulary_size, mask_id, special_ids, probability)
    seeds = tf.data.Dataset.random(seed, rerandomize_each_iteration=True).batch(2, True)

    def mask(ids, seed):
        return mask_tokens(
            ids, seed, vocabulary_size, mask_id, special_ids, probability
        )

    return tf.data.Dataset.zip(dataset, seeds).map(mask, tf.data.AUTOTUNE)


def _ordinary_ids(vocabulary_size, mask_id, special_ids, probability):
    """Checks the arguments; returns the ids that are not special."""
    if not 0 <= mask_id < vocabulary_size or mask_id in special_ids:
        raise ValueError(
            f"`mask_id` must lie in the vocabulary of {vocabulary_size} tokens, and "
            f"not be special. Received: mask_id={mask_id}, special_ids={special_ids}. "
            "A tokenizer has no mask token: use its `vocabulary_size` as `mask_id`, "
            "and a `vocabulary_size` larger by one."
        )
    if not 0 < probability <= 1:
        raise ValueError(
            "`probability` must be above 0 and at most 1. "
            f"Received: probability={probability}."
        )
    ordinary = np.setdiff1d(np.arange(vocabulary_size), [*special_ids, mask_id])
    if not len(ordinary):
        raise ValueError(
            "`special_ids` must leave some ids to mask. Received: "
            f"special_ids={special_ids}, vocabulary_size={vocabulary_size}."
        )
    return ordinary.astype("int32")
