"""The global norm of gradients, measured when an optimizer applies them."""

import keras
import numpy as np
from keras import ops

from keras_transformer.kernels.graphs import dense_gradient
from keras_transformer.training.distribution import num_replicas


class MeasuredOptimizer(keras.optimizers.Optimizer):
    """Base class of optimizers that measure the global norm of each update's gradient.

    This is the norm that `global_clipnorm` limits: of the mean over accumulated
    batches, without the loss scale, and before clipping. Several replicas without
    clipping and accumulation do not know their summed gradient; they report the sum of
    their own norms, which is never less than the norm of the sum. The sum of all norms
    since `pop_gradient_norm` is saved with the optimizer.
    """

    _norms: keras.Variable | None = None
    _sums_over_replicas = False

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        # The sum of the norms and their number.
        self._norms = self.add_variable((2,), name="gradient_norms", aggregation="mean")

    def apply(self, grads, trainable_variables=None):
        super().apply(grads, trainable_variables)
        squares = [
            ops.sum(ops.square(ops.cast(dense_gradient(gradient), "float32")))
            for gradient in grads
            if gradient is not None
        ]
        if squares:
            parts = 1 if self._sums_over_replicas else num_replicas()
            norm = ops.sqrt(sum(squares)) * parts / (self.loss_scale_factor or 1)
            self.assign_add(self._norms, ops.stack([norm, 1.0]))

    def pop_gradient_norm(self) -> float | None:
        """Returns the mean norm of the updates since the last call, None without any.

        Call it between epochs, not within a step.
        """
        if self._norms is None:
            return None
        norms, count = ops.convert_to_numpy(self._norms).tolist()
        self._norms.assign(np.zeros(2, "float32"))
        return norms / count if count else None

    def load_own_variables(self, store):
        # Files of earlier versions hold all variables but the norms.
        others = [x for x in self.variables if x is not self._norms]
        shapes = [tuple(store[str(i)].shape) for i in range(len(store.keys()))]
        if shapes != [tuple(x.shape) for x in others]:
            super().load_own_variables(store)
            return
        for i, variable in enumerate(others):
            variable.assign(store[str(i)])
