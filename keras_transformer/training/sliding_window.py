"""How well a language model foretells a text that is longer than its window."""

import numpy as np
from keras import ops

from keras_transformer.checks import check_integer_ids
from keras_transformer.kernels.crossentropy import smoothed_crossentropy


def sliding_window_perplexity(
    model, ids, window: int, stride: int | None = None, batch_size: int = 8
) -> float:
    """Perplexity of one long text, read through a window that slides along.

    Every token but the first is scored once. The first window scores all of its
    tokens; each later one begins `stride` tokens on and scores those that no
    window before it did, so that each has at least `window - stride` tokens to
    go by. The smaller the stride, the better the model knows what came before,
    and the longer it takes.

    Args:
        model: A `LanguageModel`, or any model from ids `(batch, length)` to
            logits `(batch, length, vocabulary)` that has a `pad_id`.
        ids: Integer array or tensor of shape `(length,)`, the text, beginning
            with `start_id` if texts did so in training.
        window: Number of tokens that the model sees at once.
        stride: Number of tokens from one window to the next, at most `window`;
            half the window unless given.
        batch_size: Windows that are scored together.

    Returns:
        The exponential of the mean cross-entropy over the scored tokens.

    Raises:
        ValueError: If `ids` are no text of at least two tokens, or a size is out
            of its range.

    Example:
        >>> model = kt.models.LanguageModel(
        ...     vocabulary_size=17, num_layers=1, hidden_dim=8, num_heads=2,
        ...     intermediate_dim=16,
        ... )
        >>> ids = np.arange(100) % 13 + 4
        >>> perplexity = sliding_window_perplexity(model, ids, window=32, stride=8)
        >>> perplexity > 1
        True

    Reference:
        [Baevski and Auli, 2019](https://arxiv.org/abs/1809.10853), section 4.2;
        [Press et al., 2021](https://arxiv.org/abs/2012.15832), section 2
    """
    stride = max(window // 2, 1) if stride is None else stride
    _check(ids, window, stride, batch_size)
    ids = ops.convert_to_numpy(ids)
    inputs, labels = _windows(ids, window, stride, model.pad_id)
    # Windows of padding fill the last batch up: one shape is compiled once.
    missing = -len(inputs) % batch_size
    inputs, labels = (
        np.pad(x, ((0, missing), (0, 0)), constant_values=model.pad_id)
        for x in (inputs, labels)
    )
    total, count = 0.0, 0
    for begin in range(0, len(inputs), batch_size):
        batch = slice(begin, begin + batch_size)
        logits = model.predict_on_batch(inputs[batch])
        losses = smoothed_crossentropy(labels[batch], ops.convert_to_tensor(logits))
        scored = labels[batch] != model.pad_id
        total += ops.convert_to_numpy(losses)[scored].sum(dtype="float64")
        count += scored.sum()
    return float(np.exp(total / count))


def _windows(ids, window, stride, pad_id):
    """Returns inputs and labels, `(windows, window)`; what is not scored is padding."""
    inputs, labels, scored = [], [], 0
    length = len(ids) - 1
    for begin in range(0, length, stride):
        end = min(begin + window, length)
        row = np.full((2, window), pad_id, "int32")
        row[0, : end - begin] = ids[begin:end]
        row[1, scored - begin : end - begin] = ids[scored + 1 : end + 1]
        inputs.append(row[0])
        labels.append(row[1])
        scored = end
        if end == length:
            break
    return np.stack(inputs), np.stack(labels)


def _check(ids, window, stride, batch_size):
    check_integer_ids(ids, "ids")
    shape = tuple(ids.shape)
    if len(shape) != 1 or shape[0] < 2:
        raise ValueError(
            "`ids` must be one text of at least two tokens, of shape (length,). "
            f"Received: ids of shape {shape}."
        )
    for name, size in (("window", window), ("batch_size", batch_size)):
        if size < 1:
            raise ValueError(
                f"`{name}` must be a positive integer. Received: {name}={size}."
            )
    if not 1 <= stride <= window:
        raise ValueError(
            "`stride` must be from 1 to `window`, or tokens are left out. "
            f"Received: stride={stride}, window={window}."
        )
