"""Random segmentations into subwords: equal seeds give equal ones in every process.

SentencePiece samples too, but since version 0.2.2 it draws other segmentations in every
process, whatever its seed. An interrupted training could not go on as it began.
"""

import bisect
import functools
import itertools
import math
import re
from collections.abc import Iterable, Iterator

import numpy as np
import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto

_SPACE = "\u2581"
_WORDS = re.compile(f"{_SPACE}*[^{_SPACE}]+|{_SPACE}+")
_GOES_ON_AFTER_A_WORD = re.compile(f"[^{_SPACE}]{_SPACE}")
_CACHED_WORDS = 1 << 16  # of at most so many characters:
_LONGEST_CACHED_WORD = 24
_UNKNOWN_PENALTY = 10.0  # SentencePiece's, in nats below the least likely subword
_Piece = ModelProto.SentencePiece


class SubwordSampler:
    """Samples segmentations of texts; subclasses sample those of a text's words.

    Each word is sampled separately. Where a vocabulary has subwords that span words,
    the whole text counts as one word.

    Attributes:
        ids: Id of every subword that text is made of.
    """

    def __init__(self, model: ModelProto, normalize):
        self._normalize = normalize
        self._has_bytes = model.trainer_spec.byte_fallback
        types = {piece.piece: piece.type for piece in model.pieces}
        self._user_defined = {x for x in types if types[x] == _Piece.USER_DEFINED}
        self._scores = {
            piece.piece: piece.score
            for piece in model.pieces
            if piece.type in (_Piece.NORMAL, _Piece.USER_DEFINED)
        }
        self.ids = {
            piece: i
            for i, piece in enumerate(types)
            if piece in self._scores or types[piece] == _Piece.BYTE
        }
        self._longest = max(map(len, self._scores))
        is_split = not any(map(_GOES_ON_AFTER_A_WORD.search, self._scores))
        self._words = _WORDS.findall if is_split else lambda text: [text] * bool(text)

    def sample(
        self, texts: list[str | bytes], alpha: float, seed: int
    ) -> Iterator[list[str]]:
        """Yields the subwords of each text, spelled as SentencePiece spells them."""
        generator = np.random.Generator(np.random.Philox(seed))
        rows = [self._words(as_text(self._normalize(text))) for text in texts]
        words = [*itertools.chain.from_iterable(rows)]
        samples = iter(self._sample_words(words, alpha, generator))
        for row in rows:
            pieces = itertools.chain.from_iterable(itertools.islice(samples, len(row)))
            yield [*self._without_unknown(pieces)]

    def _sample_words(self, words, alpha, generator) -> Iterable[Iterable[str]]:
        raise NotImplementedError

    def _without_unknown(self, pieces):
        """Joins adjacent unknown subwords, or replaces them by bytes."""
        for is_known, run in itertools.groupby(pieces, self._scores.__contains__):
            if is_known:
                yield from run
            elif self._has_bytes:
                yield from map("<0x{:02X}>".format, "".join(run).encode())
            else:
                yield "".join(run)


class BpeDropout(SubwordSampler):
    """Byte-pair encoding that drops merges at random.

    At every step, each possible merge is dropped with probability `alpha`. Of the
    others the one that was learnt first is applied, until no merge is left.

    Reference:
        [Provilkov et al., 2020](https://arxiv.org/abs/1910.13267), algorithm 1
    """

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self._costs = {piece: -score for piece, score in self._scores.items()}
        self._cached_costs = functools.lru_cache(_CACHED_WORDS)(self._costs_in_word)
        if self._user_defined:
            # They are never merged, so that each is a word of its own.
            longest_first = sorted(self._user_defined, key=len, reverse=True)
            split = re.compile(f"({'|'.join(map(re.escape, longest_first))})").split
            words = self._words
            self._words = lambda text: [
                word
                for i, part in enumerate(split(text))
                for word in ([part] if i % 2 else words(part))
            ]

    def _sample_words(self, words, alpha, generator):
        samples = [(word,) for word in words]
        # Words of the same length take each step together.
        by_length = sorted(range(len(words)), key=lambda i: len(words[i]))
        for _, group in itertools.groupby(by_length, lambda i: len(words[i])):
            group = [i for i in group if words[i] not in self._user_defined]
            if not group:
                continue
            of_length = [words[i] for i in group]
            for i, ends in self._merge(of_length, alpha, generator):
                word = of_length[i]
                pieces = [word[j:k] for j, k in itertools.pairwise(ends)]
                samples[group[i]] = tuple(pieces)  # cheaper for the garbage collector
        return samples

    def _merge(self, words, alpha, generator):
        """Yields numbers of words of the same length, and where their subwords end."""
        number_of = {word: i for i, word in enumerate(dict.fromkeys(words))}
        is_cached = len(words[0]) <= _LONGEST_CACHED_WORD
        costs_in_word = self._cached_costs if is_cached else self._costs_in_word
        costs = np.stack([*map(costs_in_word, number_of)])  # (word, start, size)
        length, num_sizes = costs.shape[1:]
        rows = np.arange(len(words))
        numbers = np.array([number_of[word] for word in words])[:, None]
        ends = np.tile(np.arange(length + 1), (len(words), 1))  # the first one is 0
        for num_merges in range(length - 1, 0, -1):
            starts, sizes = ends[:, :-2], ends[:, 2:] - ends[:, :-2]
            cost = costs[numbers, starts, np.where(sizes < num_sizes, sizes, 0)]
            cost[generator.random(cost.shape, np.float32) < alpha] = np.inf
            best = cost.argmin(axis=1, keepdims=True)
            is_left = np.take_along_axis(cost, best, axis=1)[:, 0] < np.inf
            is_done = ~is_left
            yield from zip(rows[is_done].tolist(), ends[is_done].tolist(), strict=True)
            if not is_left.any():
                return
            is_end = np.arange(num_merges + 2) != best + 1
            ends = ends[is_end].reshape(-1, num_merges + 1)[is_left]
            rows, numbers = rows[is_left], numbers[is_left]
        yield from zip(rows.tolist(), ends.tolist(), strict=True)

    def _costs_in_word(self, word):
        """Returns the cost of the subword of each start and size, infinite if none."""
        length, cost = len(word), self._costs.get
        sizes = range(min(self._longest, length) + 1)
        costs = [[cost(word[i : i + n], np.inf) for n in sizes] for i in range(length)]
        return np.array(costs, np.float32)


