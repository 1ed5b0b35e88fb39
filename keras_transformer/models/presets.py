"""Published sizes of the Transformer, and pretrained models."""

import importlib
import os
from typing import TypeVar

PRESETS = {
    # Wu et al., 2021 (https://arxiv.org/abs/2105.14462): for small corpora.
    "tiny": {
        "num_layers": 4,
        "hidden_dim": 128,
        "num_heads": 4,
        "intermediate_dim": 256,
        "dropout": 0.3,
    },
    # Vaswani et al., 2017, table 3.
    "base": {
        "num_layers": 6,
        "hidden_dim": 512,
        "num_heads": 8,
        "intermediate_dim": 2048,
        "dropout": 0.1,
    },
    "big": {
        "num_layers": 6,
        "hidden_dim": 1024,
        "num_heads": 16,
        "intermediate_dim": 4096,
        "dropout": 0.3,
    },
}

Self = TypeVar("Self", bound="PresetMixin")


class PresetMixin:
    """Gives a Transformer `from_preset`."""

    @classmethod
    def from_preset(
        cls: type[Self],
        preset: str | os.PathLike,
        source_vocabulary_size: int | None = None,
        **kwargs,
    ) -> Self:
        """Builds a model of a published size, or reads a pretrained one.

        Args:
            preset: `"tiny"`, `"base"` or `"big"`: a size, with fresh weights.
                Otherwise a pretrained model: a folder or `"hf://user/model"`, as in
                `Translator.from_preset`.
            source_vocabulary_size: Number of source tokens, for a size.
            **kwargs: Any other constructor argument. It overrides that of the preset;
                of a pretrained model it must not change the weights.

        Returns:
            A `Transformer`.

        Raises:
            ValueError: If a size comes without `source_vocabulary_size`, or a folder
                with it; for pretrained models, errors of `Translator.from_preset`.
        """
        if preset in PRESETS:
            if source_vocabulary_size is None:
                raise ValueError(
                    "`source_vocabulary_size` must be given for a model with fresh "
                    f"weights. Received: preset={preset!r}."
                )
            settings = {**PRESETS[preset], **kwargs}
            return cls(source_vocabulary_size, **settings)  # type: ignore[call-arg]
        is_path = isinstance(preset, os.PathLike) or "/" in str(preset)
        if not is_path and not os.path.isdir(preset):
            is_file = str(preset).endswith(".keras")
            remedy = " `keras.saving.load_model` reads that file." if is_file else ""
            raise ValueError(
                f"`preset` must be one of {tuple(PRESETS)}, a folder or "
                f'"hf://user/model". Received: preset={preset!r}.{remedy}'
            )
        if source_vocabulary_size is not None:
            raise ValueError(
                "`source_vocabulary_size` must be left out for a pretrained model. "
                f"Received: source_vocabulary_size={source_vocabulary_size}."
            )
        # It imports the models, so it is imported when it is called.
        pretrained = importlib.import_module("keras_transformer.interop.presets")
        return pretrained.read_transformer(preset, **kwargs)
