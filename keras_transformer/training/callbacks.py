"""Callbacks for `model.fit`."""

from collections.abc import Callable, Sequence

import keras

from keras_transformer.training.bleu import cased_bleu


class BleuCallback(keras.callbacks.Callback):
    """Translates held-out sentences in training and logs their BLEU.

    The figure stands in the epoch's logs under `name`, where the callbacks
    that come after this one (TensorBoard, early stopping) and the history
    find it.

    Args:
        translate: Function from a list of texts to the list of translations.
        sources: Texts to translate.
        references: Their right translations, as people write them.
        every: Number of epochs from one translation to the next. Epochs
            without one have no figure in their logs.
        name: Name of the figure in the logs.

    Raises:
        ValueError: If `every` is not positive, or there is not one reference
            for each source.

    Example:
        >>> callback = BleuCallback(lambda texts: texts, ["Ein Hund."], ["Ein Hund."])
        >>> logs = {"loss": 1.0}
        >>> callback.on_epoch_end(0, logs)
        >>> sorted(logs)
        ['loss', 'val_bleu']
    """

    def __init__(
        self,
        translate: Callable[[list[str]], list[str]],
        sources: Sequence[str],
        references: Sequence[str],
        every: int = 1,
        name: str = "val_bleu",
    ):
        super().__init__()
        if every < 1:
            raise ValueError(
                f"`every` must be a positive integer. Received: every={every}."
            )
        if not sources or len(sources) != len(references):
            raise ValueError(
                "`references` must be a translation of each source. Received: "
                f"{len(sources)} sources and {len(references)} references."
            )
        self.translate = translate
        self.sources = list(sources)
        self.references = list(references)
        self.every = every
        self.name = name

    def on_epoch_end(self, epoch, logs=None):
        # Keras counts epochs from 0.
        if (epoch + 1) % self.every == 0 and logs is not None:
            logs[self.name], _ = cased_bleu(
                self.translate(self.sources), self.references
            )
