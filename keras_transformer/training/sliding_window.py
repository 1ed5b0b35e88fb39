"""Perplexity of a text that is longer than a language model's window."""

import numpy as np
from keras import ops

from keras_transformer.checks import check_integer_ids, check_positive_integers
from keras_transformer.kernels.crossentropy import smoothed_crossentropy


def sliding_window_perplexity(
    model, ids, window: int, stride: int | None = None, batch_size: int = 8
) -> float:
    """Perplexity of one long text, computed in overlapping windows.

    Every token but the first is scored once. Windows start `stride` tokens apart, and
    each scores the tokens that no earlier window scored, so that these have a context
    of at least `window - stride` tokens. Smaller strides give more, and take longer.

    Args:
        model: A `LanguageModel`, or any model from ids `(batch, length)` to
            logits `(batch, length, vocabulary)` that has a `pad_id`.
        ids: Integer array or tensor of shape `(length,)`, the text, beginning with
            `start_id` if texts did so in training.
        window: Number of tokens in a window.
        stride: Tokens from one window to the next, up to `window`; half of it if None.
        batch_size: Number of windows in a batch.

    Returns:
        The exponential of the mean cross-entropy over the scored tokens.

    Raises:
        ValueError: If `ids` are not two or more tokens, or a size is out of range.

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
    windows = _windows(ops.convert_to_numpy(ids), window, stride, model.pad_id)
    # Padding the last batch with windows leaves one shape to compile.
    padding = (0, 0), (0, -windows.shape[1] % batch_size), (0, 0)
    windows = np.pad(windows, padding, constant_values=model.pad_id)
    total, count = 0.0, 0
    for begin in range(0, windows.shape[1], batch_size):
        inputs, labels = windows[:, begin : begin + batch_size]
        logits = model.predict_on_batch(inputs)
        losses = smoothed_crossentropy(labels, ops.convert_to_tensor(logits))
        scored = labels != model.pad_id
        total += ops.convert_to_numpy(losses)[scored].sum(dtype="float64")
        count += scored.sum()
    return float(np.exp(total / count))


def _windows(ids, window, stride, pad_id):
    """Returns inputs and labels, `(2, windows, window)`; padding is not scored."""
    rows, scored, length = [], 0, len(ids) - 1
    while scored < length:
        begin = len(rows) * stride
        end = min(begin + window, length)
        row = np.full((2, window), pad_id, "int32")
        row[0, : end - begin] = ids[begin:end]
        row[1, scored - begin : end - begin] = ids[scored + 1 : end + 1]
        rows.append(row)
        scored = end
    return np.stack(rows, axis=1)


def _check(ids, window, stride, batch_size):
    check_integer_ids(ids)
    shape = tuple(ids.shape)
    if len(shape) != 1 or shape[0] < 2:
        raise ValueError(
            "`ids` must be one text of at least two tokens, of shape (length,). "
            f"Received: ids of shape {shape}."
        )
    check_positive_integers(window=window, batch_size=batch_size)
    if not 1 <= stride <= window:
        raise ValueError(
            "`stride` must be from 1 to `window`, so that every token is scored. "
            f"Received: stride={stride}, window={window}."
        )
