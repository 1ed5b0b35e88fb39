import itertools
import json
import os
import subprocess
from pathlib import Path

import keras
import numpy as np
import pytest

hub = pytest.importorskip("keras_hub")

from hub_models import (  # noqa: E402
    FAMILIES,
    LETTERS,
    bart,
    gpt2,
    llama,
    log_probabilities,
    moonshine,
    part,
    prompts,
    trained,
    waveforms,
)

import keras_transformer as kt  # noqa: E402
from keras_transformer.decoding import BeamSearch, GreedySearch, Sampling  # noqa: E402
from keras_transformer.interop.keras_hub import SearchedTask, SearchSampler, generate  # noqa: E402

# T5's layers do not say that they support masks.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Layer .* was passed an input with a mask"
)
each_stop = pytest.mark.parametrize("stop", [None, (3,), [3, 5]], ids=str)


@pytest.fixture(scope="module", params=FAMILIES)
def family(request):
    return FAMILIES[request.param]


@pytest.fixture(scope="module", params=["random", "trained"])
def lm(family, request):
    return trained(family) if request.param == "trained" else family()


def generated(lm, sampler, ids, stop, jit_compile=False):
    """What `lm.generate` finds for ids: the ids that count, and their mask."""
    lm.compile(sampler=sampler, jit_compile=jit_compile)
    tensors = keras.tree.map_structure(keras.ops.convert_to_tensor, dict(ids))
    found = lm.make_generate_function()(tensors, stop_token_ids=stop)
    token_ids = keras.ops.convert_to_numpy(found[f"{part(lm)}token_ids"])
    # Moonshine's own mask includes what its greedy search adds after a stop token.
    is_prompt = ids[f"{part(lm)}padding_mask"].astype(bool)
    is_stop = np.isin(token_ids, [] if stop is None else stop) & ~is_prompt
    mask = np.cumsum(is_stop, axis=1) - is_stop == 0
    return token_ids * mask, mask


@pytest.mark.slow
@each_stop
def test_greedy_search_equals_that_of_keras_hub(lm, stop):
    ids = prompts(lm)
    expected = generated(lm, "greedy", ids, stop)
    found = generated(lm, SearchSampler(GreedySearch()), ids, stop)
    np.testing.assert_array_equal(found, expected)


def continuations(vocabulary_size, count, ends):
    """All sequences that end with their first end token, or have `count` tokens."""
    for length in range(1, count + 1):
        for tokens in itertools.product(range(vocabulary_size), repeat=length):
            stops = [token in ends for token in tokens]
            if not any(stops[:-1]) and (stops[-1] or length == count):
                yield tokens


@pytest.mark.slow
def test_a_beam_as_wide_as_the_space_finds_what_enumeration_finds(lm):
    length, penalty = 5, 0.6
    ids = prompts(lm, lengths=(3, 4, 2), length=length)
    size, name = lm.output_shape[-1], part(lm)
    search = BeamSearch(size**2, length_penalty=penalty)
    token_ids, mask = generated(lm, SearchSampler(search), ids, (3, 5))
    for row, prompt_length in enumerate((3, 4, 2)):
        one = {key: value[row : row + 1] for key, value in ids.items()}
        prompt = one[f"{name}token_ids"][0, :prompt_length]
        count = length - prompt_length
        all_tokens = list(continuations(size, count, (3, 5)))
        sequences = np.zeros((len(all_tokens), length), int)
        sequences[:, :prompt_length] = prompt
        for sequence, tokens in zip(sequences, all_tokens, strict=True):
            sequence[prompt_length : prompt_length + len(tokens)] = tokens
        known = log_probabilities(lm, one, sequences)
        scores = [
            sum(known[i, prompt_length - 1 + j, t] for j, t in enumerate(tokens))
            / ((5 + len(tokens)) / 6) ** penalty
            for i, tokens in enumerate(all_tokens)
        ]
        best = all_tokens[int(np.argmax(scores))]
        expected = [*prompt, *best, *[0] * (count - len(best))]
        assert token_ids[row].tolist() == expected


@pytest.mark.parametrize("length", [1, 3])
def test_a_sampler_without_a_mask_continues_from_its_index(length):
    table = keras.random.normal((7, 7), seed=1)  # logits after each token

    def next(prompt, cache, index):
        return keras.ops.take(table, prompt[:, index - 1], axis=0), None, cache

    prompt = np.where(np.arange(11) < length, np.array([[1], [4]]), 0)
    prompt = keras.ops.convert_to_tensor(prompt, "int32")
    expected = hub.samplers.GreedySampler()(next, prompt, index=length)
    found = SearchSampler(GreedySearch())(next, prompt, index=length)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
