import collections
import contextlib
import gzip

import keras
import numpy as np
import pytest
import tensorflow as tf
from forked import run_program
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformer.text import parallel_dataset, pipeline

WORDS = st.text(
    st.characters(exclude_categories=["C", "Z"]) | st.just(" "),
    min_size=1,
    max_size=11,
).filter(str.strip)

BUCKETS = [23, 41, 97]


@pytest.fixture(scope="module")
def make(corpus, source_tokenizer, target_tokenizer):
    """Calls `parallel_dataset` on the small corpus, with small batches."""

    def make(sources=corpus[0], targets=corpus[1], **options):
        options = {"tokens_per_batch": 997, "max_length": 97, **options}
        return parallel_dataset(
            sources, targets, source_tokenizer, target_tokenizer, **options
        )

    return make


@pytest.fixture(scope="module")
def in_order(make):
    """A dataset without shuffling, and one pass of it."""
    dataset = make(shuffle=False)
    return dataset, as_numpy(dataset)


@pytest.fixture(scope="module")
def shuffled(make):
    """A shuffled dataset, and its first three epochs."""
    dataset = make(seed=11, buckets=BUCKETS)
    return dataset, [as_numpy(dataset) for _ in range(3)]


def as_numpy(dataset):
    """One pass: a list of `(source_ids, target_ids, labels)`."""
    return [
        (inputs["source_ids"].numpy(), inputs["target_ids"].numpy(), labels.numpy())
        for inputs, labels in dataset
    ]


def flat(batches):
    return [ids.tolist() for batch in batches for ids in batch]


def texts(batches, source_tokenizer, target_tokenizer):
    """The sentence pairs of a pass, as text, in order, without rows of padding."""
    found = []
    for source_ids, target_ids, labels in batches:
        is_real = labels.any(axis=1)
        sources = source_tokenizer.detokenize(source_ids[is_real]).numpy()
        targets = target_tokenizer.detokenize(target_ids[is_real]).numpy()
        found += [
            (s.decode(), t.decode()) for s, t in zip(sources, targets, strict=True)
        ]
    return found


def test_an_example_is_source_end_start_target_and_target_end(
    in_order, pairs, source_tokenizer, target_tokenizer
):
    dataset, batches = in_order
    spec = tf.TensorSpec([None, None], tf.int32)
    assert dataset.element_spec == ({"source_ids": spec, "target_ids": spec}, spec)
    subwords = [
        dict(zip(side, tokenizer(side).to_list(), strict=True))
        for tokenizer, side in zip(
            (source_tokenizer, target_tokenizer), zip(*pairs, strict=True), strict=True
        )
    ]
    seen = []
    for batch in batches:
        rows, length = batch[0].shape
        found = texts([batch], source_tokenizer, target_tokenizer)
        for i, (source, target) in enumerate(found):
            source_ids, target_ids = subwords[0][source], subwords[1][target]
            expected = [*source_ids, 3], [2, *target_ids], [*target_ids, 3]
            for side, ids in zip(batch, expected, strict=True):
                assert side[i].tolist() == ids + [0] * (length - len(ids))
        for side in batch:
            assert side.shape == (rows, length)
            assert not side[len(found) :].any()
        seen += found
    assert sorted(seen) == sorted(pairs)


