"""Searches of this package for KerasHub's language models.

`lm.compile(sampler=SearchSampler(search))` has `lm.generate` search as `search` does.
`generate` returns scores too, and several texts for each input. KerasHub, the package
`keras-hub`, was formerly `keras-nlp`.
"""

from collections.abc import Iterable

import keras
from keras import ops

from keras_transformer.checks import optional
from keras_transformer.decoding import Hypotheses, Search
from keras_transformer.decoding.model import CachedModel
from keras_transformer.decoding.search import check_search
from keras_transformer.kernels.compiled import CompiledFunction
from keras_transformer.layers.cache import read_position

with optional("keras_hub", extra="keras-hub", purpose="Searching a KerasHub model"):
    import keras_hub

NO_TOKEN = -1  # KerasHub's models may produce every id, even the padding's
MAX_PROGRAMS = 64  # that a model keeps


class SearchSampler(keras_hub.samplers.Sampler):
    """A search of this package as a sampler of KerasHub.

    The search continues each prompt from its own end, even if others in the batch are
    longer. Processors, length penalties and scores see what was added to the prompt.
    `num_hypotheses` of a search has no effect on `lm.generate`, which returns one text
    for each input.

    Args:
        search: A search of `keras_transformer.decoding`. Its `end_ids`, if it has any,
            override the `stop_token_ids` of `lm.generate`.

    Raises:
        ValueError: If `search` is not a search; when called, if it or `stop_token_ids`
            has an id outside the model's vocabulary.

    Example:
        >>> search = kt.decoding.BeamSearch(4, length_penalty=0.6)
        >>> sampler = SearchSampler(search)
        >>> lm.compile(sampler=sampler)  # doctest: +SKIP
        >>> lm.generate("The quick brown fox", max_length=30)  # doctest: +SKIP
    """

    def __init__(self, search: Search):
        super().__init__()
        check_search(search)
        self.search = search
        # A seed of its own, whose state KerasHub carries through compiled code.
        self.seed_generator = keras.random.SeedGenerator()

    def __call__(
        self,
        next,
        prompt,
        cache=None,
        index=0,
        mask=None,
        stop_token_ids=None,
        **_,
    ):
        """Fills in the tokens after each prompt; see `keras_hub.samplers.Sampler`."""
        if mask is None:  # the prompts end where the search begins
            is_prompt = ops.arange(prompt.shape[1], dtype="int32") < index
            mask = ops.broadcast_to(is_prompt, ops.shape(prompt))
        search = self.search
        if search.end_ids is None and stop_token_ids is not None:
            search = search.replace(end_ids=stop_token_ids)
        model = _Sampled(search, next, prompt, cache, index, mask, self.seed_generator)
        found = model.find()
        token_ids, _ = after_prompts(found.ids[:, :1], prompt, mask)
        return ops.cast(token_ids[:, 0], prompt.dtype)

    def get_config(self):
        return {"search": keras.saving.serialize_keras_object(self.search)}

    @classmethod
    def from_config(cls, config):
        return cls(keras.saving.deserialize_keras_object(config["search"]))


