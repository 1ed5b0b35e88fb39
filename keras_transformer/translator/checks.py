"""Checks of what a `Translator` is made of and asked to do."""

from collections.abc import Iterable

from keras_transformer.decoding import ForcedPrefix, Search
from keras_transformer.decoding.search import check_search
from keras_transformer.models import Ensemble, Transformer
from keras_transformer.text.inputs import check_tokenizer


def check_serves_any_text(search: Search) -> None:
    """Refuses a search that has settings for each text of one batch.

    Args:
        search: A search of `keras_transformer.decoding`.

    Raises:
        ValueError: If it is no search, or has such settings, such as a different prefix
            for each text.
    """
    check_search(search)
    for processor in search.processors:
        if isinstance(processor, ForcedPrefix) and processor.num_sequences != 1:
            raise ValueError(
                "`search` must force one prefix for all texts, because texts are "
                f"sorted. Received: prefixes for {processor.num_sequences} texts. "
                "Translate each text with its own search, or call `model.generate`."
            )


def check_max_source_length(max_source_length: int) -> None:
    """Raises `ValueError` unless a subword and its end token fit."""
    if not isinstance(max_source_length, int) or max_source_length < 2:
        raise ValueError(
            "`max_source_length` must be an integer of at least 2, for a subword and "
            f"its end token. Received: max_source_length={max_source_length!r}."
        )


def check_tokenizers_fit(model, source_tokenizer, target_tokenizer) -> None:
    """Raises `ValueError` unless a model has the tokenizers' vocabularies."""
    if not isinstance(model, Transformer | Ensemble):
        raise ValueError(
            "`model` must be a Transformer or an Ensemble. "
            f"Received: a {type(model).__name__}."
        )
    config = model.settings
    source_size = config["source_vocabulary_size"]
    sizes = {"source": source_size, "target": config["target_vocabulary_size"]}
    tokenizers = {"source": source_tokenizer, "target": target_tokenizer}
    for side, tokenizer in tokenizers.items():
        check_tokenizer(f"{side}_tokenizer", tokenizer)
        size = sizes[side] or source_size
        if tokenizer.vocabulary_size != size:
            raise ValueError(
                f"`{side}_tokenizer` must have the model's {side} vocabulary of {size} "
                f"subwords. Received: one of {tokenizer.vocabulary_size} subwords. "
                "Pass the tokenizer that the model was trained with."
            )
    for name, tokenizer in (
        ("pad_id", source_tokenizer),
        ("pad_id", target_tokenizer),
        ("start_id", target_tokenizer),
        ("end_id", target_tokenizer),
    ):
        expected, received = getattr(tokenizer, name), getattr(model, name)
        if received != expected:
            raise ValueError(
                f"`model` must have the {name} of its tokenizers, {expected}. "
                f"Received: {name}={received}."
            )


def check_one_transformer(translator, what: str) -> None:
    """Refuses what is not a translator of one model.

    Args:
        translator: A `Translator`.
        what: What needs one Transformer, for the error.

    Raises:
        ValueError: If its model is an ensemble, or it is not a `Translator`.
    """
    model = getattr(translator, "model", None)
    if not isinstance(model, Transformer):
        received = f"a {type(translator).__name__}"
        if isinstance(model, Ensemble):
            received = f"an ensemble of {len(model.models)}"
        raise ValueError(
            f"{what} needs a translator of one Transformer. Received: {received}. "
            "Name one that it was made of."
        )


def check_lines(lines) -> None:
    """Raises `ValueError` if `lines` is a single text, a path or no iterable."""
    if isinstance(lines, (str, bytes)) or not isinstance(lines, Iterable):
        raise ValueError(
            "`lines` must be an iterable of str, such as an open file. "
            f"Received: lines of type {type(lines).__name__}."
        )


def list_of_texts(texts: Iterable[str]) -> list[str]:
    """Returns texts as a list; raises `ValueError` unless each of them is a str."""
    is_single = isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable)
    listed: list = [texts] if is_single else list(texts)
    for index, text in enumerate(listed):
        if is_single or not isinstance(text, str):
            place = "texts" if is_single else f"texts[{index}]"
            raise ValueError(
                "`texts` must be a list of str. "
                f"Received: {place} of type {type(text).__name__}."
            )
    return listed
