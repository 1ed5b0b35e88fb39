import gzip
import subprocess
import sys

import hypothesis
import hypothesis.strategies as st
import keras
import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

from keras_transformer.text import SubwordTokenizer, read_lines

LINES = ["a man rides a bike", "a dog rides a man", "42 dogs and 17 bikes"]


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def tokenizer(corpus, request):
    return SubwordTokenizer.train(corpus, 97, model_type=request.param)


def decoded(texts):
    return [text.decode() for text in texts.numpy().tolist()]


def python_ids(tokenizer, texts):
    model = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model_proto)
    return model.encode(texts)


# Tokenizing


def test_ids_are_those_of_sentencepiece(tokenizer, pairs):
    texts = [source for source, _ in pairs]
    ids = tokenizer(texts)
    assert ids.dtype == tf.int32
    assert ids.shape.as_list() == [len(texts), None]
    assert ids.to_list() == python_ids(tokenizer, texts)


@pytest.mark.quick("bpe")
@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_ids_are_those_of_sentencepiece_on_real_text(multi30k, model_type):
    folder = multi30k / "raw"
    tokenizer = SubwordTokenizer.train(folder / "val.de.gz", 1009, model_type)
    texts = list(read_lines(folder / "test_2016_flickr.de.gz"))
    ids = tokenizer(texts)
    assert ids.to_list() == python_ids(tokenizer, texts)


@pytest.mark.quick("bpe")
@hypothesis.settings(max_examples=41)
@hypothesis.given(st.lists(st.lists(st.sampled_from(["ba", "li", "kolu", "muri"]))))
def test_text_comes_back(tokenizer, words):
    texts = [" ".join(sentence) for sentence in words]
    assert decoded(tokenizer.detokenize(tokenizer(texts))) == texts


def test_text_comes_back_character_by_character_without_normalization():
    lines = ["5\u202f% m² ½", "zwölf\u00a0Uhr … ①"]
    tokenizer = SubwordTokenizer.train(lines, 29, normalization="identity")
    assert decoded(tokenizer.detokenize(tokenizer(lines))) == lines


def test_no_texts_are_no_ids(tokenizer):
    assert tokenizer([]).to_list() == []
    assert tokenizer([""]).to_list() == [[]]
    assert decoded(tokenizer.detokenize([[], []])) == ["", ""]
    assert decoded(tokenizer.detokenize([])) == []


def test_special_symbols_are_never_read_from_text(tokenizer):
    ids = tokenizer(["<pad> <s> </s> ba"]).to_list()[0]
    assert not {tokenizer.pad_id, tokenizer.start_id, tokenizer.end_id} & set(ids)


def test_works_within_functions_and_datasets(tokenizer, pairs):
    texts = [source for source, _ in pairs]
    expected = tokenizer(texts).to_list()
    function = tf.function(
        tokenizer, input_signature=[tf.TensorSpec([None], tf.string)]
    )
    assert function(tf.constant(texts)).to_list() == expected
    dataset = tf.data.Dataset.from_tensor_slices(texts).batch(11)
    dataset = dataset.map(tokenizer, num_parallel_calls=2)
    assert [ids for batch in dataset for ids in batch.to_list()] == expected


@pytest.mark.parametrize(
    "texts", ["ba", [["ba"]], [1.0], tf.constant([3]), None, ["ba", None], ["ba", 1]]
)
def test_texts_are_a_batch_of_strings(tokenizer, texts):
    with pytest.raises(ValueError, match=r"`texts` must be a list of str"):
        tokenizer(texts)


# Detokenizing


@pytest.mark.parametrize("ids", [["ba"], [["ba"]], [[1.5]], [[4, None]], None])
def test_only_integers_become_text(tokenizer, ids):
    with pytest.raises(ValueError, match=r"`ids` must be integers of shape \(\.\.\."):
        tokenizer.detokenize(ids)


