"""Toy models with a cached step, and reference searches in NumPy."""

import contextlib

import keras
import numpy as np
from keras import ops

from keras_transformer.decoding import CachedModel

PAD, START, END = 0, 1, 2


@contextlib.contextmanager
def step_by_step():
    """Turns off compilation, so that a model's steps can be counted."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        tf.config.run_functions_eagerly(True)
        yield
        tf.config.run_functions_eagerly(False)
    elif backend == "jax":
        import jax

        with jax.disable_jit():
            yield
    else:
        yield


class ToyModel(CachedModel):
    """Returns logits that depend on the sentence and on every token so far.

    Each token writes a vector, which also depends on its position, into its slot of
    the cache. The state of a hypothesis is the sum of its visible entries, so one entry
    too many, too few or of another hypothesis changes all logits. The cache is
    lengthened at the positions in `growth`.
    """

    pad_id, start_id, end_id = PAD, START, END

    def __init__(
        self, vocabulary_size, max_length, seed=0, dim=7, end_bias=0.0, growth=()
    ):
        random = np.random.default_rng(seed)
        self.vocabulary_size = vocabulary_size
        self.entries = random.normal(size=(max_length, vocabulary_size, dim))
        self.sources = random.normal(size=(13, dim))
        self.outputs = random.normal(size=(dim, vocabulary_size))
        self.bias = end_bias * (np.arange(vocabulary_size) == END)
        self.growth = growth
        self.num_steps = 0  # counts eager steps, and traces

    def first_cache_length(self, max_length, num_hypotheses):
        shorter = [length for length in self.growth if length < max_length]
        return shorter[-1] if shorter else max_length

    def lengthen(self, cache, length):
        missing = length - cache["entries"].shape[1]
        padding = ((0, 0), (0, missing), (0, 0), (0, 0))
        return {"entries": ops.pad(cache["entries"], padding)}

    def start(self, inputs, num_hypotheses, max_length):
        # Ids beyond the table make sentences differ without changing the logits.
        is_known = (inputs != PAD) & (inputs < len(self.sources))
        sources = ops.take(
            self.sources.astype("float32"), ops.where(is_known, inputs, 0), axis=0
        )
        sources = ops.where(is_known[..., None], sources, 0.0)
        shape = (ops.shape(inputs)[0], max_length, num_hypotheses, sources.shape[-1])
        return {"sentence": ops.sum(sources, axis=1)}, {"entries": ops.zeros(shape)}

    def step(self, token_ids, context, cache, index, visible):
        self.num_steps += 1
        size, dim = self.entries.shape[1:]
        table = ops.reshape(self.entries.astype("float32"), (-1, dim))
        written = ops.take(table, index[:, None] * size + token_ids, axis=0)
        is_here = ops.arange(visible.shape[2]) == index[:, None]
        is_here = is_here[..., None, None]
        entries = ops.where(is_here, written[:, None], cache["entries"])
        state = ops.einsum("bitj,btjd->bid", ops.cast(visible, "float32"), entries)
        state = ops.tanh(state + context["sentence"][:, None])
        logits = ops.matmul(state, self.outputs.astype("float32"))
        return ops.add(logits, self.bias.astype("float32")), {"entries": entries}

    def logits_after(self, source, tokens):
        """Returns the next logits of one sentence, in float64 and without a cache."""
        state = sum(self.sources[one] for one in source if one != PAD)
        for position, token in enumerate([START, *tokens]):
            state = state + self.entries[position, token]
        return np.tanh(state) @ self.outputs + self.bias


class TableModel(CachedModel):
    """Returns logits that depend only on the position, in any dtype."""

    pad_id, start_id, end_id = PAD, START, END

    def __init__(self, logits, dtype="float32"):
        self.logits = np.asarray(logits, "float32")  # (max_length, vocabulary)
        self.dtype = dtype
        self.num_steps = 0

    def start(self, inputs, num_hypotheses, max_length):
        return (), ops.zeros((ops.shape(inputs)[0],))

    def step(self, token_ids, context, cache, index, visible):
        self.num_steps += 1
        logits = ops.take(self.logits, index, axis=0)[:, None]
        shape = (*ops.shape(token_ids), self.logits.shape[-1])
        return ops.cast(ops.broadcast_to(logits, shape), self.dtype), cache


def next_log_probabilities(model, source, tokens, processors=()):
    """Returns the log-probabilities of the next token after the processors.

    A processor is here a NumPy function of logits and tokens.
    """
    logits = model.logits_after(source, tokens)
    normalizer = np.log(np.sum(np.exp(logits)))
    for process in processors:
        logits = process(logits.copy(), list(tokens))
    logits[PAD] = -np.inf
    return logits - normalizer


def ends_with(*end_ids):
    """Returns a function that tells whether tokens end with one of these."""
    return lambda tokens: tokens[-1] in end_ids


ends_with_end = ends_with(END)


def all_sequences(vocabulary_size, max_length, ends=ends_with_end):
    """Yields all sequences that end by `max_length`, or reach it without ending."""
    growing = [()]
    for length in range(1, max_length + 1):
        longer = [
            (*tokens, token)
            for tokens in growing
            for token in range(vocabulary_size)
            if token != PAD
        ]
        growing = [tokens for tokens in longer if not ends(tokens)]
        yield from longer if length == max_length else filter(ends, longer)


def ranked(
    model, source, max_length, length_penalty, processors=(), ends=ends_with_end
):
    """Returns all allowed `(score, tokens)` of a sentence, best first."""
    scored = []
    for tokens in all_sequences(model.vocabulary_size, max_length, ends):
        total = sum(
            next_log_probabilities(model, source, tokens[:t], processors)[token]
            for t, token in enumerate(tokens)
        )
        scored.append((total / ((5 + len(tokens)) / 6) ** length_penalty, tokens))
    return sorted((one for one in scored if one[0] > -np.inf), reverse=True)


def plain_greedy_search(model, source, max_length, processors=(), ends=ends_with_end):
    """Searches one sentence as the docstring of `GreedySearch` says."""
    score, tokens = 0.0, ()
    while len(tokens) < max_length and score > -np.inf:
        if tokens and ends(tokens):
            break
        gains = next_log_probabilities(model, source, tokens, processors)
        score += np.max(gains)
        tokens += (np.argmax(gains),) if score > -np.inf else ()
    return score, tokens


def plain_beam_search(
    model,
    source,
    max_length,
    width,
    length_penalty,
    processors=(),
    ends=ends_with_end,
    num_extensions=None,
):
    """Searches one sentence exactly as the docstring of `BeamSearch` says."""
    live, finished = [(0.0, ())], []
    for length in range(1, max_length + 1):
        divisor = ((5 + length) / 6) ** length_penalty
        extensions = []
        for score, tokens in live:
            gains = next_log_probabilities(model, source, tokens, processors)
            extensions += [
                (score + gain, (*tokens, token))
                for token, gain in enumerate(gains)
                if gain > -np.inf
            ]
        extensions = sorted(extensions, key=lambda one: -one[0])[:num_extensions]
        finished += [
            (score / divisor, tokens)
            for score, tokens in extensions[:width]
            if ends(tokens)
        ]
        finished = sorted(finished, key=lambda one: -one[0])[:width]
        live = [one for one in extensions if not ends(one[1])][:width]
        is_full = len(finished) == width
        if not live or (is_full and live[0][0] / divisor <= finished[-1][0]):
            live = []
            break
    finished += [(score / divisor, tokens) for score, tokens in live]
    return sorted(finished, key=lambda one: -one[0])


def padded(tokens, max_length):
    return [*tokens, *[PAD] * (max_length - len(tokens))]


def assert_same(hypotheses, expected, atol=1e-5):
    """Compares the hypotheses of each sentence with the best of its ranking."""
    ids, scores = map(ops.convert_to_numpy, hypotheses)
    assert (ids.dtype, scores.dtype) == ("int32", "float32")
    for row, row_scores, ranking in zip(ids, scores, expected, strict=True):
        best = ranking[: len(row)]
        assert row[: len(best)].tolist() == [
            padded(tokens, ids.shape[-1]) for _, tokens in best
        ]
        np.testing.assert_allclose(
            row_scores[: len(best)], [score for score, _ in best], atol=atol
        )
        assert (row[len(best) :] == PAD).all()
        assert (row_scores[len(best) :] == -np.inf).all()