def test_a_prompt_continues_alike_whatever_else_is_in_the_batch():
    lm = gpt2()
    ids = prompts(lm, lengths=(2, 5, 1))
    sampler = SearchSampler(BeamSearch(3, length_penalty=1.0))
    together, _ = generated(lm, sampler, ids, (3,))
    for row in range(3):
        one = {key: value[row : row + 1] for key, value in ids.items()}
        np.testing.assert_array_equal(
            generated(lm, sampler, one, (3,))[0][0], together[row]
        )


@pytest.mark.quick("random-gpt2")
@pytest.mark.parametrize("family", ["gpt2", "bart", "t5", "moonshine"], indirect=True)
def test_scores_are_those_of_the_model_without_a_cache(lm):
    if part(lm):  # KerasHub's encoder-decoders read and write text with it
        pytest.importorskip("tensorflow")
    search = BeamSearch(3, length_penalty=0.0, num_hypotheses=3)
    texts = ["a b c", "", "d"]
    inputs = texts
    if isinstance(lm, hub.models.MoonshineAudioToText):
        inputs = {"audio": waveforms(3)[0], "text": texts}
    elif part(lm):
        inputs = {"encoder_text": ["a a", "b", "c"], "decoder_text": texts}
    found, scores = generate(lm, inputs, search, max_length=9)
    task = SearchedTask(lm, search, max_length=9)
    ids = {key: np.asarray(value) for key, value in task.preprocess(inputs).items()}
    token_ids, is_added = map(np.asarray, task.complete(ids, task.run(ids).ids, True))
    for row in range(3):
        one = {key: value[row : row + 1] for key, value in ids.items()}
        known = log_probabilities(lm, one, token_ids[row])[:, :-1]
        known = np.take_along_axis(known, token_ids[row, :, 1:, None], -1)[..., 0]
        totals = np.sum(known, axis=-1, where=is_added[row, :, 1:])
        np.testing.assert_allclose(scores[row], totals, rtol=1e-4)
    assert [len(each) for each in found] == [3, 3, 3]
    assert (np.diff(scores) <= 0).all()


@pytest.mark.slow
def test_texts_and_scores_of_one_text_are_those_of_its_batch():
    lm = gpt2()
    search = BeamSearch(2, num_hypotheses=2)
    together, scores = generate(lm, ["a b", "c"], search)
    alone, score = generate(lm, "c", search)
    assert alone == [together[1]]
    np.testing.assert_allclose(score[0], scores[1], rtol=1e-5)
    stripped, _ = generate(lm, ["a b", "c"], search, strip_prompt=True)
    assert [
        ["a b" + x for x in stripped[0]],
        ["c" + x for x in stripped[1]],
    ] == together


@pytest.mark.slow
@pytest.mark.parametrize("make", [gpt2, bart])
def test_processors_see_what_was_added(make):
    lm = make()
    banned = lm.preprocessor.tokenizer.token_to_id("a")
    processors = [
        kt.decoding.BannedIds([banned]),
        kt.decoding.MinimumLength(4),
        kt.decoding.NoRepeatNgram(1),
        kt.decoding.RepetitionPenalty(1.5),
    ]
    ids = prompts(lm, lengths=(2, 5, 1), length=12)
    for search in (BeamSearch(3, processors=processors), GreedySearch(processors)):
        token_ids, mask = generated(lm, SearchSampler(search), ids, (2,))
        for row, prompt_length in enumerate((2, 5, 1)):
            added = token_ids[row, prompt_length : mask[row].sum()].tolist()
            assert len(added) >= 4
            assert banned not in added
            assert len(set(added)) == len(added)


@pytest.mark.slow
def test_a_seed_repeats_a_sample_and_no_seed_draws_anew():
    lm = gpt2()
    ids = prompts(lm, length=12)
    seeded = SearchSampler(Sampling(seed=7))
    first, again = (generated(lm, seeded, ids, None)[0] for _ in range(2))
    np.testing.assert_array_equal(first, again)
    lm.compile(sampler=SearchSampler(Sampling()))
    lm.preprocessor = None
    drawn = [
        np.asarray(lm.generate(dict(ids), stop_token_ids=None)["token_ids"])
        for _ in range(3)
    ]
    assert len({each.tobytes() for each in drawn}) == 3


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
@pytest.mark.slow
@pytest.mark.parametrize(
    "change", ["jit_compile", "mixed_bfloat16", "int8", "lora", "steps_per_execution"]
)
def test_a_changed_model_is_searched_as_keras_hub_searches_it(change):
    lm = gpt2(dtype="mixed_bfloat16" if change == "mixed_bfloat16" else None)
    search, ids = GreedySearch(), prompts(lm, length=10)
    _, before = generate(lm, ["a b"], search)
    if change == "int8":
        lm.quantize("int8")
    if change == "lora":
        lm.backbone.enable_lora(2)
        for weight in lm.trainable_variables:
            weight.assign_add(keras.random.normal(weight.shape, seed=3))
    if change == "steps_per_execution":
        lm.compile(steps_per_execution=3)
    jit_compile = change == "jit_compile"
    expected = generated(lm, "greedy", ids, (3,), jit_compile)
    found = generated(lm, SearchSampler(search), ids, (3,), jit_compile)
    np.testing.assert_array_equal(found, expected)
    lm.compile(sampler="greedy")
    texts, scores = generate(lm, ["a b"], search)
    assert texts == [[lm.generate("a b")]]
    assert change != "lora" or abs(scores - before) > 1e-3