def test_ids_of_another_vocabulary_do_not_become_text(tokenizer):
    size = tokenizer.vocabulary_size
    message = f"`ids` must lie in the vocabulary of {size} sub.*Received: .*{size + 7}"
    with pytest.raises(ValueError, match=message):
        tokenizer.detokenize([[4, size + 7]])


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_detokenizing_stops_at_the_end_and_skips_the_rest(tokenizer, dtype):
    word = tokenizer(["muri ba"]).to_list()[0]
    after = [*word, 3, *word]
    rows = [
        [2, *word, 3, 0, 0],
        [*word, 0, 0],
        after,
        [3, *word],
        [0, 0],
        [2, 0, *word],
    ]
    expected = ["muri ba", "muri ba", "muri ba", "", "", "muri ba"]
    assert decoded(tokenizer.detokenize(rows)) == expected
    ragged = tf.ragged.constant(rows, dtype=dtype)
    assert decoded(tokenizer.detokenize(ragged)) == expected
    assert decoded(tokenizer.detokenize(ragged.to_tensor())) == expected


def test_detokenizing_keeps_the_shape_of_hypotheses(tokenizer):
    texts = [["ba", "ko li", "mu"], ["ri", "sa", "to to"]]
    ids = tokenizer([text for row in texts for text in row]).to_tensor()
    ids = tf.reshape(ids, [2, 3, -1])
    found = tokenizer.detokenize(ids.numpy())
    assert found.shape == (2, 3)
    assert [[text.decode() for text in row] for row in found.numpy()] == texts
    for row in (ids[1, 2], ids[1, 2].numpy().tolist()):
        assert tokenizer.detokenize(row).numpy() == b"to to"


@pytest.mark.parametrize("ids", [[[1.5, 2.0]], np.ones((2, 3)), np.int32(7)])
def test_ids_are_integers(tokenizer, ids):
    with pytest.raises(ValueError, match=r"`ids` must be integers of shape"):
        tokenizer.detokenize(ids)


def test_pieces_spell_the_text(tokenizer):
    pieces = tokenizer.pieces(tokenizer(["kolu ba"])[0])
    assert "".join(pieces) == "\u2581kolu\u2581ba"
    assert tokenizer.pieces([0, 1, 2, 3]) == ["<pad>", "<unk>", "<s>", "</s>"]


# Sampling


@pytest.mark.quick("bpe")
@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_sampling_draws_other_subwords_of_the_same_text(pairs, model_type):
    texts = [source for source, _ in pairs]
    tokenizer = SubwordTokenizer.train(texts, 97, model_type)
    samples = [tokenizer.sample(texts, 0.3).to_list() for _ in range(2)]
    assert tokenizer(texts).to_list() != samples[0] != samples[1]
    for ids in samples:
        assert decoded(tokenizer.detokenize(ids)) == texts


def test_sampling_runs_within_datasets(tokenizer):
    texts = tf.data.Dataset.from_tensors(["kolu ba muri"] * 5).repeat(13)
    dataset = texts.map(lambda text: tokenizer.sample(text, 0.3))
    assert len({str(batch.to_list()) for batch in dataset}) > 1
    assert dataset.element_spec.shape.as_list() == [5, None]


def test_bpe_dropout_of_no_merge_and_of_every_merge():
    tokenizer = SubwordTokenizer.train(LINES, 41)
    assert tokenizer.sample(LINES, 0.0).to_list() == tokenizer(LINES).to_list()
    letters = [["\u2581", *line.replace(" ", "\u2581")] for line in LINES]
    sampled = tokenizer.sample(LINES, 1.0).to_list()
    assert [tokenizer.pieces(ids) for ids in sampled] == letters


@pytest.mark.parametrize("alpha", [-0.1, 1.5])
def test_alpha_is_a_probability(tokenizer, alpha):
    with pytest.raises(ValueError, match=r"`alpha` must be between 0 and 1\. Received"):
        tokenizer.sample(["ba"], alpha)


