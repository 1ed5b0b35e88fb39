"""Muon, with the norm of its gradients."""

import keras

from keras_transformer.training.gradient_norm import MeasuredOptimizer


@keras.saving.register_keras_serializable(package="keras_transformer")
class Muon(MeasuredOptimizer, keras.optimizers.Muon):
    """`keras.optimizers.Muon` that also measures the norm of its gradients.

    Arguments and updates are as in `keras.optimizers.Muon`. With
    `gradient_accumulation_steps`, the norm is measured for each batch.

    Example:
        >>> optimizer = Muon(1e-3)
        >>> optimizer.apply([ops.array([3.0, 4.0])], [keras.Variable([0.0, 0.0])])
        >>> optimizer.pop_gradient_norm()
        5.0
    """
