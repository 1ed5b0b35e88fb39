"""Callbacks for `model.fit`."""

import math
from collections.abc import Callable, Sequence

import keras

from keras_transformer.checks import check_positive_integers
from keras_transformer.evaluation import cased_bleu, chrf


class BleuCallback(keras.callbacks.Callback):
    """Translates held-out sentences during training and logs their BLEU and chrF.

    Both are in the epoch's logs, for the progress bar, history and later callbacks such
    as TensorBoard.

    Args:
        translate: Function from a list of texts to the list of translations.
        sources: Texts to translate.
        references: Their correct translations, untokenized.
        every: Number of epochs between evaluations; other epochs log no scores.
        name: Name of BLEU in the logs.
        chrf_name: Name of chrF in the logs.
        language: Code of the references' language, as in `evaluation.cased_bleu`.

    Raises:
        ValueError: If `every` is not positive, or `references` do not match `sources`.
        ImportError: For Japanese and Korean, if MeCab is not installed.

    Example:
        >>> callback = BleuCallback(lambda texts: texts, ["Ein Hund."], ["Ein Hund."])
        >>> logs = {"loss": 1.0}
        >>> callback.on_epoch_end(0, logs)
        >>> sorted(logs)
        ['loss', 'val_bleu', 'val_chrf']
    """

    def __init__(
        self,
        translate: Callable[[list[str]], list[str]],
        sources: Sequence[str],
        references: Sequence[str],
        every: int = 1,
        name: str = "val_bleu",
        chrf_name: str = "val_chrf",
        language: str | None = None,
    ):
        super().__init__()
        check_positive_integers(every=every)
        if not sources or len(sources) != len(references):
            raise ValueError(
                "`references` must be one translation per source. Received: "
                f"{len(sources)} sources and {len(references)} references."
            )
        self.translate = translate
        self.sources = list(sources)
        self.references = list(references)
        self.every = every
        self.name = name
        self.chrf_name = chrf_name
        self.language = language
        cased_bleu(self.references, self.references, language=language)  # if it can

    def on_epoch_end(self, epoch, logs=None):
        # Keras counts epochs from 0.
        if (epoch + 1) % self.every == 0 and logs is not None:
            both = self.translate(self.sources), self.references
            logs[self.name], _ = cased_bleu(*both, language=self.language)
            logs[self.chrf_name], _ = chrf(*both)


class StopAtNaN(keras.callbacks.Callback):
    """Raises an error at the first batch whose loss is NaN or infinite.

    Nothing of that epoch is saved: earlier checkpoints hold the last good weights.
    `keras.callbacks.TerminateOnNaN` ends the epoch as usual, so a checkpoint is saved.

    Raises:
        FloatingPointError: In `fit`.

    Example:
        >>> import tensorflow as tf
        >>> model = keras.Sequential([keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> data = tf.data.Dataset.from_tensors((np.ones((5, 3)), np.nan * np.ones(5)))
        >>> model.fit(data, shuffle=False, verbose=0, callbacks=[StopAtNaN()])
        Traceback (most recent call last):
        FloatingPointError: The loss is nan after batch 1 of epoch 1. ...
    """

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch + 1  # Keras counts from 0

    def on_train_batch_end(self, batch, logs=None):
        # The mean over the epoch so far stays NaN once it is.
        loss = float((logs or {}).get("loss", 0.0))
        if not math.isfinite(loss):
            raise FloatingPointError(
                f"The loss is {loss} after batch {batch + 1} of epoch {self._epoch}. "
                "The checkpoints of earlier epochs hold the last good weights. Lower "
                "the learning rate or raise the warm-up steps, in a new training run. "
                'See "The loss is NaN" in docs/when_it_goes_wrong.md.'
            )
