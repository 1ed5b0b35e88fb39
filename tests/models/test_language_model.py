import functools

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops
from phrase_ids import END, PAD, START, phrases, to_ids, to_text, vocabulary_size

from keras_transformer.decoding import BeamSearch, GreedySearch, Sampling
from keras_transformer.layers import LearnedPositionalEncoding
from keras_transformer.models import LanguageModel
from keras_transformer.training import Perplexity, TokenCrossentropy

VOCABULARY, MAX_LENGTH = 17, 7
SETTINGS = {
    "num_layers": 2,
    "hidden_dim": 8,
    "num_heads": 2,
    "intermediate_dim": 11,
    "dropout": 0.1,
}
BEAM = BeamSearch(3, length_penalty=0.6, num_hypotheses=3)
SAMPLING = Sampling(temperature=0.8, top_k=11, seed=5, num_hypotheses=3)
SEARCHES = {"greedy": GreedySearch(), "sampling": SAMPLING, "beam": BEAM}
PROMPTS = np.array(
    [
        [2, 7, 11, 13, 5],
        [2, 0, 0, 0, 0],
        [2, 9, 16, 0, 0],
        [14, 6, 6, 4, 0],
    ],
    "int32",
)
# With padding before the last token, which is hidden but takes a position.
PADDED_INSIDE = np.array(
    [[2, 0, 5, 0, 0], [0, 0, 2, 5, 0], [2, 0, 0, 0, 9], [0, 0, 0, 2, 0]], "int32"
)
VARIANTS = {
    "pre-norm": {},
    "post-norm": {"normalize_first": False, "activation": "relu"},
    "other special ids": {"pad_id": 7, "start_id": 1, "end_id": 5},
    "mixed_float16": {"dtype": "mixed_float16"},
    "mixed_bfloat16": {"dtype": "mixed_bfloat16"},
}
LONGEST = PROMPTS.shape[1] + MAX_LENGTH
SCHEMES = {
    "none": None,
    "sinusoidal": "sinusoidal",
    "rotary": "rotary",
    "linear bias": "linear_bias",
    "learned": LearnedPositionalEncoding(LONGEST),
    "concatenated": LearnedPositionalEncoding(LONGEST, "concatenate", encoding_dim=3),
}
# What rounding may change, as a share of the largest logit.
TOLERANCES = {"mixed_float16": 0.01, "mixed_bfloat16": 0.1}


@functools.cache
def variant(name):
    return filled(**VARIANTS[name])


@functools.cache
def with_positions(name, dtype="float32"):
    return filled(positions=SCHEMES[name], dtype=dtype)


def filled(**settings):
    """A small model in which every weight matters, and some texts end."""
    model = LanguageModel(VOCABULARY, **{**SETTINGS, **settings})
    draw = np.random.default_rng(3)
    for weight in model.weights:
        mean = float(weight.path.endswith("gamma"))
        scale = 0.8 if weight.path.endswith("embeddings") else 0.4
        weight.assign(draw.normal(mean, scale, weight.shape))
    return model


def logits_of(model, ids, **kwargs):
    return ops.convert_to_numpy(model(ids, **kwargs))


def prompts_for(model):
    """The prompts, whose padding is 0, as `model` would be given them."""
    swapped = np.where(model.pad_id == PROMPTS, 12, PROMPTS)
    return np.where(PROMPTS == 0, model.pad_id, swapped)


def log_probabilities(model, prompts, ids):
    """What the model without a cache gives every continuation, and their lengths.

    Args:
        prompts: `(batch, prompt_length)`, padded.
        ids: `(batch, hypotheses, length)`, padded.
    """
    texts, places = [], []
    for prompt, hypotheses in zip(prompts, ids, strict=True):
        prompt = prompt[: 1 + np.flatnonzero(prompt != model.pad_id)[-1]]
        for hypothesis in hypotheses:
            text = np.full(PROMPTS.shape[1] + MAX_LENGTH, model.pad_id)
            added = hypothesis[hypothesis != model.pad_id]
            places.append(range(len(prompt) - 1, len(prompt) + len(added) - 1))
            text[: len(prompt) + len(added)] = [*prompt, *added]
            texts.append(text)
    texts = np.stack(texts)
    logits = logits_of(model, texts).astype("float64")
    logits = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    found = [
        sum(row[place, text[place + 1]] for place in where)
        for row, text, where in zip(logits, texts, places, strict=True)
    ]
    return (
        np.reshape(x, ids.shape[:2]) for x in (found, [len(where) for where in places])
    )


