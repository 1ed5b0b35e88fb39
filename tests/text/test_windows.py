import gzip
import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from forked import run_program
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformer.models import LanguageModel
from keras_transformer.text import VocabularyTokenizer, language_dataset
from keras_transformer.training import Perplexity, TokenCrossentropy

START, END = 2, 3


@pytest.fixture
def make(corpus, source_tokenizer):
    """Calls `language_dataset` on one side of the small corpus."""

    def make(files=corpus[0], length=23, batch_size=5, **options):
        return language_dataset(files, source_tokenizer, length, batch_size, **options)

    return make


def as_numpy(dataset):
    """One pass: ids and labels, `(windows, length)`, those of padding included."""
    return tuple(np.concatenate(side) for side in zip(*dataset, strict=True))


def row_of(documents, tokenizer):
    rows = tokenizer(documents).to_list()
    return [one for row in rows if row for one in (START, *row, END)]


def in_order(windows):
    return sorted(map(tuple, np.concatenate(windows, axis=1).tolist()))


@settings(max_examples=4)
@given(
    documents=st.lists(st.text(st.sampled_from("bako li\t\u3000"), max_size=23)),
    length=st.integers(1, 41),
    batch_size=st.integers(1, 7),
)
def test_windows_are_concatenated_documents_and_labels_are_shifted_by_one(
    documents, length, batch_size, source_tokenizer, tmp_path_factory
):
    documents = [*documents, "ba"]
    path = tmp_path_factory.mktemp("plain") / "text"
    path.write_text("\n".join(documents), encoding="utf-8")
    dataset = language_dataset(
        path, source_tokenizer, length, batch_size, shuffle=False
    )
    spec = tf.TensorSpec([batch_size, length], tf.int32)
    assert dataset.element_spec == (spec, spec)
    ids, labels = as_numpy(dataset)
    row = row_of(documents, source_tokenizer)
    assert labels[labels != 0].tolist() == row[1:]
    # Only the last subword of the text may be an input without a label.
    shown = ids[ids != 0].tolist()
    assert shown[: len(row) - 1] == row[:-1]
    assert shown[len(row) - 1 :] in ([], [END])
    np.testing.assert_array_equal(ids.ravel()[1 : len(row) - 1], row[1:-1])
    num_windows = -(-(len(row) - 1) // length)
    assert len(ids) == -(-num_windows // batch_size) * batch_size
    assert len(dataset) * batch_size == len(ids)


@pytest.mark.slow
def test_every_epoch_has_the_same_windows_in_its_own_order(make):
    plain = as_numpy(make(shuffle=False))
    dataset = make(seed=11)
    epochs = [as_numpy(dataset) for _ in range(3)]
    for epoch in epochs:
        assert in_order(epoch) == in_order(plain)
    for one, other in itertools.combinations([plain, *epochs], 2):
        assert np.any(one[0] != other[0])
    np.testing.assert_array_equal(as_numpy(make(shuffle=False)), plain)


@pytest.mark.slow
def test_the_order_depends_only_on_seed_and_epoch(make):
    dataset = make(seed=11)
    epochs = [as_numpy(dataset) for _ in range(2)]
    keras.utils.set_random_seed(7)
    again = make(seed=11)
    np.testing.assert_array_equal([as_numpy(again) for _ in range(2)], epochs)
    np.testing.assert_array_equal(as_numpy(make(seed=11, initial_epoch=1)), epochs[1])
    assert np.any(as_numpy(make(seed=12))[0] != epochs[0][0])
    assert dataset.epoch.numpy() == 2
    dataset.epoch.assign(1)
    np.testing.assert_array_equal(as_numpy(dataset), epochs[1])


def test_files_plain_and_gzipped_are_read_one_after_the_other(
    make, corpus, pairs, source_tokenizer, tmp_path
):
    zipped = tmp_path / "text.gz"
    zipped.write_bytes(gzip.compress(corpus[0].read_bytes()))
    _, labels = as_numpy(make([corpus[0], str(zipped)], shuffle=False))
    row = row_of([source for source, _ in pairs] * 2, source_tokenizer)
    assert labels[labels != 0].tolist() == row[1:]


def test_windows_are_filled_with_the_padding_of_the_tokenizer(
    make, corpus, source_tokenizer
):
    # Every id falls by one; that of the padding, zero, becomes the last.
    size = source_tokenizer.vocabulary_size
    moved = np.roll(np.arange(size), 1)
    pieces = source_tokenizer.pieces(range(size))
    table = {pieces[i]: int(moved[i]) for i in range(size)}
    tokenizer = VocabularyTokenizer(
        source_tokenizer.model_proto, table, start="<s>", end="</s>"
    )
    assert tokenizer.pad_id == size - 1
    options = {"length": 23, "batch_size": 5, "shuffle": False}
    found = as_numpy(language_dataset(corpus[0], tokenizer, **options))
    np.testing.assert_array_equal(found, moved[np.array(as_numpy(make(shuffle=False)))])


@pytest.mark.slow
def test_a_language_model_learns_from_it(make, source_tokenizer):
    keras.utils.set_random_seed(3)
    model = LanguageModel(source_tokenizer.vocabulary_size, 1, 32, 2, 64, dropout=0.0)
    model.compile(
        keras.optimizers.Adam(1e-2), TokenCrossentropy(), metrics=[Perplexity()]
    )
    history = model.fit(make(), epochs=3, shuffle=False, verbose=0)
    # Words of ten syllables, two letters each, in 89 subwords.
    assert history.history["perplexity"][-1] < 20


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"text does not exist\. Check the path"),
        (b"", r"text holds no text\. It must hold one document per line"),
        (b" \n\t\n", r"text holds no text\."),
        (b"ba\n\xff\n", r"text:2 is not UTF-8"),
        (gzip.compress(b"ba\n", mtime=0)[:-5], r"text:\d cannot be read"),
    ],
    ids=["missing", "empty", "blank", "not UTF-8", "cut short"],
)
def test_faults_are_found_before_training(make, corpus, tmp_path, content, message):
    path = tmp_path / "text"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises((FileNotFoundError, ValueError), match=message) as caught:
        make([corpus[0], path])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 0}, r"`length` must be a positive integer. Received: length=0"),
        ({"batch_size": -1}, "`batch_size` must be .* Received: batch_size=-1"),
        ({"files": []}, "`files` must name at least one text file. Received: none"),
    ],
    ids=["length", "batch_size", "files"],
)
def test_bad_settings_are_refused(make, options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)