class SubwordRegularization(SubwordSampler):
    """Segmentations sampled by their probability in a unigram language model.

    Reference:
        [Kudo, 2018](https://arxiv.org/abs/1804.10959), section 3.2
    """

    def __init__(self, *arguments):
        super().__init__(*arguments)
        scores = [self._scores[x] for x in {*self._scores} - self._user_defined]
        self._unknown_score = min(scores) - _UNKNOWN_PENALTY
        for piece in self._user_defined:  # their score in SentencePiece
            self._scores[piece] = len(piece) * max(scores) - 0.1
        cache = functools.lru_cache(_CACHED_WORDS // 4)
        self._cached_last_subwords = cache(self._last_subwords)

    def _sample_words(self, words, alpha, generator):
        draws = iter(generator.random(sum(map(len, words))).tolist())
        for word in words:
            is_cached = len(word) <= _LONGEST_CACHED_WORD
            find = self._cached_last_subwords if is_cached else self._last_subwords
            last_subwords = find(word, alpha)
            pieces, end = [], len(word)
            while end:
                starts, probabilities = last_subwords[end - 1]
                start = starts[bisect.bisect(probabilities, next(draws))]
                pieces.insert(0, word[start:end])
                end = start
            yield pieces

    def _last_subwords(self, word, alpha):
        """Returns, for each end, where the last subword may start, and how probably.

        The probabilities are cumulative, and leave out the last start.
        """
        score = self._scores.get
        totals, last_subwords = [0.0], []  # log of the sum over segmentations, by end
        for end in range(1, len(word) + 1):
            starts, logs = [], []
            for start in range(max(0, end - self._longest), end):
                one = score(word[start:end])
                if one is None and end - start == 1:
                    one = self._unknown_score
                if one is not None:
                    starts.append(start)
                    logs.append(totals[start] + alpha * one)
            totals.append(float(np.logaddexp.reduce(logs)))
            probabilities = [math.exp(one - totals[end]) for one in logs]
            last_subwords.append((starts, [*itertools.accumulate(probabilities[:-1])]))
        return last_subwords


_SAMPLERS = {"BPE": BpeDropout, "UNIGRAM": SubwordRegularization}


@functools.lru_cache(16)
def subword_sampler(model_proto: bytes) -> SubwordSampler:
    """Returns the sampler that suits a SentencePiece model, one for equal models.

    Raises:
        ValueError: If the model is of another type.
    """
    model = ModelProto.FromString(model_proto)
    spec = model.trainer_spec
    name = spec.ModelType.Name(spec.model_type)
    if name not in _SAMPLERS:
        raise ValueError(
            "Subwords can be sampled from a BPE or a unigram model only. Received: a "
            f"model of type {name}."
        )
    processor = sentencepiece.SentencePieceProcessor(model_proto=model_proto)
    return _SAMPLERS[name](model, processor.normalize)


def as_text(text: str | bytes) -> str:
    """Decodes bytes; those that are not UTF-8 become replacement characters."""
    return text if isinstance(text, str) else text.decode("utf-8", "replace")