@pytest.mark.quick("other special ids")
@pytest.mark.parametrize("name", VARIANTS)
@settings(max_examples=5)
@given(padding=st.integers(0, 5), position=st.integers(1, 4), seed=st.integers(0, 99))
def test_neither_padding_nor_the_future_changes_a_logit(name, padding, position, seed):
    model = variant(name)
    ids = prompts_for(model)
    before = logits_of(model, ids)
    assert (before.shape, before.dtype) == ((4, 5, VOCABULARY), "float32")
    future = np.random.default_rng(seed).integers(0, VOCABULARY, (4, 5 - position))
    changed = np.concatenate([ids[:, :position], future], axis=1)
    changed = np.pad(changed, ((0, 0), (0, padding)), constant_values=model.pad_id)
    after = logits_of(model, changed)[:, :position]
    real = ids[:, :position] != model.pad_id
    # Another shape may be summed in another order.
    tolerance = TOLERANCES.get(name, 1e-5) * np.abs(before).max()
    np.testing.assert_allclose(after[real], before[:, :position][real], 0, tolerance)


def test_the_past_does_matter():
    model = variant("pre-norm")
    changed = PROMPTS.copy()
    changed[0, 1] = 6
    changes = np.abs(logits_of(model, changed) - logits_of(model, PROMPTS))
    changes = changes.max(axis=-1)
    assert np.all(changes[0, 1:] > 0.01)
    assert np.all(changes[0, 0] == 0)
    assert np.all(changes[1:] == 0)


@pytest.mark.quick("other special ids-beam")
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("pre-norm", kind) for kind in SEARCHES),
        *((name, "beam") for name in VARIANTS if name != "pre-norm"),
    ],
)
def test_scores_are_those_of_the_model_without_a_cache(name, kind):
    model, tolerance = variant(name), 0.05 if "mixed" in name else 1e-4
    prompts = prompts_for(model)
    ids, scores = model.generate(prompts, SEARCHES[kind], MAX_LENGTH)
    assert ids.shape == (4, 1 if kind == "greedy" else 3, MAX_LENGTH)
    assert (ids.dtype, scores.dtype) == ("int32", "float32")
    expected, lengths = log_probabilities(model, prompts, ids)
    if kind == "beam":
        expected = expected / ((5 + lengths) / 6) ** 0.6
    np.testing.assert_allclose(scores, expected, tolerance, tolerance)
    # What ends before the last position has ended with the end token.
    last = np.take_along_axis(ids, lengths[..., None] - 1, axis=2)[..., 0]
    assert np.all((last == model.end_id) | (lengths == MAX_LENGTH))
    if kind == "sampling":
        assert lengths.min() < MAX_LENGTH, "no text ends: this shows less than it could"


