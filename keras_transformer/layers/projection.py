"""Linear maps inside layers, which low-rank adaptation can train."""

import contextlib

import keras
import numpy as np
from keras import ops

from keras_transformer.kernels.rematerialization import RematerializedMixin

_FACTORS = ("lora_kernel_a", "lora_kernel_b")
_SETTINGS = "lora_settings"


@keras.saving.register_keras_serializable(package="keras_transformer")
class Projection(RematerializedMixin, keras.layers.Dense):
    """A dense layer whose low-rank adaptation (LoRA) is saved beside its kernel.

    When Keras saves a layer, it adds the adaptation to the kernel; it then loads both
    factors as zero, so that neither has a gradient and training cannot continue. This
    layer saves and loads the kernel and the factors unchanged.

    Reference:
        [Hu et al., 2021](https://arxiv.org/abs/2106.09685), section 4.1
    """

    is_remat_unit = False

    def enable_lora(self, rank, lora_alpha=None, **kwargs):
        """Adds a trainable product of rank `rank`; kernel and bias are frozen.

        The kernel becomes `kernel + lora_alpha / rank * a @ b`, where `b` is zero at
        first. It takes the arguments of `keras.layers.Dense.enable_lora`.
        """
        super().enable_lora(rank, lora_alpha, **kwargs)
        self.freeze_kernel()

    def freeze_kernel(self):
        """Freezes everything except the adaptation."""
        for weight in self.weights:
            if not any(weight is factor for factor in self.factors()):
                weight.trainable = False

    def factors(self):
        """Returns the two factors of the adaptation."""
        return [getattr(self, name) for name in _FACTORS]

    def merged_kernel(self):
        """Returns the kernel with the adaptation added, in the kernel's own dtype."""
        with self._without_lora():
            kernel = self.kernel
        scale = self.lora_alpha / self.lora_rank
        return kernel + ops.cast(scale * ops.matmul(*self.factors()), kernel.dtype)

    def quantize(self, mode=None, type_check=True, config=None):
        # Keras quantizes subclasses only without its check of the type.
        super().quantize(mode, type_check=False, config=config)

    def save_own_variables(self, store):
        with self._without_lora():
            super().save_own_variables(store)
        if self.lora_enabled:
            for name in _FACTORS:
                store[name] = getattr(self, name)
            store[_SETTINGS] = np.array([self.lora_rank, self.lora_alpha], float)

    def load_own_variables(self, store):
        """Loads kernel, bias and adaptation.

        If the layer has no adaptation of that rank and scale, the saved one is added to
        the kernel. An adaptation of another rank or scale then starts from zero.

        Raises:
            ValueError: If the layer is quantized: its kernel could not hold the sum.
        """
        values = {name: store[name] for name in store.keys()}  # noqa: SIM118
        factors = [values.pop(name) for name in _FACTORS if name in values]
        found = list(map(float, values.pop(_SETTINGS, ())))
        is_same = found == [self.lora_rank, self.lora_alpha]
        if found and not is_same:
            rank, alpha = found
            if self.quantization_mode:
                raise ValueError(
                    "A quantized layer loads an adaptation only into one of the same "
                    f"rank and scale: call `enable_lora({rank:g}, {alpha:g})` on "
                    f"{self.path} first. "
                    f"Received: quantization_mode={self.quantization_mode}."
                )
            values["0"] = values["0"] + alpha / rank * np.matmul(*factors)
        if self.lora_enabled and not is_same:
            a, b = self.factors()
            factors = ops.convert_to_numpy(a), np.zeros(b.shape)
        super().load_own_variables(values)  # sets both factors to zero
        if self.lora_enabled:
            for factor, value in zip(self.factors(), factors, strict=True):
                factor.assign(value)

    @contextlib.contextmanager
    def _without_lora(self):
        """Makes the layer behave as if it had no adaptation."""
        is_enabled, self.lora_enabled = self.lora_enabled, False
        try:
            yield
        finally:
            self.lora_enabled = is_enabled
