"""Hiding tokens at random, for a masked language model to guess."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf


def mask_tokens(
    ids,
    seed,
    vocabulary_size: int,
    mask_id: int,
    special_ids: Sequence[int] = (0, 1, 2, 3),
    share: float = 0.15,
):
    """Hides a share of the tokens, as BERT is trained.

    Each token that is not special is chosen with the probability `share`. Of the
    chosen ones 80% become `mask_id`, 10% any token that is not special, and 10%
    stay: the model cannot tell which of those it sees is right.

    Args:
        ids: Int32 tensor of shape `(batch, length)`.
        seed: Integer tensor of shape `(2,)`; equal seeds hide the same tokens.
        vocabulary_size: Number of tokens, `mask_id` among them.
        mask_id: Id of the token that stands for a hidden one.
        special_ids: Ids that are neither chosen nor put in another's place; the
            first is the padding.
        share: Probability that a token is chosen.

    Returns:
        The ids as the model is to see them, and the labels: the ids that were
        chosen, and padding elsewhere; int32 of shape `(batch, length)` both.

    Raises:
        ValueError: If `mask_id` lies outside the vocabulary or is special, if
            `share` is no probability, or if every id is special.

    Example:
        >>> ids = np.arange(5, 17)[None]
        >>> inputs, labels = mask_tokens(ids, (1, 2), vocabulary_size=17, mask_id=4)
        >>> inputs.shape, labels.shape
        (TensorShape([1, 12]), TensorShape([1, 12]))

    Reference:
        [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 3.1 and
        appendix A.1
    """
    ordinary = _ordinary_ids(vocabulary_size, mask_id, special_ids, share)
    ids = tf.cast(ids, tf.int32)
    shape = tf.shape(ids)
    # One number chooses, another says what becomes of it, a third of the tokens.
    numbers = tf.random.stateless_uniform(tf.concat([[2], shape], axis=0), seed)
    places = tf.random.stateless_uniform(
        shape,
        tf.cast(seed, tf.int64) + tf.constant([0, 1], tf.int64),
        0,
        len(ordinary),
        tf.int32,
    )
    is_special = tf.reduce_any(
        ids[..., None] == tf.constant([*special_ids, mask_id]), axis=-1
    )
    is_chosen = (numbers[0] < share) & ~is_special
    others = tf.gather(ordinary, places)
    hidden = tf.where(
        numbers[1] < 0.8, mask_id, tf.where(numbers[1] < 0.9, others, ids)
    )
    return tf.where(is_chosen, hidden, ids), tf.where(is_chosen, ids, special_ids[0])


def masked_dataset(
    dataset: tf.data.Dataset,
    vocabulary_size: int,
    mask_id: int,
    special_ids: Sequence[int] = (0, 1, 2, 3),
    share: float = 0.15,
    seed: int = 0,
) -> tf.data.Dataset:
    """Hides tokens of batches of text, others in each pass over them.

    Args:
        dataset: Batches of ids, int32 of shape `(batch, length)`.
        vocabulary_size: Number of tokens, `mask_id` among them.
        mask_id: Id of the token that stands for a hidden one.
        special_ids: Ids that are never hidden; see `mask_tokens`.
        share: Probability that a token is chosen.
        seed: Seed of all passes: equal seeds hide the same tokens in the first,
            and the same in the second.

    Returns:
        A dataset of `(ids, labels)`, for `model.fit` of a `MaskedLanguageModel`.

    Raises:
        ValueError: As `mask_tokens` does.

    Reference:
        [Liu et al., 2019](https://arxiv.org/abs/1907.11692), section 4.1, who
        call it dynamic masking
    """
    _ordinary_ids(vocabulary_size, mask_id, special_ids, share)
    seeds = tf.data.Dataset.random(seed, rerandomize_each_iteration=True).batch(2, True)

    def mask(ids, seed):
        return mask_tokens(ids, seed, vocabulary_size, mask_id, special_ids, share)

    return tf.data.Dataset.zip(dataset, seeds).map(mask, tf.data.AUTOTUNE)


def _ordinary_ids(vocabulary_size, mask_id, special_ids, share):
    """Returns the ids that may be chosen, or raises if the arguments are wrong."""
    if not 0 <= mask_id < vocabulary_size or mask_id in special_ids:
        raise ValueError(
            f"`mask_id` must lie in the vocabulary of {vocabulary_size} tokens, and "
            f"not be special. Received: mask_id={mask_id}, special_ids={special_ids}. "
            "A tokenizer has none: give it the id after the last, and the model a "
            "vocabulary larger by one."
        )
    if not 0 < share <= 1:
        raise ValueError(
            f"`share` must be above 0 and at most 1. Received: share={share}."
        )
    ordinary = np.setdiff1d(np.arange(vocabulary_size), [*special_ids, mask_id])
    if not len(ordinary):
        raise ValueError(
            "`special_ids` must leave some ids to hide. Received: "
            f"special_ids={special_ids}, vocabulary_size={vocabulary_size}."
        )
    return ordinary.astype("int32")
