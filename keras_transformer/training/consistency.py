"""Regularization by a second pass, whose predictions should equal the first."""

import keras
from keras import ops, tree

from keras_transformer.checks import check_fractions
from keras_transformer.kernels.divergence import softmax_divergence
from keras_transformer.training.losses import global_mean


class _Consistency:
    """Base of what `compile(consistency=...)` takes; `weight` multiplies its term."""

    def __init__(self, weight: float):
        check_weight(weight)
        self.weight = weight

    def get_config(self):
        return {"weight": self.weight}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


@keras.saving.register_keras_serializable(package="keras_transformer")
class RDrop(_Consistency):
    """Regularized dropout: two passes with different dropout should agree.

    A training step computes the logits of each batch twice, and minimises the sum of
    both losses plus `weight` times the mean of the two Kullback-Leibler divergences
    between the predicted distributions, averaged over the real tokens like the loss. A
    step takes twice as long. Evaluation is unchanged.

    Args:
        weight: Weight of the divergence, the paper's alpha.

    Raises:
        ValueError: If `weight` is negative.

    Example:
        >>> model = kt.models.Transformer.from_preset("tiny", 17)
        >>> loss = kt.training.TokenCrossentropy(label_smoothing=0.1)
        >>> model.compile(kt.training.Adam(), loss, consistency=RDrop(5.0))

    Reference:
        [Wu et al., 2021](https://arxiv.org/abs/2106.14448), section 2
    """

    def __init__(self, weight: float = 5.0):
        super().__init__(weight)

    def __call__(self, model, x, y, logits, sample_weight=None):
        """Returns what is added to the loss of `logits`, those of the first pass."""
        second = model(x, training=True)
        there = softmax_divergence(logits, second)
        back = softmax_divergence(second, logits)
        divergence = mean_over_tokens(model, (there + back) / 2, y, sample_weight)
        return model.loss(y, second, sample_weight) + self.weight * divergence


@keras.saving.register_keras_serializable(package="keras_transformer")
class SimCut(_Consistency):
    """Simple cutoff: a pass with some tokens cut should agree with one without.

    A training step computes the logits a second time, with the embeddings of random
    source and target tokens set to zero, and adds to the loss `weight` times the
    Kullback-Leibler divergence of the second prediction from the first, averaged over
    the real tokens like the loss. Start and end symbols are never cut. A step takes
    twice as long. Evaluation is unchanged.

    Args:
        weight: Weight of the divergence, the paper's alpha.
        cutoff: Fraction of the tokens that are cut.

    Raises:
        ValueError: If `weight` is negative or `cutoff` no fraction. The first training
            step raises it for models without a method `logits_with_cutoff`.

    Example:
        >>> model = kt.models.Transformer.from_preset("tiny", 17)
        >>> loss = kt.training.TokenCrossentropy(label_smoothing=0.1)
        >>> model.compile(kt.training.Adam(), loss, consistency=SimCut(3.0, 0.05))

    Reference:
        [Gao et al., 2022](https://arxiv.org/abs/2206.02368), section 3; token cutoff:
        [Shen et al., 2020](https://arxiv.org/abs/2009.13818)
    """

    def __init__(self, weight: float = 3.0, cutoff: float = 0.05):
        super().__init__(weight)
        check_fractions(cutoff=cutoff)
        self.cutoff = cutoff

    def __call__(self, model, x, y, logits, sample_weight=None):
        """Returns what is added to the loss of `logits`, those of the first pass."""
        if not hasattr(model, "logits_with_cutoff"):
            raise ValueError(
                "`consistency=SimCut(...)` needs a `Transformer` or a `LanguageModel`; "
                f"`RDrop` trains others. Received: a {type(model).__name__}."
            )

        kept = tree.map_structure(lambda ids: self.kept(model, ids), x)
        second = model.logits_with_cutoff(x, kept)
        divergence = softmax_divergence(logits, second)
        return self.weight * mean_over_tokens(model, divergence, y, sample_weight)

    def kept(self, model, ids):
        """Draws the tokens that are not cut, a boolean tensor of the shape of `ids`."""
        draws = keras.random.uniform(ops.shape(ids), seed=model.consistency_seed)
        is_symbol = (ids == model.start_id) | (ids == model.end_id)
        return (draws >= self.cutoff) | is_symbol

    def get_config(self):
        return {**super().get_config(), "cutoff": self.cutoff}


def check_weight(weight: float) -> None:
    """Raises `ValueError` if the weight of a term is negative."""
    if not weight >= 0:
        raise ValueError(
            f"`weight` must be zero or positive. Received: weight={weight}."
        )


def mean_over_tokens(model, values, y, sample_weight=None):
    """Averages the values of positions as the model's loss does."""
    weights = model.loss.weights(y, sample_weight)
    return global_mean(ops.sum(values * weights), ops.sum(weights))