# Training


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_training_gives_the_same_model_every_time(corpus, pairs, model_type):
    def train(text):
        return SubwordTokenizer.train(text, 83, model_type=model_type).model_proto

    lines = [line for side in zip(*pairs, strict=True) for line in side]
    assert train(corpus) == train(lines) == train(iter(lines))


def test_files_may_be_named_in_every_way(tmp_path):
    plain, zipped = tmp_path / "plain.txt", tmp_path / "zipped"
    plain.write_text("\n".join(LINES))
    zipped.write_bytes(gzip.compress("\n".join(LINES).encode()))
    train = SubwordTokenizer.train
    expected = train(LINES, 31).model_proto
    for files in (plain, str(plain), zipped, [plain], [str(zipped)], (plain,)):
        assert train(files, 31).model_proto == expected
    twice = train(LINES * 2, 31).model_proto
    assert train([str(plain), zipped], 31).model_proto == twice


def test_special_ids_and_vocabulary_size(tokenizer):
    symbols = (
        tokenizer.pad_id,
        tokenizer.unknown_id,
        tokenizer.start_id,
        tokenizer.end_id,
    )
    assert symbols == (0, 1, 2, 3)
    assert tokenizer.vocabulary_size == 97
    assert tokenizer(["\u4e2d"]).to_list()[0][-1] == tokenizer.unknown_id


def test_digits_are_split_on_request():
    lines = ["2026 2026 2026 year", "2025 2025 2025"]
    whole = SubwordTokenizer.train(lines, 21)
    split = SubwordTokenizer.train(lines, 17, split_digits=True)
    assert "\u20262026".replace("\u2026", "\u2581") in whole.pieces(whole(["2026"])[0])
    assert split.pieces(split(["2026"])[0]) == ["\u2581", "2", "0", "2", "6"]


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_no_character_is_unknown_with_bytes(model_type):
    texts = ["a dog", "a 中é🙂 dog"]
    expected = ["a dog", "a \u2047 dog"]
    plain = SubwordTokenizer.train(LINES, 23, model_type)
    found = decoded(plain.detokenize(plain(texts)))
    assert [" ".join(text.split()) for text in found] == expected
    tokenizer = SubwordTokenizer.train(LINES, 281, model_type, byte_fallback=True)
    ids = tokenizer(texts)
    assert tokenizer.unknown_id not in ids.flat_values
    assert decoded(tokenizer.detokenize(ids)) == texts
    sampled = tokenizer.sample(texts, 1.0)
    assert decoded(tokenizer.detokenize(sampled)) == texts
    dataset = tf.data.Dataset.from_tensors(texts).map(tokenizer)
    assert [batch.to_list() for batch in dataset] == [ids.to_list()]


def test_training_is_silent(capfd):
    SubwordTokenizer.train(LINES, 31)
    with pytest.raises(ValueError, match="vocabulary_size"):
        SubwordTokenizer.train(LINES, 8000)
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""


@pytest.mark.parametrize(
    ("text", "size", "model_type", "message"),
    [
        (LINES, 8000, "bpe", r"must be at most \d+ .* vocabulary_size=8000\. Lower it"),
        (
            LINES,
            8000,
            "unigram",
            r"`vocabulary_size` must be at most \d+ for this text",
        ),
        (LINES, 5, "bpe", r"must be at least \d+ .* vocabulary_size=5\. Raise it"),
        ([], 31, "bpe", r"`files_or_lines` holds no text\. Pass at least one line"),
        ([" ", ""], 31, "bpe", r"`files_or_lines` holds no text"),
        ([b"ba"], 31, "bpe", r"`files_or_lines` must be .* a line that is bytes"),
        ([None], 31, "bpe", r"`files_or_lines` must be .* a line that is NoneType"),
        (LINES, 31, "word", r"`model_type` must be .* model_type='word'"),
    ],
)
def test_training_says_what_is_wrong(text, size, model_type, message):
    with pytest.raises(ValueError, match=message) as caught:
        SubwordTokenizer.train(text, size, model_type=model_type)
    assert "\n" not in str(caught.value)