def test_another_seed_needs_no_other_program():
    lm = gpt2()
    texts = {generate(lm, ["a"], Sampling(seed=seed))[0][0][0] for seed in range(5)}
    assert len(texts) > 1
    assert len([key for key in vars(lm)["_searches"] if key != "variables"]) == 1


def test_a_sampler_is_saved_and_loaded():
    search = BeamSearch(3, kt.decoding.PowerLengthPenalty(0.5))
    loaded = SearchSampler.from_config(SearchSampler(search).get_config())
    assert loaded.search == search


def test_what_cannot_be_searched_is_said_in_one_line():
    search = GreedySearch()
    with pytest.raises(
        ValueError, match="`lm` must be a KerasHub model that generates"
    ):
        generate(llama(), ["a"], search)
    with pytest.raises(
        ValueError, match="`lm` must be a KerasHub model that generates"
    ):
        generate(keras.Sequential(), ["a"], search)
    images = hub.models.ViTBackbone((8, 8, 3), 4, 1, 2, 8, 8)
    images = hub.models.ViTImageClassifier(images, num_classes=2)
    with pytest.raises(
        ValueError, match="`lm` must be a KerasHub model that generates"
    ):
        generate(images, ["a"], search)
    for inputs in ("a", ["audio"], {"text": ["a"]}):
        with pytest.raises(ValueError, match="`inputs` must be .* with the `audio`"):
            generate(moonshine(), inputs, search)
    with pytest.raises(ValueError, match="`max_length` must be at most 16, .*=17"):
        generate(gpt2(), ["a"], search, max_length=17)
    with pytest.raises(ValueError, match="vocabulary of 10 tokens. Received: 10"):
        generate(gpt2(), ["a"], search, stop_token_ids=[10])
    with pytest.raises(ValueError, match="vocabulary of 10 tokens. Received: 11"):
        generate(gpt2(), ["a"], GreedySearch([kt.decoding.BannedIds([11])]))
    with pytest.raises(ValueError, match="`search` must be"):
        SearchSampler("greedy")


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """Folder with checkpoints of transformers, and the beams that it finds."""
    python = os.environ.get("KERAS_TRANSFORMER_ORIGINALS")
    if not python:
        pytest.skip("transformers is not here: run `make test-interop`.")
    folder = tmp_path_factory.mktemp("checkpoints")
    (folder / "letters.json").write_text(json.dumps(LETTERS))
    program = Path(__file__).with_name("run_transformers_beams.py")
    subprocess.run([python, program, folder, folder / "letters.json"], check=True)
    return folder


@pytest.mark.parametrize("name", ["gpt2", "bart"])
def test_a_beam_equals_that_of_transformers(name, checkpoints):
    family = {"gpt2": hub.models.GPT2CausalLM, "bart": hub.models.BartSeq2SeqLM}[name]
    lm = family.from_preset(str(checkpoints / name))
    answers = json.loads((checkpoints / name / "answers.json").read_text())
    prompt, source = np.array(answers["prompt"]), np.array(answers["source"])
    length = 10
    ids = np.zeros((3, length), int)
    ids[:, :2] = prompt
    mask = np.arange(length) < np.full((3, 1), 2)
    inputs = {f"{part(lm)}token_ids": ids, f"{part(lm)}padding_mask": mask}
    if part(lm):
        inputs |= {"encoder_token_ids": source, "encoder_padding_mask": source >= 0}
    penalty = kt.decoding.PowerLengthPenalty(1.0)
    search = BeamSearch(4, penalty, num_hypotheses=4)
    task = SearchedTask(lm, search, max_length=length)
    found = task.run(inputs)
    np.testing.assert_allclose(
        found.scores, np.reshape(answers["scores"], (3, 4)), rtol=1e-4
    )
    token_ids, is_token = task.complete(inputs, found.ids, strip_prompt=False)
    end = lm.preprocessor.tokenizer.end_token_id
    rows = zip(np.asarray(token_ids), np.asarray(is_token), strict=True)
    ours = [[x[y].tolist() for x, y in zip(*row, strict=True)] for row in rows]
    for row, expected in zip(itertools.chain(*ours), answers["ids"], strict=True):
        assert row == expected[: len(row)]
        assert len(row) == length or row[-1] == end
