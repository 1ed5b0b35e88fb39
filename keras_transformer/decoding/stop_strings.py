"""Strings that end a hypothesis once its text contains one."""

import json
from collections.abc import Iterable

import keras
import numpy as np
from keras import ops

from keras_transformer.decoding.configurable import Configurable

# States: before any text, and after text that ends with no prefix of a stop string.
START, EMPTY = 0, 1


@keras.saving.register_keras_serializable(package="keras_transformer")
class StopStrings(Configurable):
    """Ends a sequence as soon as its text contains one of these strings.

    A stop string may span tokens, and begin and end inside of them. The token that
    completes it is the last of the sequence, as an end token is. Only the text of
    a hypothesis counts, not that of a prompt, and without the space that it may
    begin with, which detokenizers leave out.

    `SubwordTokenizer.stop_strings` makes this object from a tokenizer's vocabulary.

    Each hypothesis has one integer, its state: the longest prefix of a stop string
    that its text ends with. Tokens that change every state in the same way form one
    class, so a step takes two look-ups in small tables, whatever the vocabulary.

    Args:
        strings: One string or several, none of them empty.
        tokens: Dictionary of the text of every token by its id. A token without
            text, such as a start token, has the text "". Bytes that are not valid
            UTF-8 are decoded with `errors="surrogateescape"`. Tokens that cannot
            be part of a stop string are not kept, and may be left out.

    Raises:
        ValueError: If there is no string or an empty one.

    Example:
        >>> texts = dict(enumerate(["", "?", "", "", " a", "b#", "##", "#"]))
        >>> search = kt.decoding.GreedySearch(
        ...     stop_strings=kt.decoding.StopStrings(["###"], texts)
        ... )
        >>> search.stop_strings
        StopStrings(strings=('###',), tokens=<6 tokens>)

    Reference:
        [Aho and Corasick, 1975](https://doi.org/10.1145/360825.360855)
    """

    def __init__(self, strings: str | Iterable[str], tokens: dict[int, str]):
        strings = (strings,) if isinstance(strings, str) else tuple(strings)
        if not strings or not all(isinstance(one, str) and one for one in strings):
            raise ValueError(
                "`strings` must be one string or several, none of them empty. "
                f"Received: strings={strings}."
            )
        stops = [to_bytes(one) for one in strings]
        in_order = sorted((int(token_id), text) for token_id, text in tokens.items())
        is_part = part_of(stops)
        self.strings = strings
        self.tokens = {key: text for key, text in in_order if is_part(to_bytes(text))}
        # One string, since configs of searches are compared before each search.
        self._tokens_as_json = json.dumps(self.tokens)
        self._transitions, self._classes = transition_tables(stops, self.tokens)

    def first_states(self, shape):
        """Returns the states before the first token, int32 tensor of this shape."""
        return ops.full(shape, START, dtype="int32")

    def read(self, states, token_ids):
        """Reads one more token of each hypothesis.

        Args:
            states: Int32 tensor, as `first_states` or the last `read` returned it.
            token_ids: Int32 tensor of the same shape.

        Returns:
            The new states.
        """
        # Tokens beyond the table are of the class of its last entry.
        token_ids = ops.clip(token_ids, 0, len(self._classes) - 1)
        num_classes = self._transitions.shape[1]
        places = states * num_classes + ops.take(self._classes, token_ids)
        return ops.take(self._transitions.reshape(-1), places)

    def is_complete(self, states):
        """Tells which states have a stop string in their text."""
        return states == len(self._transitions) - 1

    def get_config(self):
        return {"strings": list(self.strings), "tokens": self._tokens_as_json}

    @classmethod
    def from_config(cls, config):
        return cls(config["strings"], json.loads(config["tokens"]))

    def __repr__(self):
        tokens = f"<{len(self.tokens)} tokens>"
        return f"StopStrings(strings={self.strings!r}, tokens={tokens})"


def to_bytes(text: str) -> bytes:
    """Returns the bytes of a token's text."""
    return text.encode("utf-8", "surrogateescape")


def part_of(stops):
    """Returns a function that tells whether a token can be part of a stop string.

    Tokens without text, which change no state, count as parts too. After all other
    tokens the state is `EMPTY`.
    """
    prefixes = tuple({stop[: n + 1] for stop in stops for n in range(len(stop))})
    suffixes = tuple({stop[n:] for stop in stops for n in range(len(stop))})

    def is_part(text):
        if text.endswith(prefixes) or text.startswith(suffixes):
            return True
        return any(text in stop or stop in text for stop in stops)

    return is_part


def transition_tables(stops, tokens):
    """Returns the automaton that finds stop strings.

    Args:
        stops: The strings as bytes.
        tokens: The texts of tokens by their ids, ascending.

    Returns:
        Int32 arrays: the next state by state and class, of shape
        `(states, classes)`, in which the last state is complete; and the class by
        token id, in which the last entry is that of all further tokens.
    """
    prefixes = sorted({stop[:n] for stop in stops for n in range(len(stop))}, key=len)
    states = {prefix: state for state, prefix in enumerate(prefixes, start=EMPTY)}
    complete = EMPTY + len(prefixes)

    def state_after(text):
        if any(stop in text for stop in stops):
            return complete
        start = max(0, len(text) - len(prefixes[-1]))
        tails = (text[place:] for place in range(start, len(text) + 1))
        return next(states[tail] for tail in tails if tail in states)

    def column(text):
        first = text.removeprefix(b" ")
        return (
            state_after(first) if first else START,
            *(state_after(prefix + text) for prefix in prefixes),
            complete,
        )

    columns = {(*[EMPTY] * complete, complete): 0}
    classes = np.zeros(max(tokens, default=-1) + 2, "int32")
    for token_id, text in tokens.items():
        classes[token_id] = columns.setdefault(column(to_bytes(text)), len(columns))
    return np.array(list(columns), "int32").T, classes