def test_training_succeeds_with_the_limits_that_its_errors_name():
    most = r"must be at most (\d+)"
    with pytest.raises(ValueError, match=most) as caught:
        SubwordTokenizer.train(LINES, 8000)
    size = int(str(caught.value).split("at most ")[1].split()[0])
    assert SubwordTokenizer.train(LINES, size).vocabulary_size == size
    with pytest.raises(ValueError, match=r"must be at least (\d+)") as caught:
        SubwordTokenizer.train(LINES, 5)
    size = int(str(caught.value).split("at least ")[1].split()[0])
    assert SubwordTokenizer.train(LINES, size).vocabulary_size == size


def test_a_faulty_training_file_is_named(tmp_path):
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_text("\n".join(LINES))
    bad.write_bytes(b"abc\n\xff\n")
    with pytest.raises(ValueError, match=r"bad:2 is not UTF-8"):
        SubwordTokenizer.train([good, bad], 31)
    for missing in (tmp_path / "missing", str(tmp_path / "missing")):
        with pytest.raises(FileNotFoundError, match="missing does not exist"):
            SubwordTokenizer.train(missing, 31)
        with pytest.raises(FileNotFoundError, match="missing does not exist"):
            SubwordTokenizer.train([good, missing], 31)


# Saving


def test_sentencepiece_reads_a_saved_tokenizer(tokenizer, tmp_path):
    path = tmp_path / "new" / "subwords.model"
    tokenizer.save(path)
    model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    assert model.encode("kolu ba") == tokenizer(["kolu ba"]).to_list()[0]
    loaded = SubwordTokenizer.load(str(path))
    assert loaded.model_proto == tokenizer.model_proto
    assert [file.name for file in path.parent.iterdir()] == ["subwords.model"]


def test_failed_saving_keeps_the_old_file(tokenizer, tmp_path):
    folder = tmp_path / "subwords.model"
    folder.mkdir()
    (folder / "kept").write_text("old")
    with pytest.raises(OSError, match=r"subwords\.model"):
        tokenizer.save(folder)
    assert [file.name for file in tmp_path.iterdir()] == ["subwords.model"]