class _Sampled(CachedModel):
    """The cached step of what KerasHub gives a sampler.

    Its cache is KerasHub's, with a row for each hypothesis. A step gathers the rows of
    the hypotheses that were extended, since KerasHub's attention knows no lineage.
    """

    pad_id, start_id, end_id = NO_TOKEN, 0, NO_TOKEN

    def __init__(self, search, next, prompt, cache, index, mask, seed_generator=None):
        self._search, self._next, self._prompt = search, next, prompt
        self._mask, self._first = ops.cast(mask, "bool"), ops.cast(index, "int32")
        self._cache = () if cache is None else cache
        self.seed_generator = seed_generator

    def find(self) -> Hypotheses:
        """Returns what the search finds: ids and scores of what follows each prompt."""
        search, max_length = self._search, self._prompt.shape[1]
        inputs = ops.where(self._mask, ops.cast(self._prompt, "int32"), NO_TOKEN)
        # Prompts that are longer than the shortest begin later, and end with it.
        lengths = ops.sum(ops.cast(self._mask, "int32"), axis=1)
        limits = max_length - lengths
        state = search.begin(self, inputs, max_length, max_length, limits)
        state = state._replace(index=self._first - lengths)
        state = search.advance(self, self.step, state, max_length)
        return search.best(state.hypotheses)

    def start(self, inputs, num_hypotheses: int, max_length: int):
        def repeat(x):
            return ops.repeat(x, num_hypotheses, axis=0)

        # A step whose result is dropped tells which tensors `next` returns unchanged,
        # such as an encoder's: equal for all hypotheses, they stay in place.
        _, _, after = self._next(self._prompt, self._cache, self._first)
        self._is_kept = keras.tree.map_structure(
            lambda one, other: one is other, self._cache, after
        )
        context = tuple(map(repeat, (self._prompt, self._mask)))
        cache = keras.tree.map_structure(repeat, self._cache)
        # The position of the next step, the same for all sentences.
        return context, (cache, self._first)

    def step(self, token_ids, context, cache, index, visible):
        prompt, mask = context
        cache, place = cache
        batch, hypotheses = ops.shape(token_ids)[0], token_ids.shape[1]
        if hypotheses > 1:
            # The hypothesis that each last token was extended from.
            slots = ops.cast(ops.argmax(ops.cast(visible, "int32"), axis=-1), "int32")
            parents = read_position(slots, index - 1)
            rows = ops.arange(batch, dtype="int32")[:, None] * hypotheses
            rows = ops.reshape(rows + parents, (-1,))
            cache = keras.tree.map_structure(
                lambda x, is_kept: x if is_kept else ops.take(x, rows, axis=0),
                cache,
                self._is_kept,
            )
        # Where the prompt is longer, its token is read rather than the hypothesis's.
        tokens = ops.cast(ops.reshape(token_ids, (-1, 1)), prompt.dtype)
        prompt = ops.where(mask, prompt, ops.where(tokens < 0, 0, tokens))
        logits, _, cache = self._next(prompt, cache, place)
        size = logits.shape[-1]
        check_search(self._search, size)
        logits = ops.reshape(ops.cast(logits, "float32"), (-1, hypotheses, size))
        return logits, (cache, place + 1)


def after_prompts(ids, prompt, mask):
    """Writes what a search found, `(batch, hypotheses, length)`, after each prompt.

    `mask` says where the prompts have tokens. Returns all ids, and where it wrote.
    """
    mask = ops.cast(mask, "int32")[:, None]
    places = ops.arange(mask.shape[-1], dtype="int32") - ops.sum(
        mask, axis=-1, keepdims=True
    )
    places = ops.broadcast_to(places, ops.shape(ids))
    ids = ops.take_along_axis(ids, ops.where(places > 0, places, 0), axis=-1)
    is_added = (places >= 0) & (mask == 0) & (ids != NO_TOKEN)
    return ops.where(is_added, ids, ops.cast(prompt, "int32")[:, None]), is_added


def generate(
    lm,
    inputs,
    search: Search,
    max_length: int | None = None,
    stop_token_ids: str | Iterable[int] | None = "auto",
    strip_prompt: bool = False,
):
    """Continues texts with a search, and returns every hypothesis with its score.

    Args:
        lm: A `keras_hub.models.CausalLM` or `Seq2SeqLM` with a preprocessor.
        inputs: As in `lm.generate`: texts, or a dictionary of texts; for a speech
            model, a dictionary with `audio` and optionally `text`.
        search: A search of `keras_transformer.decoding`.
        max_length: As in `lm.generate`: tokens of a result, including its prompt.
        stop_token_ids: As in `lm.generate`.
        strip_prompt: Whether to return only what was added to the prompts.

    Returns:
        `(texts, scores)`: a list with a list of texts for each input, best first, and a
        float32 array of shape `(batch, hypotheses)`. Scores cover only what was added
        to the prompt.

    Raises:
        ValueError: If `lm` has no preprocessor or no tokenizer of texts, has fewer
            positions than `max_length`, or lacks an id in `search` or `stop_token_ids`;
            or if a speech model gets no `audio`.
    """
    task = SearchedTask(lm, search, stop_token_ids, max_length)
    found, scores = task.run(ids := task.preprocess(_as_batch(inputs)))
    token_ids, mask = task.complete(ids, found, strip_prompt)
    texts = [task.detokenize(*one) for one in zip(token_ids, mask, strict=True)]
    return texts, scores


def _as_batch(inputs):
    if isinstance(inputs, dict):
        return {name: _as_batch(texts) for name, texts in inputs.items()}
    return [inputs] if isinstance(inputs, str) else inputs


