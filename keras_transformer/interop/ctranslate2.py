"""Exports translators to CTranslate2, which runs Transformers fast on CPUs and GPUs.

The folder holds CTranslate2's model, the tokenizers, `translator.json` with the
arguments of `translate_batch` that fit the translator's search, and a README.md with
the program that uses them. CTranslate2 never produces padding, nor what the search
bans: the bias of its logits forbids them, and scores leave out their probability.

docs/exports.md lists what CTranslate2 can express.

Reference: https://opennmt.net/CTranslate2
"""

import json
import math
import os
from importlib.util import find_spec
from pathlib import Path

from keras_transformer.decoding import BeamSearch, GreedySearch, Sampling, Search
from keras_transformer.interop.ctranslate2_model import SYSTEM, model_spec
from keras_transformer.interop.expressible import (
    check_is_new,
    control_pieces,
    limits_of,
    power_of_length,
    refuse,
    source_prefix,
    unique_pieces,
)
from keras_transformer.storage import create_folder, write_text
from keras_transformer.translator.translator import (
    Translator,
    check_one_transformer,
    check_serves_any_text,
)
from keras_transformer.version import __version__

_README = """\
# A translator for CTranslate2

Written by keras-transformer VERSION. It needs the packages ctranslate2 and
sentencepiece:

```python
import json
from pathlib import Path

import ctranslate2
import sentencepiece

folder = Path("FOLDER")
settings = json.loads((folder / "translator.json").read_text("utf-8"))
source, target = (
    sentencepiece.SentencePieceProcessor(str(folder / f"{side}.model"))
    for side in ("source", "target")
)
engine = ctranslate2.Translator(str(folder))


def translate(texts):
    pieces = source.encode(texts, out_type=str)
    results = engine.translate_batch(
        [[*settings["source_prefix"], *row] for row in pieces],
        target_prefix=[settings["target_prefix"]] * len(texts),
        **settings["translate_batch"],
    )
    found = [result.hypotheses[0] for result in results]
    control = {*settings["control"]}
    texts = target.decode([[x for x in row if x not in control] for row in found])
    # Subwords that only the source's model knows keep their mark of a space.
    return [text.replace("\u2581", " ").strip() for text in texts]


print(translate(["A man rides a bike."]))
```

`translator.json` holds the arguments that fit the search of the translator.
`source_prefix` begins every source: name a target language there (`>>fra<<`) if the
model has several. `control` are the subwords that have no text. Scores are
log-probabilities over `length ** length_penalty`. A beam search ends when `beam_size`
translations have ended; with `patience=2`, when twice as many have.
"""


def export_ctranslate2(
    translator: Translator,
    path: str | os.PathLike,
    search: Search,
    max_length: int | None = None,
    quantization: str | None = None,
) -> Path:
    """Writes a translator as a model of CTranslate2; see `Translator.export`."""
    check_one_transformer(translator, "CTranslate2")
    path = check_is_new(path)
    check_serves_any_text(search)
    limits = limits_of(search, translator.model.pad_id, SYSTEM)
    max_length = max_length or 2 * translator.max_source_length
    settings = _settings(translator, search, max_length, limits)
    longest = max(max_length, translator.max_source_length)
    spec = model_spec(translator, limits.banned_ids, longest)
    if "bfloat16" in (quantization or "") and find_spec("torch") is None:
        raise ImportError(
            f"quantization={quantization!r} needs the package torch, which is not "
            "installed. Install it with: pip install torch"
        )
    spec.validate()
    spec.optimize(quantization)
    with create_folder(path) as unfinished:
        spec.save(str(unfinished))
        translator.source_tokenizer.save(unfinished / "source.model")
        translator.target_tokenizer.save(unfinished / "target.model")
        readme = _README.replace("VERSION", __version__).replace("FOLDER", path.name)
        write_text(unfinished / "README.md", readme)
        text = json.dumps(settings, ensure_ascii=False, indent=2) + "\n"
        write_text(unfinished / "translator.json", text)
    return path


def _settings(translator, search, max_length, limits) -> dict:
    """Returns how the search is called in CTranslate2."""
    pieces = unique_pieces(translator.target_tokenizer)
    limit = getattr(translator.model.encoder.positions, "max_length", math.inf)
    arguments = {
        **_search_arguments(search),
        "max_input_length": min(translator.max_source_length, limit),
        "max_decoding_length": min(max_length, limit),
        # Without the end token. By default no translation is empty.
        "min_decoding_length": max(limits.min_length - 1, 0),
        "no_repeat_ngram_size": limits.ngram_size,
    }
    if search.end_ids is not None:
        arguments["end_token"] = [pieces[index] for index in search.end_ids]
    source = translator.source_tokenizer
    return {
        "keras_transformer": __version__,
        "source_prefix": source.pieces(source_prefix(source)),
        "target_prefix": [pieces[index] for index in limits.forced_ids],
        "control": control_pieces(translator.target_tokenizer, pieces),
        "translate_batch": arguments,
    }


def _search_arguments(search):
    if isinstance(search, BeamSearch):
        return {
            "beam_size": search.beam_width,
            "length_penalty": power_of_length(search, SYSTEM),
            "num_hypotheses": search.num_hypotheses,
        }
    greedy = {"beam_size": 1, "length_penalty": 0.0}
    if isinstance(search, Sampling) and search.is_random:
        return {
            **greedy,
            "num_hypotheses": search.num_hypotheses,
            "sampling_temperature": search.temperature,
            "sampling_topk": search.top_k or 0,
            "sampling_topp": search.top_p or 1.0,
        }
    if isinstance(search, GreedySearch):
        return greedy
    return refuse(SYSTEM, f"the search {search!r}")