@pytest.mark.quick("linear bias-float32", "sinusoidal-float32")
@pytest.mark.parametrize("dtype", ["float32", "mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("name", SCHEMES)
def test_scores_are_those_without_a_cache_in_every_scheme_of_positions(name, dtype):
    model, tolerance = with_positions(name, dtype), 0.05 if "mixed" in dtype else 1e-4
    search = BeamSearch(3, length_penalty=0.0, num_hypotheses=3)
    prompts = np.concatenate([PROMPTS, PADDED_INSIDE])
    ids, scores = search(model, ops.convert_to_tensor(prompts), MAX_LENGTH)
    ids = ops.convert_to_numpy(ids)
    expected, _ = log_probabilities(model, prompts, ids)
    np.testing.assert_allclose(scores, expected, tolerance, tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["linear bias", "concatenated"])
def test_what_is_compiled_finds_what_is_not(name):
    model = with_positions(name)
    ids, scores = BEAM(model, ops.convert_to_tensor(PROMPTS), MAX_LENGTH)
    compiled = model.generate(PROMPTS, BEAM, MAX_LENGTH)
    np.testing.assert_array_equal(compiled.ids, ids)
    np.testing.assert_allclose(compiled.scores, scores, 1e-4, 1e-5)


@pytest.mark.quick("learned")
@pytest.mark.parametrize("name", ["learned", "concatenated"])
def test_learned_positions_end_where_they_say(name):
    model = with_positions(name)
    message = f"Positions end at `max_length`={LONGEST}: shorten the inputs or build"
    with pytest.raises(ValueError, match=message):
        model.generate(PROMPTS, max_length=MAX_LENGTH + 2)
    with pytest.raises(ValueError, match=message):
        model(np.full((1, LONGEST + 1), 5))


@pytest.mark.quick("concatenated-8")
@pytest.mark.parametrize("length", [5, 8, 12])
@pytest.mark.parametrize("name", ["learned", "concatenated"])
def test_a_text_may_end_at_the_last_position(name, length):
    model, prompts = with_positions(name), np.full((2, length), 5)
    most = LONGEST - length + 1  # the first step takes the last token of the prompt
    ids, _ = BEAM(model, ops.convert_to_tensor(prompts), most)
    np.testing.assert_array_equal(model.generate(prompts, BEAM, most).ids, ids)


def test_greedy_takes_what_the_model_without_a_cache_finds_likeliest():
    model = variant("pre-norm")
    prompt = PROMPTS[0]
    ids = model.generate(prompt[None], max_length=MAX_LENGTH).ids[0, 0]
    text = np.concatenate([prompt, ids[ids != 0]])
    logits = logits_of(model, text[None, :-1])[0, len(prompt) - 1 :]
    logits[:, model.pad_id] = -np.inf
    np.testing.assert_array_equal(logits.argmax(axis=-1), text[len(prompt) :])


@pytest.mark.slow  # the model without a cache, too, reads each prompt alone
@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_prompts_of_mixed_lengths_give_what_each_gives_alone(search):
    model = variant("post-norm")
    together = model.generate(PROMPTS, search, MAX_LENGTH)
    for i, prompt in enumerate(PROMPTS[1:], start=1):
        alone = model.generate(prompt[prompt != 0][None], search, MAX_LENGTH)
        np.testing.assert_array_equal(alone.ids[0], together.ids[i])
        np.testing.assert_allclose(alone.scores[0], together.scores[i], 1e-4, 1e-5)


def test_what_a_text_begins_with_is_continued_alike_wherever_it_is_cut():
    model = variant("pre-norm")
    whole = model.generate(PROMPTS[:1], max_length=MAX_LENGTH).ids[0, 0]
    longer = np.concatenate([PROMPTS[0], whole[:2]])[None]
    rest = model.generate(longer, max_length=MAX_LENGTH - 2).ids[0, 0]
    np.testing.assert_array_equal(rest, whole[2:])


def test_a_row_of_padding_stands_for_the_start_symbol():
    prompts = np.array([[0, 0, 0], [2, 0, 0]])
    ids, scores = variant("pre-norm").generate(prompts, BEAM, MAX_LENGTH)
    np.testing.assert_array_equal(ids[0], ids[1])
    np.testing.assert_allclose(scores[0], scores[1], 1e-5)


def test_attention_scores_say_what_was_looked_at():
    model = variant("pre-norm")
    scores = model.attention_scores(PROMPTS)
    assert set(scores) == {"decoder"}
    scores = ops.convert_to_numpy(scores["decoder"])
    assert scores.shape == (2, 4, 2, 5, 5)
    real = PROMPTS != 0
    may_attend = real[:, None, :] & np.tri(5, dtype=bool) & real[..., None]
    rows = np.transpose(scores, (1, 3, 4, 0, 2))
    assert np.all((rows > 0) == may_attend[..., None, None])
    np.testing.assert_allclose(rows[real].sum(axis=1), 1, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["post-norm", "other special ids", "mixed_bfloat16"])
def test_a_reloaded_model_gives_the_live_logits_and_texts(name, tmp_path):
    model = variant(name)
    model.save(tmp_path / "model.keras")
    reloaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(reloaded) is LanguageModel
    assert reloaded.get_config() == model.get_config()
    np.testing.assert_array_equal(
        logits_of(reloaded, PROMPTS), logits_of(model, PROMPTS)
    )
    before, after = (one.generate(PROMPTS, BEAM, 5) for one in (model, reloaded))
    np.testing.assert_array_equal(after.ids, before.ids)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"vocabulary_size": 0}, "`vocabulary_size` must be a positive integer"),
        ({"hidden_dim": 0}, "`hidden_dim` must be a positive .* hidden_dim=0"),
        ({"num_layers": 0}, "`num_layers` must be a positive .* num_layers=0"),
        ({"num_heads": 3}, "`num_heads` must divide .* num_heads=3, hidden_dim=8"),
        ({"dropout": 1.5}, "`dropout` must be .* 0 to 1. Received: dropout=1.5"),
        ({"pad_id": 17}, "`pad_id` must lie in the vocabulary of 17 .*=17"),
        ({"end_id": 0}, "`end_id` must differ from `pad_id`"),
        ({"positions": "rotari"}, "`positions` must be one of .*=.rotari."),
        (
            {"positions": SCHEMES["concatenated"], "hidden_dim": 2},
            "`hidden_dim` must be greater .* hidden_dim=2, encoding_dim=3",
        ),
    ],
    ids=lambda x: "+".join(x) if isinstance(x, dict) else "",
)
def test_bad_settings_are_refused_in_one_line(arguments, message):
    with pytest.raises(ValueError, match=message) as caught:
        LanguageModel(**{"vocabulary_size": VOCABULARY, **SETTINGS, **arguments})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        (PROMPTS.astype("float32"), "`prompt_ids` must be integers.* dtype float32"),
        (PROMPTS[0], r"`prompt_ids` must have the shape \(batch, length\)"),
        (PROMPTS[:, :0], "`prompt_ids` must have at least one position"),
        ([[2, 5]], "`prompt_ids` must be an array or a tensor"),
    ],
    ids=["floats", "one text", "no position", "lists"],
)
def test_what_are_no_prompts_is_refused_in_one_line(prompts, message):
    with pytest.raises(ValueError, match=message) as caught:
        variant("pre-norm").generate(prompts)
    assert "\n" not in str(caught.value)


