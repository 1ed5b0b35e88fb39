"""Checkpoints in Hugging Face's layout, read by the family that they belong to."""

from pathlib import Path

import numpy as np

from keras_transformer.interop.checkpoint import read_json, read_weights
from keras_transformer.interop.hugging_face import m2m_100, marian, pegasus
from keras_transformer.interop.hugging_face.config import (
    GENERATION,
    config_of,
    search_of,
)
from keras_transformer.interop.hugging_face.weights import set_weights
from keras_transformer.models import Transformer
from keras_transformer.translator import saving

_NEVER = -1e4  # logit of an id whose probability becomes exactly 0
FAMILIES = {"marian": marian, "m2m_100": m2m_100, "pegasus": pegasus}


def read_transformer(folder: Path, **kwargs) -> Transformer:
    """Reads the model of a checkpoint, with other arguments if any are given."""
    return _read_model(folder, kwargs)[1]


def read_translator(
    folder: Path,
    source_language: str | None = None,
    target_language: str | None = None,
    **kwargs,
) -> dict:
    """Reads the arguments of a `Translator` by name."""
    family, model, arguments, max_length, generation = _read_model(folder, kwargs)
    *both, first_id = family.tokenizers(
        folder, arguments, source_language, target_language
    )
    wanted_id = first_id if target_language else None
    return {
        "model": model,
        "source_tokenizer": both[0],
        "target_tokenizer": both[1],
        "max_source_length": max_length,
        "search": search_of(generation, arguments, first_id, wanted_id),
    }


def _read_model(folder, kwargs):
    """The family, model and arguments, the longest source, the search's settings."""
    path = folder / "config.json"
    if not path.is_file():
        remedy = saving.what_to_name(folder)
        if (folder / "decoder.yml").is_file():  # Marian's own format
            remedy = "Convert it with convert_marian_to_pytorch of transformers."
        raise FileNotFoundError(
            f"{folder} holds no model: config.json is missing, and so is "
            f"{saving.SETTINGS}. {remedy}"
        )
    values = read_json(path)
    family = FAMILIES.get(str(values.get("model_type")))
    if family is None:
        raise ValueError(
            f"{path} must be of a known family, model_type="
            f"{' or '.join(map(repr, FAMILIES))}. Received: "
            f"model_type={values.get('model_type')!r}."
        )
    generation_path = path.with_name("generation_config.json")
    generation = {k: v for k, v in values.items() if k in GENERATION}
    generation |= read_json(generation_path, is_optional=True)
    config = config_of({k: v for k, v in values.items() if k not in GENERATION}, path)
    arguments = family.transformer_arguments(config)
    config.check_all_used()
    weights = read_weights(folder)
    model = Transformer(**{**arguments, **kwargs})
    set_weights(model, weights)
    if generation.get("renormalize_logits") and model.output_bias is not None:
        # Probabilities leave out padding, which is never generated (`bad_words_ids`).
        bias = np.array(model.output_bias.bias)
        bias[arguments["pad_id"]] = _NEVER
        model.output_bias.bias.assign(bias)
    settings = read_json(path.with_name("tokenizer_config.json"), is_optional=True)
    # Tokenizers without a limit have a huge one.
    lengths = values.get("max_position_embeddings"), settings.get("model_max_length")
    longest = int(min((x for x in lengths if x), default=512))
    return family, model, arguments, longest, config_of(generation, generation_path)