def test_what_is_no_tokenizer_is_refused(corpus):
    with pytest.raises(ValueError, match="`tokenizer` must be a tokenizer"):
        language_dataset(corpus[0], "source.model", length=23)


def run(script, *arguments):
    """Runs a program that must succeed; returns its output."""
    done = run_program(script, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


TWO_REPLICAS = """
import sys
import tensorflow as tf
from keras_transformer.text import SubwordTokenizer, language_dataset

cpu, = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(
    cpu, [tf.config.LogicalDeviceConfiguration()] * 2
)
path, model = sys.argv[1:]
dataset = language_dataset(path, SubwordTokenizer.load(model), 23, 10, initial_epoch=5)
batches = [labels.numpy().tolist() for _, labels in dataset]
dataset.epoch.assign(5)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
for _, labels in strategy.experimental_distribute_dataset(dataset):
    one, other = (half.numpy().tolist() for half in labels.values)
    assert len(one) == len(other) == 5 and one + other == batches.pop(0)
assert not batches
"""


@pytest.mark.slow
def test_two_replicas_share_the_batches_of_one(corpus, source_tokenizer, tmp_path):
    source_tokenizer.save(tmp_path / "model")
    run(TWO_REPLICAS, corpus[0], tmp_path / "model")


MEMORY = """
import resource
import sys
from keras_transformer.text import SubwordTokenizer, language_dataset

small, large, model = sys.argv[1:]
tokenizer = SubwordTokenizer.load(model)
for path in (small, large):
    for _ in language_dataset(path, tokenizer, 23, 32, shuffle=False):
        pass
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)  # KiB
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_text(source_tokenizer, tmp_path):
    # Spaces make a text large but quick to tokenize: 3 and 30 MB.
    line, files = f"ba{' ' * 1000}ko\n".encode(), []
    for count in (3001, 30011):
        files.append(tmp_path / f"{count}.gz")
        files[-1].write_bytes(gzip.compress(line * count, compresslevel=1))
    source_tokenizer.save(tmp_path / "model")
    small, large = map(int, run(MEMORY, *files, tmp_path / "model").split())
    assert large - small < 15 * 1024