def test_ids_that_are_not_integers_are_refused():
    with pytest.raises(ValueError, match="`ids` must be integers.* dtype float32"):
        variant("pre-norm")(PROMPTS.astype("float32"))


LENGTH = 31


def examples(lines):
    """Texts that begin with the start token, and the same one position on."""
    ids = to_ids(lines, LENGTH, split=list)
    lengths = np.minimum([len(line) for line in lines], LENGTH - 1)
    ids[np.arange(len(ids)), lengths] = END
    return np.insert(ids, 0, START, axis=1)[:, :-1] * (ids != PAD), ids


@pytest.fixture(scope="module")
def trained():
    """A model of German dates, amounts and names, character by character."""
    keras.utils.set_random_seed(7)
    model = LanguageModel(
        vocabulary_size(split=list),
        num_layers=1,
        hidden_dim=32,
        num_heads=4,
        intermediate_dim=64,
        dropout=0.0,
    )
    model.compile(
        keras.optimizers.Adam(1e-2),
        loss=TokenCrossentropy(),
        metrics=[Perplexity()],
    )
    ids, labels = examples(phrases("de")[0])
    model.fit(ids, labels, batch_size=32, epochs=8, shuffle=False, verbose=0)
    return model


@pytest.mark.slow
def test_it_learns_to_tell_what_comes_next(trained):
    """Held-out phrases: a fifth of the perplexity of single characters at most."""
    ids, labels = examples(phrases("de")[1])
    counts = np.bincount(labels[labels != PAD]).astype("float64")
    shares = counts[counts > 0] / counts.sum()
    alone = np.exp(-np.sum(shares * np.log(shares)))
    _, perplexity = trained.evaluate(ids, labels, verbose=0)
    assert perplexity < alone / 5, (perplexity, alone)


@pytest.mark.slow
def test_it_completes_most_names_of_months(trained):
    """Not all: each is in few lines, and rounding decides which are learnt."""
    months = [
        *("Januar", "Februar", "März", "April", "Juni", "Juli"),
        *("August", "September", "Oktober", "November", "Dezember"),
    ]
    prompts = examples([f"17. {month[:3]}" for month in months])[0]
    prompts[prompts == END] = PAD
    ids = trained.generate(prompts, BeamSearch(2), max_length=6).ids[:, 0]
    found = [
        f"{month[:3]}{to_text(rest)}".startswith(month)
        for month, rest in zip(months, ids, strict=True)
    ]
    assert sum(found) > len(months) / 2, found
