"""Searches for LiteRT, which runs on phones: ids in, ids out.

The file holds the model and the search with its cache, and no operation that needs
TensorFlow's own kernels ("Flex"). Its one signature takes `input_ids`, int32 of any
shape `(batch, length)`, and returns `ids` and `scores`, as `model.generate` does.

Reference: https://ai.google.dev/edge/litert
"""

import json
import os
import re
from pathlib import Path

import tensorflow as tf

from keras_transformer.decoding import GreedySearch, Search
from keras_transformer.decoding.search import check_repeatable, check_search
from keras_transformer.interop.expressible import (
    check_is_new,
    control_pieces,
    source_prefix,
    unique_pieces,
)
from keras_transformer.kernels.attention import no_blocks
from keras_transformer.models.exports import check_suits_litert
from keras_transformer.storage import create_folder, replace_file, write_text
from keras_transformer.translator.translator import (
    Translator,
    check_serves_any_text,
    in_dtype,
)
from keras_transformer.version import __version__

_README = """\
# A translator for LiteRT

Written by keras-transformer VERSION. `model.tflite` reads and writes ids, in batches
of any size. In Python, it needs the packages ai-edge-litert and sentencepiece:

```python
import json
from pathlib import Path

import numpy as np
import sentencepiece
from ai_edge_litert.interpreter import Interpreter

folder = Path("FOLDER")
settings = json.loads((folder / "translator.json").read_text("utf-8"))
source, target = (
    sentencepiece.SentencePieceProcessor(str(folder / f"{side}.model"))
    for side in ("source", "target")
)
search = Interpreter(str(folder / "model.tflite")).get_signature_runner()


def translate(text):
    pieces = source.encode(text, out_type=str)
    if not pieces:
        return ""
    ids = [settings["ids"].get(piece, settings["unknown_id"]) for piece in pieces]
    ids = [*settings["source_prefix"], *ids, settings["end_id"]]
    found = search(input_ids=np.array([ids], "int32"))["ids"]
    pieces = [settings["pieces"][index] for index in found[0, 0]]
    text = target.decode([x for x in pieces if x not in settings["control"]])
    return text.replace("\\u2581", " ").strip()


print(translate("A man rides a bike."))
```

`translator.json` holds the ids of the source's subwords, and the subwords of the
target's ids. `source_prefix` begins every source. `control` have no text.
"""


def export_search(
    model,
    path: str | os.PathLike,
    search: Search | None = None,
    max_length: int = 64,
    quantization: str | None = None,
) -> Path:
    """Writes a model with its search as a file for LiteRT.

    Args:
        model: A `LanguageModel`, `Transformer` or `Ensemble`.
        path: File to write, such as `"model.tflite"`.
        search: As in `model.generate`; it must have a seed if it draws.
        max_length: As in `model.generate`.
        quantization: None for weights in float32; `"int8"` for integers, a quarter of
            the size, which changes some of the tokens.

    Returns:
        The path.

    Raises:
        FileExistsError: If `path` exists.
        ValueError: If `quantization` is unknown, `search` draws without a seed, or
            LiteRT lacks an operation, which the error names.

    Example:
        >>> model = kt.models.LanguageModel(
        ...     11, num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=16
        ... )
        >>> export_search(model, "model.tflite")  # doctest: +SKIP
    """
    path = check_is_new(path)
    search = GreedySearch() if search is None else search
    check_search(search)
    model = model.merge_lora()
    if model.compute_dtype != "float32":  # the only type of LiteRT's kernels
        model = in_dtype(model, "float32")

    def find(input_ids):
        return search(model, input_ids, max_length)

    converted = _convert(model, search, find, quantization)
    with replace_file(path) as unfinished:
        unfinished.write_bytes(converted)
    return path


def export_litert(
    translator: Translator,
    path: str | os.PathLike,
    search: Search,
    max_length: int | None = None,
    quantization: str | None = None,
) -> Path:
    """Writes a translator for LiteRT; see `Translator.export`.

    The folder holds `model.tflite`, the tokenizers, `translator.json` with their ids,
    and a README.md with the program that uses them. Sources may be of any length, as
    in `Translator.translate`.
    """
    path = check_is_new(path)
    check_serves_any_text(search)
    translator = translator.in_dtype("float32")
    policy = translator.batching_policy(max_length)
    lengths = [*map(policy.target_length, policy.source_lengths)]

    def find(input_ids):
        source_ids = translator.as_encoded(input_ids)
        limits = tf.gather([*lengths, 0], policy.group_of(source_ids))
        return search(translator.model, source_ids, lengths[-1], limits)

    converted = _convert(translator.model, search, find, quantization)
    source, target = translator.source_tokenizer, translator.target_tokenizer
    with create_folder(path) as unfinished:
        (unfinished / "model.tflite").write_bytes(converted)
        source.save(unfinished / "source.model")
        target.save(unfinished / "target.model")
        text = json.dumps(_settings(source, target), ensure_ascii=False, indent=1)
        write_text(unfinished / "translator.json", text + "\n")
        readme = _README.replace("VERSION", __version__).replace("FOLDER", path.name)
        write_text(unfinished / "README.md", readme)
    return path


def _settings(source, target) -> dict:
    pieces = unique_pieces(source)
    control = control_pieces(source, pieces)
    ids = {x: index for index, x in enumerate(pieces) if x not in control}
    pieces = unique_pieces(target)
    return {
        "keras_transformer": __version__,
        "source_prefix": source_prefix(source),
        "end_id": source.end_id,
        "unknown_id": source.unknown_id,
        "ids": ids,
        "pieces": pieces,
        "control": control_pieces(target, pieces),
    }


def _convert(model, search, find, quantization) -> bytes:
    """Returns a LiteRT model whose signature is a function from ids to `Hypotheses`."""
    if quantization not in (None, "int8"):
        raise ValueError(
            "`quantization` must be None or 'int8'. "
            f"Received: quantization={quantization!r}."
        )
    check_repeatable(search)
    check_suits_litert(model)
    ids = tf.TensorSpec([None, None], tf.int32, "input_ids")
    served = tf.Module()
    served.weights = [weight.value for weight in model.weights]
    served.find = tf.function(lambda x: find(x)._asdict(), [ids], autograph=False)
    with no_blocks(0):
        function = served.find.get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], served)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    if quantization:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    try:
        return converter.convert()
    except Exception as error:  # TensorFlow has no public name for it
        missing = re.search(r"TF Select ops: (.*)", str(error))
        if missing is None:
            raise
        raise ValueError(
            f"LiteRT lacks the operations {missing[1]}, which the model or the search "
            f"needs. Received: search={search!r}. Try `GreedySearch()`."
        ) from None