@pytest.mark.quick("True")
@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_have_few_shapes_and_count_their_tokens(make, shuffled, shuffle):
    if shuffle:
        dataset, [batches, *_] = shuffled
    else:
        dataset = make(buckets=BUCKETS, shuffle=False)
        batches = as_numpy(dataset)
    shapes = {labels.shape for _, _, labels in batches}
    assert shapes == {(997 // length, length) for length in BUCKETS}
    assert dataset.cardinality() == len(batches)
    part_filled = collections.Counter(
        labels.shape for _, _, labels in batches if not labels.any(axis=1).all()
    )
    assert all(count == 1 for count in part_filled.values())


def test_every_epoch_has_every_pair_once_in_its_own_order(
    shuffled, pairs, source_tokenizer, target_tokenizer
):
    _, epochs = shuffled
    orders = [texts(epoch, source_tokenizer, target_tokenizer) for epoch in epochs]
    for order in orders:
        assert sorted(order) == sorted(pairs)
        assert order != pairs
    assert orders[0] != orders[1] != orders[2] != orders[0]
    lengths = [labels.shape[1] for _, _, labels in epochs[0]]
    assert lengths != sorted(lengths)


@pytest.mark.slow
def test_the_order_depends_only_on_seed_and_epoch(make):
    dataset = make(seed=11)
    epochs = [flat(as_numpy(dataset)) for _ in range(2)]
    keras.utils.set_random_seed(7)
    again = make(seed=11)
    assert [flat(as_numpy(again)) for _ in range(2)] == epochs
    assert flat(as_numpy(make(seed=11, initial_epoch=1))) == epochs[1]
    assert flat(as_numpy(make(seed=12))) not in epochs


def test_the_epoch_may_be_set(shuffled):
    dataset, epochs = shuffled
    assert dataset.epoch.numpy() == 3
    next(iter(dataset))  # as Keras does under a distribution strategy
    dataset.epoch.assign(1)
    assert flat(as_numpy(dataset)) == flat(epochs[1])


@pytest.mark.slow
def test_a_training_resumed_by_keras_gets_the_batches_of_an_uninterrupted_one(
    make, tmp_path
):
    def train(interrupted_in=None):
        """Returns the labels of the batches, in the order in which a model saw them."""
        dataset, seen = make(seed=11), []

        class Model(keras.Model):
            def train_step(self, data):
                seen.append(data[1].numpy().tolist())
                return {"loss": tf.zeros(())}

        def begin(epoch, logs):
            dataset.epoch.assign(epoch)
            if epoch == interrupted_in:
                raise KeyboardInterrupt

        model = Model()
        model.built = True
        model.compile("sgd", run_eagerly=True)
        backup = keras.callbacks.BackupAndRestore(tmp_path)
        follow = keras.callbacks.LambdaCallback(on_epoch_begin=begin)
        with contextlib.suppress(KeyboardInterrupt):
            callbacks = [backup, follow]
            model.fit(dataset, epochs=4, callbacks=callbacks, verbose=0, shuffle=False)
        return seen

    whole = train()
    assert train(interrupted_in=2) + train() == whole


def test_nothing_tunes_the_reading_and_keeps_an_epoch_from_ending(shuffled):
    assert not shuffled[0].options().autotune.enabled


@pytest.mark.slow
def test_an_interrupted_epoch_continues_with_the_same_batches(make):
    rest = as_numpy(make(initial_epoch=3).skip(5))
    assert flat(rest) == flat(as_numpy(make(initial_epoch=3))[5:])


def test_without_shuffling_every_pass_is_the_same(in_order):
    dataset, batches = in_order
    assert flat(as_numpy(dataset)) == flat(batches)


@pytest.mark.slow
def test_files_are_read_one_after_the_other(make, corpus, tmp_path):
    zipped = [tmp_path / path.name for path in corpus]
    for path, copy in zip(corpus, zipped, strict=True):
        copy.write_bytes(gzip.compress(path.read_bytes()))
    expected = flat(as_numpy(make(shuffle=False)))
    assert flat(as_numpy(make(*zipped, shuffle=False))) == expected
    both = make([corpus[0], zipped[0]], [corpus[1], str(zipped[1])], shuffle=False)
    num_pairs = [
        sum(int(labels.any(axis=1).sum()) for _, _, labels in as_numpy(dataset))
        for dataset in (make(), both)
    ]
    assert num_pairs == [229, 458]


@pytest.mark.slow
@pytest.mark.parametrize(
    "open_files", [pytest.param(1 << 6, marks=pytest.mark.slow), 2]
)
def test_every_part_of_an_epoch_holds_text_of_all_files(
    make, tmp_path, source_tokenizer, target_tokenizer, monkeypatch, open_files
):
    # Buffers smaller than the text, and files of different lengths: an epoch must not
    # end with the last or the longest one.
    monkeypatch.setattr(pipeline, "_SHUFFLE_BUFFER_PAIRS", 7)
    monkeypatch.setattr(pipeline, "_OPEN_FILES", open_files)
    lengths = {"one": 140, "ten": 70, "net": 210}
    paths = [tmp_path / word for word in lengths]
    for path, (word, length) in zip(paths, lengths.items(), strict=True):
        path.write_text("".join(f"{word} {i}\n" for i in range(length)))
    dataset = make(paths, paths, buckets=[97])
    tokenizers = source_tokenizer, target_tokenizer
    passes = [texts(as_numpy(dataset), *tokenizers) for _ in range(2)]
    for pairs in passes:
        expected = [f"{word} {i}" for word, n in lengths.items() for i in range(n)]
        assert sorted(source for source, _ in pairs) == sorted(expected)
        half = len(pairs) // 2
        first_half = collections.Counter(s.split()[0] for s, _ in pairs[:half])
        if open_files > len(lengths):
            for word, length in lengths.items():
                assert abs(first_half[word] - length / 2) < length / 4
        else:  # "one" and "net" are read one after the other, beside "ten"
            assert abs(first_half["ten"] - 35) < 18
    assert passes[0] != passes[1]
    keras.utils.set_random_seed(11)
    resumed = make(paths, paths, buckets=[97], initial_epoch=1)
    assert texts(as_numpy(resumed), *tokenizers) == passes[1]


def test_files_may_be_named_by_an_iterator(make, shuffled, corpus):
    sides = (path.parent.glob(path.name) for path in corpus)
    assert len(make(*sides, buckets=BUCKETS)) == len(shuffled[0])


def test_long_sentences_are_left_out_with_a_warning(
    make, pairs, source_tokenizer, target_tokenizer
):
    limit = 41
    ids = [
        side.row_lengths().numpy() + 1
        for side in (
            source_tokenizer([source for source, _ in pairs]),
            target_tokenizer([target for _, target in pairs]),
        )
    ]
    is_long = np.maximum(*ids) > limit
    line = is_long.argmax() + 1
    message = (
        rf"{is_long.sum()} of 229 sentence pairs are longer than max_length=41 and "
        rf"are left out; the first: \S*train\.src:{line}\."
    )
    with pytest.warns(UserWarning, match=message):
        dataset = make(max_length=limit)
    found = texts(as_numpy(dataset), source_tokenizer, target_tokenizer)
    kept = [pair for pair, long in zip(pairs, is_long, strict=True) if not long]
    assert sorted(found) == sorted(kept)


def test_a_corpus_of_long_sentences_only_is_refused(make):
    with pytest.raises(ValueError, match=r"All 229 sentence pairs are longer than"):
        make(max_length=3)


def test_a_batch_holds_the_longest_sentence(make):
    with pytest.raises(ValueError, match=r"`tokens_per_batch` must be at least"):
        make(tokens_per_batch=96)


def test_faults_are_found_before_training(make, corpus, tmp_path):
    shorter = tmp_path / "shorter"
    shorter.write_bytes(b"".join(corpus[1].read_bytes().splitlines(True)[:-1]))
    with pytest.raises(ValueError, match=r"train\.src:229 has no counterpart"):
        make(targets=shorter)


# Sampling


@pytest.mark.slow
def test_sampling_changes_the_subwords_and_not_the_text(
    make, pairs, source_tokenizer, target_tokenizer
):
    dataset = make(sampling=0.1, max_length=151)
    epochs = [as_numpy(dataset) for _ in range(2)]
    plain = as_numpy(make(max_length=151))
    found = [texts(epoch, source_tokenizer, target_tokenizer) for epoch in epochs]
    for epoch in found:
        # Sampled pairs may make more batches than an epoch has, or fewer.
        assert set(epoch) <= set(pairs)
        assert len(set(epoch)) > 0.9 * len(pairs)
    ids = [
        {tuple(np.trim_zeros(row)) for batch in epoch for row in batch[2]}
        for epoch in (*epochs, plain)
    ]
    assert len(ids[0] & ids[1]) < 0.5 * len(pairs)
    assert len(ids[0] & ids[2]) < 0.5 * len(pairs)
    assert dataset.cardinality() == len(epochs[0]) == len(epochs[1])


@pytest.mark.slow
def test_sampling_drops_no_sentence_that_fits_without_it(
    make, pairs, source_tokenizer, target_tokenizer
):
    longest = max(
        int(tokenizer(list(side)).row_lengths().numpy().max())
        for tokenizer, side in zip(
            (source_tokenizer, target_tokenizer), zip(*pairs, strict=True), strict=True
        )
    )
    dataset = make(sampling=1.0, max_length=longest + 1, buckets=[longest + 1])
    found = texts(as_numpy(dataset.take(300)), source_tokenizer, target_tokenizer)
    assert set(found) == set(pairs)


def test_pairs_of_a_rare_length_come_in_every_epoch(
    make, tmp_path, source_tokenizer, target_tokenizer
):
    files = tmp_path / "src", tmp_path / "tgt"
    for file in files:
        file.write_text("ba ko\n" * 300 + f"{'lika mu ' * 12}ba\n")
    dataset = make(*files, sampling=0.1)
    for _ in range(2):
        found = texts(as_numpy(dataset), source_tokenizer, target_tokenizer)
        assert len(set(found)) == 2


def test_a_huge_word_is_left_out_before_sampling(
    make, tmp_path, source_tokenizer, target_tokenizer
):
    files = tmp_path / "src", tmp_path / "tgt"
    for file in files:
        file.write_text(f"ba ko\n{'bakolimu' * 20_011}\nli mu\n")
    with pytest.warns(UserWarning, match="1 of 3 sentence pairs are longer"):
        dataset = make(*files, sampling=0.1)
    found = texts(as_numpy(dataset.take(1)), source_tokenizer, target_tokenizer)
    assert sorted(found) == [("ba ko", "ba ko"), ("li mu", "li mu")]


# Many replicas, large files


def run(script, *arguments):
    """Runs a program that must succeed; returns its output."""
    done = run_program(script, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


TWO_REPLICAS = """
import sys
import tensorflow as tf
from keras_transformer.text import SubwordTokenizer, parallel_dataset

cpu, = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(
    cpu, [tf.config.LogicalDeviceConfiguration()] * 2
)
*files, model = sys.argv[1:]
tokenizer = SubwordTokenizer.load(model)
dataset = parallel_dataset(
    *files, tokenizer, tokenizer, tokens_per_batch=997, max_length=97, initial_epoch=5
)
batches = [labels.numpy().tolist() for _, labels in dataset]
dataset.epoch.assign(5)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
for _, labels in strategy.experimental_distribute_dataset(dataset):
    one, other = (half.numpy().tolist() for half in labels.values)
    assert one and other and one + other == batches.pop(0)
assert not batches
"""


@pytest.mark.slow
def test_two_replicas_share_the_batches_of_one(corpus, source_tokenizer, tmp_path):
    source_tokenizer.save(tmp_path / "model")
    run(TWO_REPLICAS, *corpus, tmp_path / "model")


MEMORY = """
import resource
import sys
from keras_transformer.text import SubwordTokenizer, parallel_dataset

*files, model = sys.argv[1:]
tokenizer = SubwordTokenizer.load(model)
for pair in (files[:2], files[2:]):
    for _ in parallel_dataset(*pair, tokenizer, tokenizer, shuffle=False):
        pass
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)  # KiB
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_corpus(source_tokenizer, tmp_path):
    # Spaces make a text large but quick to tokenize: 20 and 50 MB a side. Both fill the
    # pipeline, whose chunks are 1,024 pairs.
    line = f"ba{' ' * 1000}ko\n".encode()
    files = []
    for name, count in (("small", 20011), ("large", 50021)):
        files += [tmp_path / f"{name}.src.gz", tmp_path / f"{name}.tgt"]
        files[-2].write_bytes(gzip.compress(line * count, compresslevel=1))
        files[-1].write_bytes(line * count)
    source_tokenizer.save(tmp_path / "model")
    small, large = map(int, run(MEMORY, *files, tmp_path / "model").split())
    assert large - small < 15 * 1024  # KiB


@pytest.mark.slow
@settings(max_examples=10)
@given(
    pairs=st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=13),
    tokens_per_batch=st.integers(61, 311),
    shuffle=st.booleans(),
)
def test_every_pair_comes_once_in_batches_of_at_most_the_given_tokens(
    pairs,
    tokens_per_batch,
    shuffle,
    source_tokenizer,
    target_tokenizer,
    tmp_path_factory,
):
    folder = tmp_path_factory.mktemp("any")
    files = folder / "any.src", folder / "any.tgt"
    for file, side in zip(files, zip(*pairs, strict=True), strict=True):
        file.write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    batches = as_numpy(
        parallel_dataset(
            *files,
            source_tokenizer,
            target_tokenizer,
            tokens_per_batch=tokens_per_batch,
            max_length=61,
            shuffle=shuffle,
        )
    )
    assert all(side.size <= tokens_per_batch for batch in batches for side in batch)
    found = [
        tuple(tuple(ids[ids != 0].tolist()) for ids in (source_ids, labels))
        for batch in batches
        for source_ids, _, labels in zip(*batch, strict=True)
        if labels.any()
    ]
    expected = [
        tuple(
            (*tokenizer([text]).to_list()[0], 3)
            for text, tokenizer in zip(
                pair, (source_tokenizer, target_tokenizer), strict=True
            )
        )
        for pair in pairs
    ]
    assert sorted(found) == sorted(expected)
