import itertools
import json
import random
import resource
import shutil
import time

import keras
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving.tiny_translator import SOURCES, TARGETS, make_translator

import keras_transformer as kt
from keras_transformer.kernels import target

pytestmark = pytest.mark.usefixtures("two_padded_lengths")
GREEDY = kt.decoding.GreedySearch()
# One for several tests, which compile it once.
N_BEST = kt.decoding.BeamSearch(
    5, kt.decoding.PowerLengthPenalty(0.3), num_hypotheses=3
)
# Some that were learnt and some that were not, of both padded lengths.
TEXTS = ["a dog", "two", *SOURCES[::5], "five bike bike man a", "dog " * 4, "tree"]


@pytest.fixture(scope="module")
def translator(learnt_translator):
    learnt = kt.Translator.load(learnt_translator)
    learnt.model.compile("adam", kt.training.TokenCrossentropy())
    return learnt


@pytest.fixture(scope="module")
def saved(translator, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "translator"
    translator.save(folder)
    return folder


@pytest.fixture(scope="module")
def loaded(saved):
    return kt.Translator.load(saved)


@pytest.fixture
def copied(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "copy")


@pytest.fixture
def full_disk():
    """Lets no file grow beyond 4 KiB: writing fails as on a disk that is full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_translator_says_what_it_is(translator):
    half = repr(translator.in_dtype("mixed_float16"))
    assert repr(translator) == half.replace("mixed_float16", "float32")
    for part in ("Transformer of ", "41 to 43 subwords", "=20, search=BeamSearch("):
        assert part in half


def test_what_was_learnt_is_translated(translator):
    assert translator.translate(SOURCES) == TARGETS


@pytest.mark.quick("32")
@pytest.mark.parametrize("batch_size", [1, 3, 32])
def test_a_text_has_one_translation_whatever_it_is_together_with(
    translator, batch_size
):
    expected = dict(zip(TEXTS, translator.translate(TEXTS, GREEDY), strict=True))
    texts = random.sample(TEXTS, len(TEXTS))
    translations = translator.translate(texts, GREEDY, batch_size)
    assert translations == [expected[text] for text in texts]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_a_text_has_one_translation_whatever_was_translated_before(
    translator, dtype, monkeypatch
):
    # By itself, XLA compiles calls of many texts, and rounds differently.
    monkeypatch.setattr("keras_transformer.decoding.runner.MIN_HYPOTHESES_FOR_XLA", 64)
    one, search = translator.in_dtype(dtype), kt.decoding.BeamSearch(3)
    alone = [best for text in TEXTS for (best,) in one.translate_n_best([text], search)]
    beside = one.translate_n_best(TEXTS * 7, search)[-len(TEXTS) :]
    after = [best for text in TEXTS for (best,) in one.translate_n_best([text], search)]
    assert alone == after
    for best, (other,) in zip(alone, beside, strict=True):
        assert best.text == other.text
        tolerance = 1e-5 if dtype == "float32" else 0
        assert best.score == pytest.approx(other.score, tolerance, tolerance)


@pytest.mark.slow
@settings(max_examples=7)
@given(
    st.lists(st.sampled_from(TEXTS) | st.text(max_size=9), max_size=7),
    st.integers(1, 5),
)
def test_texts_are_translated_in_their_order_as_each_is_alone(
    translator, texts, batch_size
):
    search = kt.decoding.Sampling(top_k=5, seed=3)
    alone = [translator.translate([text], search, max_length=7)[0] for text in texts]
    assert translator.translate(texts, search, batch_size, max_length=7) == alone


@pytest.mark.slow
def test_thousands_of_texts_come_back_in_their_order(translator):
    expected = dict(zip(TEXTS, translator.translate(TEXTS, GREEDY), strict=True))
    texts = random.choices(TEXTS, k=3001)
    translations = translator.translate(texts, GREEDY, batch_size=101)
    assert translations == [expected[text] for text in texts]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
def test_a_half_precise_model_translates_what_was_learnt(translator, dtype):
    assert translator.in_dtype(dtype).translate(SOURCES) == TARGETS


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
def test_half_precision_gives_way_where_the_processor_has_none(
    translator, dtype, tmp_path, monkeypatch
):
    half = translator.in_dtype(dtype)
    half.save(tmp_path / "one")
    kt.translator.ensemble([half]).save(tmp_path / "ensemble")
    monkeypatch.setattr(target, "has_instructions_for", lambda x: x == "float32")
    for name in ("one", "ensemble"):
        chosen = kt.Translator.load(tmp_path / name, dtype=dtype)
        assert chosen.model.dtype_policy.name == dtype
        with pytest.warns(UserWarning, match=f"in {dtype}, decodes in float32: this"):
            loaded = kt.Translator.load(tmp_path / name)
        assert loaded.translate(TEXTS, GREEDY) == translator.translate(TEXTS, GREEDY)
        assert loaded.model.compute_dtype == "float32"
    preset = kt.Translator.from_preset(tmp_path / "one", dtype=dtype)
    assert preset.model.dtype_policy.name == dtype


def test_nothing_is_translated_to_nothing(translator):
    texts = ["", SOURCES[0], "  \t\n", "\u3000\u00a0", "\u200b"]
    assert translator.translate(texts) == ["", TARGETS[0], "", "", ""]
    assert translator.translate([""]) == [""]
    assert translator.translate([]) == []


def test_nothing_is_nothing_to_a_tokenizer_that_keeps_every_character(translator):
    tokenizer = kt.text.SubwordTokenizer.train(
        SOURCES, vocabulary_size=41, normalization="identity"
    )
    keeping = kt.Translator(translator.model, tokenizer, translator.target_tokenizer)
    assert tokenizer(["\u3000"]).row_lengths()[0] > 0
    assert keeping.translate(["\u3000", " "], GREEDY) == ["", ""]


def test_the_n_best_begin_with_the_translation(translator):
    found = translator.translate_n_best(TEXTS, N_BEST)
    assert [len(translations) for translations in found] == [3] * len(TEXTS)
    assert [best.text for best, *_ in found] == translator.translate(TEXTS, N_BEST)
    scores = np.array([[one.score for one in translations] for translations in found])
    assert (np.diff(scores) <= 0).all()
    assert (scores[:, 0] < 0).all()
    assert translator.translate_n_best([" "], N_BEST) == [[("", 0.0, ())] * 3]


def test_white_space_and_marks_of_line_breaks_change_no_translation(translator):
    def ids_of(texts):
        return translator.encode(texts)[0].numpy()

    blanks = [x for x in map(chr, range(0x3001)) if x.isspace()]
    assert not ids_of(blanks).any()
    variants = [form for x in blanks for form in (f"a dog{x}", f"{x}a dog", f"a{x}dog")]
    variants += [f"a do{mark}g" for mark in "\u00ad\u2060\ufeff"]
    assert (ids_of(variants) == ids_of(["a dog"])).all()


class RecordingTransformer(kt.models.Transformer):
    def generate(self, source_ids, *settings):
        self.__dict__.setdefault("batches", []).append(source_ids)
        ids = np.full((len(source_ids), 1, 1), self.end_id, "int32")
        return kt.decoding.Hypotheses(ids, np.zeros((len(source_ids), 1), "float32"))


def test_every_text_is_searched_beside_those_of_about_its_length(translator):
    model = RecordingTransformer.from_config(translator.model.get_config())
    tokenizers = translator.source_tokenizer, translator.target_tokenizer
    recording = kt.Translator(model, *tokenizers, translator.max_source_length)
    texts = random.sample(TEXTS, len(TEXTS))
    recording.translate(["", *texts], GREEDY, batch_size=7)
    lengths = np.sort(translator.source_tokenizer(texts).row_lengths() + 1)[::-1]
    expected = lengths[lengths <= 16], lengths[lengths > 16]
    assert [batch.shape[1] for batch in model.batches] == [16, 20]
    for batch, some in zip(model.batches, expected, strict=True):
        assert np.array_equal(np.count_nonzero(batch, axis=1), some)


def test_max_length_limits_a_translation(translator):
    ids = translator.target_tokenizer(translator.translate(SOURCES, GREEDY))
    shortened = translator.translate(SOURCES, GREEDY, max_length=2)
    expected = translator.target_tokenizer.detokenize(ids[:, :2]).numpy()
    assert shortened == [text.decode() for text in expected]


@pytest.mark.slow  # as decoding/test_end_ids.py shows
def test_a_translation_ends_before_any_end_symbol(translator):
    tokenizer = translator.target_tokenizer
    end_id = tokenizer(["Mann"]).to_list()[0][0]
    search = kt.decoding.GreedySearch(end_ids=[tokenizer.end_id, end_id])
    rows = tokenizer(TARGETS).to_list()
    rows = [ids[: (*ids, end_id).index(end_id)] for ids in rows]
    expected = [text.decode() for text in tokenizer.detokenize(rows).numpy()]
    found = translator.translate(SOURCES, search)
    assert found == expected != TARGETS


def test_what_is_too_long_is_cut_with_a_warning(translator):
    words = ["a", "dog", "man"] * 9
    tokenizer = translator.source_tokenizer
    kept = tokenizer([" ".join(words)])[:, : translator.max_source_length - 1]
    read = tokenizer.detokenize(kept).numpy()[0].decode()
    assert tokenizer([read]).numpy().tolist() == kept.numpy().tolist()
    texts = ["a", " ".join(words), "two"]
    with pytest.warns(UserWarning, match=r"1 of 3 texts are longer .*=20 .*texts\[1\]"):
        translations = translator.translate(texts, GREEDY)
    assert translations == translator.translate(["a", read, "two"], GREEDY)
    found = translator.translate_n_best(texts, GREEDY)
    assert ["cut source" in best.flags for (best,) in found] == [False, True, False]


@settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.text(st.characters(codec=None)), min_size=1, max_size=7))
@pytest.mark.filterwarnings("ignore:.*were cut:UserWarning")  # long texts are drawn too
def test_any_text_has_an_answer(translator, texts):
    translations = translator.translate(texts, GREEDY)
    assert [type(text) for text in translations] == [str] * len(texts)


@pytest.mark.parametrize("text", ["\0" * 2**20, "\ufffd" * 2**20, "x" * 2**20])
def test_a_megabyte_takes_no_longer_than_a_sentence(translator, text):
    start = time.process_time()
    with pytest.warns(UserWarning, match="were cut"):
        assert len(translator.translate([text], GREEDY)) == 1
    # SentencePiece alone would take half a minute for a run of unknown characters.
    assert time.process_time() - start < 10


def test_padded_lengths_end_at_the_longest_source(translator):
    assert translator.batching_policy().source_lengths == [16, 20]
    assert translator.batching_policy().target_length(16) == 32


def test_translations_are_no_longer_than_the_positions_of_the_model():
    limited = make_translator(positions=kt.layers.LearnedPositionalEncoding(24))
    both = kt.translator.ensemble([limited, make_translator()])
    for one in (limited, both):
        policy = one.batching_policy()
        assert [policy.target_length(x) for x in (10, 16, 20)] == [20, 24, 24]
    assert len(limited.translate(SOURCES[:1], GREEDY)) == 1
    assert len(limited.score(SOURCES[:1], ["Hund " * 30])) == 1
    assert make_translator().batching_policy().target_length(20) == 40


@pytest.mark.slow
def test_texts_longer_than_the_positions_of_the_model_are_cut():
    limited = make_translator(positions=kt.layers.LearnedPositionalEncoding(7))
    long, short = "dog man " * 9, "a dog"
    with pytest.warns(UserWarning, match="max_source_length=7 subwords and were cut"):
        assert len(limited.translate([short, long], GREEDY)) == 2
    for texts in ([short], [long, short]):
        scores = limited.score(texts, texts[::-1])
        assert all(np.isfinite(x.log_probability) for x in scores)


def test_a_global_seed_takes_no_tokenizer_away(translator, loaded):
    keras.utils.set_random_seed(7)
    expected = translator.translate(TEXTS, N_BEST)
    assert loaded.translate(TEXTS, N_BEST) == expected


def test_a_translator_reloads_as_it_was(translator, loaded):
    assert loaded.max_source_length == translator.max_source_length
    expected = translator.translate_n_best(TEXTS, N_BEST)
    for translations, others in zip(
        loaded.translate_n_best(TEXTS, N_BEST), expected, strict=True
    ):
        assert [one.text for one in translations] == [one.text for one in others]
        scores = [one.score for one in translations]
        assert scores == pytest.approx([one.score for one in others], abs=1e-5)


def test_a_translator_carries_its_search(translator, tmp_path):
    # With another length, batches have other shapes, and sums may round differently.
    parts = translator.source_tokenizer, translator.target_tokenizer
    length = translator.max_source_length
    mine = kt.Translator(translator.model, *parts, length, N_BEST)
    expected = translator.translate_n_best(TEXTS, N_BEST)
    assert mine.translate_n_best(TEXTS) == expected
    assert mine.translate(TEXTS, GREEDY) == translator.translate(TEXTS, GREEDY)
    mine.save(tmp_path / "translator")
    loaded = kt.Translator.load(tmp_path / "translator")
    assert loaded.search == N_BEST


def test_an_export_is_of_a_known_format_with_its_own_options(translator, tmp_path):
    for options, message in [
        ({"format": "onnx"}, "one of 'saved_model', .* Received: format='onnx'"),
        ({"quantization": "int8"}, "`quantization` must be left out .*'saved_model'"),
        (
            {"format": "ctranslate2", "jit_compile": True},
            "`jit_compile` must be left out for format='ctranslate2'",
        ),
        ({"max_length": 0}, r"`max_length` must be .* max_length=0\."),
    ]:
        with pytest.raises(ValueError, match=message):
            translator.export(tmp_path / "export", **options)
    assert not list(tmp_path.iterdir())


def test_a_folder_holds_model_and_tokenizers_and_no_optimizer(translator, saved):
    names = {"model.keras", "source.model", "target.model", "translator.json"}
    assert {path.name for path in saved.iterdir()} == names
    assert translator.model.optimizer is not None
    assert not keras.models.load_model(saved / "model.keras").compiled


def test_one_vocabulary_for_both_sides_is_one_file(translator, tmp_path):
    tokenizer = translator.source_tokenizer
    model = kt.models.Transformer(
        41, num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=16
    )
    kt.Translator(model, tokenizer).save(tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"model.keras", "shared.model", "translator.json"}
    assert kt.Translator.load(tmp_path).translate(["a dog"], max_length=3)


def test_saving_leaves_the_rest_of_a_folder_as_it_is(translator, copied):
    (copied / "settings.yaml").write_text("seed: 7\n")
    translator.save(copied)
    assert (copied / "settings.yaml").read_text() == "seed: 7\n"
    assert kt.Translator.load(copied).translate(SOURCES[:3], GREEDY) == TARGETS[:3]


def test_a_full_disk_leaves_the_translator_that_was_there(translator, copied, request):
    before = {path.name: path.read_bytes() for path in copied.iterdir()}
    request.getfixturevalue("full_disk")
    with pytest.raises(OSError, match="too large"):
        translator.save(copied)
    assert {path.name: path.read_bytes() for path in copied.iterdir()} == before


def test_a_folder_without_a_translator_says_so(tmp_path):
    with pytest.raises(FileNotFoundError, match=f"{tmp_path} holds no translator"):
        kt.Translator.load(tmp_path)


@pytest.mark.parametrize(
    ("file", "named", "message"),
    [
        ("notes.txt", ".", "It holds notes.txt. Pass a folder that `Translator.save`"),
        ("notes.txt", "nothing", "Nothing is there. Pass a folder"),
        ("notes.txt", "notes.txt", "It is a file. Pass a folder"),
        ("model.keras", "model.keras", "a Keras model, without tokenizers. Read it"),
        ("config.json", ".", "another layout. `Translator.from_preset` may read it"),
        ("decoder.yml", ".", "another layout. `Translator.from_preset` may read it"),
        ("saved_model.pb", ".", "an export .* Pass the translator that was exported"),
        ("1/saved_model.pb", ".", "an export .* Pass the translator that was exported"),
    ],
)
def test_what_a_wrong_folder_is_and_what_to_name(tmp_path, file, named, message):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).touch()
    with pytest.raises(FileNotFoundError, match=message):
        kt.Translator.load(tmp_path / named)


@pytest.mark.slow
def test_the_folder_of_a_run_holds_its_translator(copied, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    copied.rename(run / "translator")
    (found,) = kt.Translator.load(run).translate(["a man"], max_length=3)
    assert [found] == kt.Translator.load(run / "translator").translate(
        ["a man"], max_length=3
    )
    with pytest.raises(FileNotFoundError, match="It is a run. Pass its translator"):
        kt.Translator.from_preset(run)


@pytest.mark.parametrize("read", [kt.Translator, kt.models.Transformer])
def test_a_preset_that_is_no_model_says_what_it_is(tmp_path, read):
    (tmp_path / "notes.txt").touch()
    message = "config.json is missing, and so is translator.json. It holds notes.txt"
    with pytest.raises(FileNotFoundError, match=message):
        read.from_preset(tmp_path)


@pytest.mark.parametrize("name", ["model.keras", "source.model", "target.model"])
def test_a_missing_file_is_named(copied, name):
    (copied / name).unlink()
    with pytest.raises(FileNotFoundError, match=name):
        kt.Translator.load(copied)


@pytest.mark.parametrize("name", ["model.keras", "source.model", "translator.json"])
@pytest.mark.parametrize("kept", [0, 11, 0.7])
def test_a_damaged_file_is_named_in_one_line(copied, name, kept):
    data = (copied / name).read_bytes()
    (copied / name).write_bytes(data[: int(kept if kept > 1 else kept * len(data))])
    with pytest.raises(ValueError, match=name) as error:
        kt.Translator.load(copied)
    assert "\n" not in str(error.value)


def test_a_processor_that_is_not_registered_is_named(copied):
    path = copied / "translator.json"
    settings = json.loads(path.read_text())
    settings["search"]["config"]["processors"] = [
        {"module": "mine", "class_name": "A", "config": {}, "registered_name": "mine>A"}
    ]
    path.write_text(json.dumps(settings))
    with pytest.raises(ValueError, match="Could not locate class 'A'.* imported"):
        kt.Translator.load(copied)


def test_a_model_of_another_vocabulary_is_not_taken(copied):
    shutil.copy(copied / "target.model", copied / "source.model")
    with pytest.raises(ValueError, match="41 subwords. Received: one of 43 .*Pass"):
        kt.Translator.load(copied)


def test_settings_that_make_no_translator_are_not_taken(copied):
    text = json.loads((copied / "translator.json").read_text())
    text["max_source_length"] = "many"
    (copied / "translator.json").write_text(json.dumps(text))
    with pytest.raises(ValueError, match="integer of at least 2.*'many'"):
        kt.Translator.load(copied)


def test_an_iterable_is_translated_in_order_as_it_is_read(translator):
    texts, read = ["a", "", "b a", "c", "d b"] * 3, []

    def lines():
        for text in texts:
            read.append(text)
            yield text

    found = translator.translate_iterable(lines(), max_length=7, chunk_size=8)
    assert not read
    first = next(found)
    assert len(read) == 1  # an eighth of a chunk is ready sooner
    rest = list(itertools.islice(found, 3))
    assert len(read) == 9
    expected = [translator.translate_n_best([x], max_length=7)[0] for x in texts]
    for one, other in zip([first, *rest, *found], expected, strict=True):
        assert [x.text for x in one] == [x.text for x in other]


@pytest.mark.parametrize(
    ("texts", "received"),
    [
        ("a dog", "texts of type str"),
        (b"a dog", "texts of type bytes"),
        (7, "texts of type int"),
        (["a dog", b"a man"], r"texts\[1\] of type bytes"),
        ([["a dog"]], r"texts\[0\] of type list"),
    ],
)
def test_only_lists_of_str_are_translated(translator, texts, received):
    with pytest.raises(ValueError, match=f"list of str. Received: {received}"):
        translator.translate(texts)


def test_a_prefix_is_forced_on_every_text_or_on_none(translator, tmp_path):
    prefix = translator.target_tokenizer(["zwei"]).to_list()[0]
    search = kt.decoding.GreedySearch([kt.decoding.ForcedPrefix(prefix)])
    for translation in translator.translate(SOURCES[:7], search):
        assert translation.startswith("zwei")
    search = kt.decoding.GreedySearch([kt.decoding.ForcedPrefix([prefix, [5]])])
    for use, argument in (
        (translator.translate, SOURCES[:2]),
        (translator.export, tmp_path / "1"),
    ):
        with pytest.raises(ValueError, match="one prefix for all .* for 2 texts"):
            use(argument, search=search)


def test_a_batch_has_a_text(translator):
    with pytest.raises(ValueError, match="`batch_size` must be a positive"):
        translator.translate(["a"], batch_size=0)


def test_tokenizers_fit_the_model(translator):
    model, source = translator.model, translator.source_tokenizer
    with pytest.raises(
        ValueError, match="`target_tokenizer` .* 43 subwords. Received: one of 41"
    ):
        kt.Translator(model, source)
    other = kt.models.Transformer(
        41, num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=16, end_id=5
    )
    with pytest.raises(ValueError, match="the end_id of its tokenizers, 3.*end_id=5"):
        kt.Translator(other, source)
    with pytest.raises(ValueError, match="`model` must be a Transformer.*Sequential"):
        kt.Translator(keras.Sequential(), source)


@pytest.mark.parametrize("max_source_length", [1, 0, None, 12.0])
def test_a_source_has_room_for_a_subword(translator, max_source_length):
    with pytest.raises(ValueError, match="`max_source_length` must be an integer"):
        kt.Translator(
            translator.model,
            translator.source_tokenizer,
            translator.target_tokenizer,
            max_source_length,
        )


@pytest.mark.parametrize("search", ["beam", kt.decoding.GreedySearch, 4])
def test_what_is_not_a_search_is_refused_by_name(translator, search):
    message = r"`search` must be a search of `.*`, such as `BeamSearch\(4\)`. Received:"
    with pytest.raises(ValueError, match=message):
        translator.translate(SOURCES[:1], search)
    with pytest.raises(ValueError, match=message):
        translator.model.generate(np.ones((1, 3), "int32"), search)


@pytest.mark.parametrize("tokenizer", ["en.model", 41, len])
def test_what_is_not_a_tokenizer_is_refused_by_name(translator, tokenizer):
    model, good = translator.model, translator.source_tokenizer
    with pytest.raises(ValueError, match="`source_tokenizer` must be a tokenizer"):
        kt.Translator(model, tokenizer)
    with pytest.raises(ValueError, match="`target_tokenizer` must be a tokenizer"):
        kt.Translator(model, good, tokenizer)


def test_the_padding_of_sources_is_that_of_the_model(translator):
    source = translator.source_tokenizer
    size = source.vocabulary_size
    table = {piece: size - 1 - i for i, piece in enumerate(source.pieces(range(size)))}
    other = kt.text.VocabularyTokenizer(source.model_proto, table)
    with pytest.raises(ValueError, match=f"pad_id of its tokenizers, {size - 1}"):
        kt.Translator(translator.model, other, translator.target_tokenizer)