@pytest.mark.parametrize("content", [b"", b"abc", "half"])
def test_a_damaged_file_is_named(tokenizer, tmp_path, content):
    proto = tokenizer.model_proto
    path = tmp_path / "bad.model"
    path.write_bytes(proto[: len(proto) // 2] if content == "half" else content)
    with pytest.raises(
        ValueError, match=r"bad\.model cannot be loaded\. .* that are not one"
    ):
        SubwordTokenizer.load(path)


@pytest.mark.parametrize("name", ["missing.model", "."])
def test_a_missing_file_is_named(tmp_path, name):
    with pytest.raises(FileNotFoundError, match="is not a file"):
        SubwordTokenizer.load(tmp_path / name)


def test_a_model_with_other_symbols_is_refused(tmp_path):
    prefix = tmp_path / "other"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_prefix=prefix, vocab_size=23, minloglevel=2
    )
    with pytest.raises(ValueError, match=r"Received: -1, 0, 1, 2\. Train it with"):
        SubwordTokenizer.load(f"{prefix}.model")


# What TensorFlow Text's own tokenizer gets wrong


def test_setting_a_seed_leaves_tokenizers_working(source_tokenizer, target_tokenizer):
    tokenizers = source_tokenizer, target_tokenizer
    texts = ["kolu ba", "muri zu7"]
    dataset = tf.data.Dataset.from_tensors(texts)
    before = [dataset.map(tokenizer) for tokenizer in tokenizers]
    functions = [tf.function(tokenizer) for tokenizer in tokenizers]
    expected = [function(tf.constant(texts)).to_list() for function in functions]
    running = [iter(mapped.repeat()) for mapped in before]
    assert [next(iterator).to_list() for iterator in running] == expected
    # Nor may the deletion of an equal tokenizer delete the model.
    SubwordTokenizer(source_tokenizer.model_proto)

    keras.utils.set_random_seed(1729)

    assert [tokenizer(texts).to_list() for tokenizer in tokenizers] == expected
    assert [f(tf.constant(texts)).to_list() for f in functions] == expected
    assert [next(iter(mapped)).to_list() for mapped in before] == expected
    assert [next(iterator).to_list() for iterator in running] == expected
    after = [dataset.map(tokenizer) for tokenizer in tokenizers]
    assert [next(iter(mapped)).to_list() for mapped in after] == expected


LOADED_ELSEWHERE = """
import sys
import tensorflow as tf
import tensorflow_text

path, *texts = sys.argv[1:]
module = tf.saved_model.load(path)
for _ in range(2):
    ids = [module.source_ids(texts), module.target_ids(texts)]
    found = [module.source_texts(ids[0]), module.target_texts(ids[1])]
    for part in (*ids, *found):
        print(part.numpy().tolist())
    tf.random.set_seed(7)

# As TF Serving loads it: a graph and a session.
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    signatures = tf.compat.v1.saved_model.load(session, ["serve"], path).signature_def
    for signature in (signatures["source"], signatures["target"]):
        output, = signature.outputs.values()
        feed = {signature.inputs["texts"].name: texts}
        print(session.run(output.name, feed).tolist())
assert not any(name.startswith("keras_transformer") for name in sys.modules)
"""


@pytest.fixture(scope="module")
def byte_tokenizer(corpus):
    return SubwordTokenizer.train(corpus[1], 331, byte_fallback=True)


@pytest.fixture
def saved_model(source_tokenizer, byte_tokenizer, tmp_path):
    """Path of a SavedModel that holds two tokenizers."""
    texts = tf.TensorSpec([None], tf.string, name="texts")
    ids = tf.TensorSpec([None, None], tf.int32)

    def functions(tokenizer):
        to_ids = tf.function(lambda texts: tokenizer(texts).to_tensor(), [texts])
        return to_ids, tf.function(tokenizer.detokenize, [ids])

    module = tf.Module()
    module.tokenizers = [source_tokenizer, byte_tokenizer]
    module.source_ids, module.source_texts = functions(source_tokenizer)
    module.target_ids, module.target_texts = functions(byte_tokenizer)
    signatures = {"source": module.source_ids, "target": module.target_ids}
    tf.saved_model.save(module, str(tmp_path / "model"), signatures=signatures)
    return tmp_path / "model"


@pytest.mark.slow
def test_one_saved_model_holds_two_tokenizers(
    source_tokenizer, byte_tokenizer, saved_model
):
    texts = ["kolu ba", "muri \u4e2d"]
    run = subprocess.run(
        [sys.executable, "-c", LOADED_ELSEWHERE, saved_model, *texts],
        capture_output=True,
        text=True,
        check=False,
        cwd=saved_model,
    )
    assert run.returncode == 0, run.stderr
    ids = [
        str(tokenizer(texts).to_tensor().numpy().tolist())
        for tokenizer in (source_tokenizer, byte_tokenizer)
    ]
    assert ids[0] != ids[1]
    back = [
        str([text.encode() for text in texts])
        for texts in (["kolu ba", "muri  \u2047 "], texts)
    ]
    assert run.stdout.splitlines() == [*ids, *back] * 2 + ids


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_symbols_are_one_subword_wherever_they_stand(model_type):
    lines = ["a man rides a bike", "a dog rides a man", "a bike"]
    size = {"bpe": 27, "unigram": 20}[model_type]
    tokenizer = SubwordTokenizer.train(lines, size, model_type, symbols=["<bt>"])
    texts = ["<bt> a man", "a <bt>", "dog<bt>man"]
    for row in tokenizer.split(texts).numpy():
        assert b"<bt>" in row
    assert tokenizer.unknown_id not in tokenizer(texts).values.numpy()
    assert tokenizer.detokenize(tokenizer(texts)).numpy().tolist() == [
        text.encode() for text in texts
    ]