class SearchedTask:
    """A language model of KerasHub and a search of it; arguments as in `generate`."""

    def __init__(self, lm, search, stop_token_ids="auto", max_length=None):
        check_search(search)
        is_lm = isinstance(lm, keras_hub.models.CausalLM)
        tokenizer = getattr(lm.preprocessor, "tokenizer", None) if is_lm else None
        if tokenizer is None:
            raise ValueError(
                "`lm` must be a KerasHub model that generates text, with a "
                f"preprocessor that has a tokenizer. Received: lm={lm!r}."
            )
        self.lm, self.tokenizer = lm, tokenizer
        # An encoder-decoder's prompt is what its decoder reads.
        self.part = "decoder_" if isinstance(lm, keras_hub.models.Seq2SeqLM) else ""
        self.max_length = max_length or lm.preprocessor.sequence_length
        limit = getattr(lm.backbone, "max_sequence_length", None)
        if limit is not None and self.max_length > limit:
            raise ValueError(
                f"`max_length` must be at most {limit}, the model's positions. "
                f"Received: max_length={self.max_length}."
            )
        if stop_token_ids == "auto":
            names = ("end_token_id", "end_token2_id")  # Llama 3 has two
            ids = (getattr(tokenizer, name, None) for name in names)
            stop_token_ids = [each for each in ids if each is not None]
        if search.end_ids is None and stop_token_ids is not None:
            search = search.replace(end_ids=stop_token_ids)
        check_search(search, lm.output_shape[-1])
        self.search = search

    def preprocess(self, inputs):
        """Returns the ids of texts, as the model's preprocessor makes them."""
        is_speech = isinstance(self.lm, keras_hub.models.MoonshineAudioToText)
        if is_speech and not (isinstance(inputs, dict) and "audio" in inputs):
            raise ValueError(
                "`inputs` must be a dictionary with the `audio` that a speech model "
                "reads, waveforms of shape `(batch, samples)`, and optionally the "
                f"`text` that begins the results. Received: {type(inputs).__name__}."
            )
        return self.lm.preprocessor.generate_preprocess(
            inputs, sequence_length=self.max_length
        )

    def find(self, ids, tables=None) -> Hypotheses:
        """Searches eagerly or in a trace; `tables` are as in `Search.tables`."""
        found = []
        search = self.search.with_tables(tables or {})

        def sample(next, prompt, cache, index, mask, **_):
            found.append(_Sampled(search, next, prompt, cache, index, mask).find())
            return prompt

        before, self.lm.sampler = self.lm.sampler, sample
        try:
            self.lm.generate_step(ids)
        finally:
            self.lm.sampler = before
        return found[0]

    def run(self, ids) -> Hypotheses:
        """Searches with a program that is compiled as the model was."""
        ids = keras.tree.map_structure(ops.convert_to_numpy, ids)
        prompts = ids[f"{self.part}token_ids"]
        tables = self.search.tables(_Sampled, prompts, prompts.shape[1])
        # Not a tracked attribute: Keras would save and count a model in it.
        programs = vars(self.lm).setdefault("_searches", {})
        variables = tuple(map(id, self.lm.variables))
        # Other variables: the model was quantized or adapted.
        if programs.get("variables") != variables or len(programs) > MAX_PROGRAMS:
            programs.clear()
            programs["variables"] = variables
        # The settings of single sentences, seeds among them, are inputs of a program.
        search = self.search.with_tables(dict.fromkeys(tables))
        key = search, self.lm.jit_compile
        if key not in programs:
            programs[key] = CompiledFunction(self.find, self.lm, self.lm.jit_compile)
        return Hypotheses(*programs[key].run(ids, tables))

    def complete(self, ids, found, strip_prompt: bool):
        """Returns whole sequences and their masks, `(batch, hypotheses, length)`."""
        prompt, mask = (ids[self.part + x] for x in ("token_ids", "padding_mask"))
        token_ids, is_added = after_prompts(found, prompt, mask)
        is_prompt = ops.cast(mask, "bool")[:, None]
        return token_ids, is_added if strip_prompt else is_added | is_prompt

    def detokenize(self, token_ids, mask):
        """Returns the texts of sequences, without special tokens."""
        ids = {f"{self.part}token_ids": token_ids, f"{self.part}padding_mask": mask}
        return self.lm.preprocessor.generate_postprocess(ids)


def model_inputs(features):
    """Renames a KerasHub preprocessor's outputs to the inputs of this package's models.

    Args:
        features: Dictionary of tensors, the first result of a `CausalLMPreprocessor` or
            a `Seq2SeqLMPreprocessor`.

    Returns:
        For an encoder-decoder `{"source_ids": ..., "target_ids": ...}`, and otherwise
        the ids. The models find the padding by their `pad_id`.

    Example:
        >>> dataset = dataset.map(preprocessor)  # doctest: +SKIP
        >>> dataset = dataset.map(  # doctest: +SKIP
        ...     lambda x, labels, weights: (model_inputs(x), labels, weights)
        ... )
    """
    if "encoder_token_ids" not in features:
        return features["token_ids"]
    return {
        "source_ids": features["encoder_token_ids"],
        "target_ids": features["decoder_token_ids"],
    }
