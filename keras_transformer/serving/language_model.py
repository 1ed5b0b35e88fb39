"""A KerasHub language model as a SavedModel: strings in, strings out."""

import os
from collections.abc import Iterable
from pathlib import Path

import keras
import tensorflow as tf

from keras_transformer.decoding import Search
from keras_transformer.serving.server_files import check_exportable, write_export
from keras_transformer.version import __version__

WARMUP_TEXT = "1 1 1"


def export_language_model(
    lm: keras.Model,
    path: str | os.PathLike,
    search: Search,
    max_length: int | None = None,
    stop_token_ids: str | Iterable[int] | None = "auto",
    strip_prompt: bool = False,
    jit_compile: bool = False,
) -> Path:
    """Writes a KerasHub language model as a SavedModel for TensorFlow Serving.

    KerasHub's own `export` serves logits. This export includes the tokenizer and the
    search, and is served without KerasHub or this package. Its signatures take any
    number of texts:

    | Signature | Inputs | Outputs |
    | --- | --- | --- |
    | `serving_default` | `text` | `texts`, `scores` |
    | `with_prompt` (encoder-decoders) | `text`, `prompt` | `texts`, `scores` |

    Inputs have the shape `(batch,)`, outputs `(batch, num_hypotheses)`, best first.
    `prompt` is the beginning of the decoder's text. The folder includes warm-up
    requests for the server, its batching settings in `batching_params.pbtxt`, and the
    settings of this export in `assets.extra/language_model.json`.

    Args:
        lm: A `keras_hub.models.CausalLM` or `Seq2SeqLM` that reads texts, with a
            preprocessor whose tokenizer uses TensorFlow operations.
        path: Folder to write, such as `"saved_models/bart/1"`.
        search: A search of `keras_transformer.decoding`; `Sampling` needs a seed.
        max_length: Maximum number of tokens of a result, including its prompt; by
            default the preprocessor's `sequence_length`.
        stop_token_ids: As in `lm.generate`.
        strip_prompt: Whether to remove prompts from the results.
        jit_compile: Whether XLA compiles the search, once for each batch size.

    Returns:
        The path.

    Raises:
        FileExistsError: If `path` exists.
        ValueError: If `search` draws without a seed, or the model cannot be searched
            or served as text; see `kt.interop.keras_hub.generate`.
    """
    from keras_transformer.interop.keras_hub import SearchedTask

    path = check_exportable(path, search)
    task = SearchedTask(lm, search, stop_token_ids, max_length)
    settings = {
        "keras_transformer": __version__,
        "model": type(lm).__name__,
        "max_length": task.max_length,
        "search": {"name": type(search).__name__, **task.search.get_config()},
        "strip_prompt": strip_prompt,
        "jit_compile": jit_compile,
    }
    try:
        texts = tf.TensorSpec([None], tf.string)
        tf.function(task.preprocess, autograph=False).get_concrete_function(texts)
    except Exception as error:
        raise ValueError(
            "`lm` must read texts, with a tokenizer of TensorFlow operations, which a "
            f"SavedModel can hold. Received: a {type(lm).__name__} with a "
            f"{type(task.tokenizer).__name__}, which fails on a tensor of texts "
            f"({type(error).__name__}). Export logits by `lm.export`."
        ) from error
    served = tf.Module(name="language_model")
    served.weights = [weight.value for weight in lm.weights]
    served.tokenizer = task.tokenizer
    signatures = _signatures(task, strip_prompt, jit_compile)
    requests = [
        (name, {spec.name: [WARMUP_TEXT] for spec in function.input_signature})
        for name, function in signatures.items()
    ]
    return write_export(path, served, signatures, settings, requests)


def _signatures(task, strip_prompt: bool, jit_compile: bool) -> dict:
    """Returns the functions by the names that they are served under."""
    find = tf.function(task.find, autograph=False, jit_compile=jit_compile)

    def generate(text, prompt=None):
        # TensorFlow calls a signature with tensors of any shape.
        text = tf.ensure_shape(text, [None])
        both = {"encoder_text": text, "decoder_text": prompt}
        ids = task.preprocess(text if prompt is None else both)
        found, scores = find(ids)
        token_ids, mask = task.complete(ids, found, strip_prompt)
        for special_id in task.tokenizer.special_token_ids:
            mask &= token_ids != special_id
        length, shape = token_ids.shape[-1], tf.shape(scores)
        rows = [tf.reshape(x, [-1, length]) for x in (token_ids, mask)]
        texts = task.tokenizer.detokenize(tf.ragged.boolean_mask(*rows))
        return {"texts": tf.reshape(texts, shape), "scores": scores}

    text, prompt = (tf.TensorSpec([None], tf.string, x) for x in ("text", "prompt"))
    signatures = {"serving_default": tf.function(generate, [text], autograph=False)}
    if task.part:
        specs = [text, prompt]
        signatures["with_prompt"] = tf.function(generate, specs, autograph=False)
    return signatures
