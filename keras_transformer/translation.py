"""What translators take and return, whatever computes it."""

from collections.abc import Iterable
from typing import NamedTuple


class Translation(NamedTuple):
    """A translation and its score.

    Attributes:
        text: The translation.
        score: Its score, as the search defines it.
        flags: The reasons for which it looks wrong, such as `"loop"` or
            `"cut source"`; see `translator.flags`.
    """

    text: str
    score: float
    flags: tuple[str, ...] = ()


def as_bytes(texts: Iterable[str]) -> list[bytes]:
    """Returns texts in UTF-8; raises `ValueError` unless each of them is a str."""
    is_single = isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable)
    listed: list = [texts] if is_single else list(texts)
    for index, text in enumerate(listed):
        if is_single or not isinstance(text, str):
            place = "texts" if is_single else f"texts[{index}]"
            raise ValueError(
                "`texts` must be a list of str. "
                f"Received: {place} of type {type(text).__name__}."
            )
    # A lone surrogate, which UTF-8 cannot encode, becomes a question mark.
    return [text.encode("utf-8", "replace") for text in listed]
