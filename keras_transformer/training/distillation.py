"""Training on the probabilities of another model beside the labels."""

import keras
from keras import ops

from keras_transformer.kernels.crossentropy import distribution_crossentropy
from keras_transformer.training.consistency import check_weight, mean_over_tokens


class Distillation:
    """Word-level knowledge distillation: the model learns a teacher's probabilities.

    A training step adds to the loss `weight` times the cross-entropy between the
    probabilities that the teacher gives to every next token, without dropout, and those
    of the model, averaged over the real tokens like the loss. Evaluation is unchanged.

    Unlike `keras.distillation.Distiller`, it leaves out padded positions, and works
    with `batch_slices`.

    A saved model does not hold its teacher: after loading it, compile it again to train
    on.

    Args:
        teacher: A model of the same inputs and the same target vocabulary, such as a
            `kt.models.Transformer` of any size, or a `kt.models.Ensemble` of several.
        weight: Weight of the term. The paper's loss, `(1 - alpha) * loss + alpha *
            term`, is that of `weight = alpha / (1 - alpha)`, up to a factor.

    Raises:
        ValueError: If `weight` is negative, or `teacher` is not a model. The first
            training step raises it for a teacher of another vocabulary.

    Example:
        >>> teacher = kt.models.Transformer.from_preset("tiny", 17)
        >>> model = kt.models.Transformer.from_preset("tiny", 17, hidden_dim=64)
        >>> loss = kt.training.TokenCrossentropy(label_smoothing=0.1)
        >>> model.compile(kt.training.Adam(), loss, consistency=Distillation(teacher))

    Reference:
        [Kim and Rush, 2016](https://arxiv.org/abs/1606.07947), section 3.1
    """

    def __init__(self, teacher: keras.Model, weight: float = 4.0):
        check_weight(weight)
        if not isinstance(teacher, keras.Model):
            raise ValueError(
                "`teacher` must be a model, such as `translator.model`. "
                f"Received: a {type(teacher).__name__}."
            )
        self.teacher = teacher
        self.weight = weight

    def __call__(self, model, x, y, logits, sample_weight=None):
        """Returns what is added to the loss of `logits`, those of the model."""
        targets = ops.stop_gradient(ops.softmax(self.teacher(x, training=False)))
        if targets.shape[-1] != logits.shape[-1]:
            raise ValueError(
                "`teacher` must have the model's target vocabulary of "
                f"{logits.shape[-1]} tokens. Received: one of {targets.shape[-1]} "
                "tokens. Train both with the same tokenizers."
            )
        losses = distribution_crossentropy(targets, logits)
        return self.weight * mean_over_tokens(model, losses, y, sample_weight)
