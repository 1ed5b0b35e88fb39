import collections
import json
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.text import parallel_dataset, prepare, prepared_dataset
from keras_transformer.text.tokenizer import SubwordTokenizer

SIZES = {"max_length": 97, "buckets": [23, 41, 97], "num_shards": 5}


@pytest.fixture
def write(corpus, source_tokenizer, target_tokenizer, tmp_path):
    """Calls `prepare` on the small corpus."""

    def write(folder="ids", sources=corpus[0], targets=corpus[1], **options):
        tokenizers = source_tokenizer, target_tokenizer
        options = {**SIZES, **options}
        folder = tmp_path / folder
        return folder, prepare(sources, targets, *tokenizers, folder, **options)

    return write


@pytest.fixture(scope="module")
def ids(corpus, source_tokenizer, target_tokenizer, tmp_path_factory):
    """The small corpus in five shards; copy it rather than change it."""
    folder = tmp_path_factory.mktemp("prepared") / "ids"
    prepare(*corpus, source_tokenizer, target_tokenizer, folder, **SIZES)
    return folder


@pytest.fixture(scope="module")
def read(ids):
    """A dataset of the small corpus, and its first epoch."""
    dataset = prepared_dataset(ids, tokens_per_batch=997)
    return dataset, flat(dataset)


def flat(dataset):
    """One pass as a list of batches, each of which is a nested list."""
    return [
        [ids.numpy().tolist() for ids in (*inputs.values(), labels)]
        for inputs, labels in dataset
    ]


def rows(batches):
    """All rows but those of padding, sorted."""
    found = [row for batch in batches for row in zip(*batch, strict=True)]
    return sorted(row for row in found if any(row[2]))


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_an_epoch_has_the_rows_of_one_from_text(
    read, corpus, source_tokenizer, target_tokenizer
):
    dataset, first = read
    options = {"tokens_per_batch": 997, "max_length": 97, "buckets": SIZES["buckets"]}
    text = parallel_dataset(*corpus, source_tokenizer, target_tokenizer, **options)
    assert dataset.element_spec == text.element_spec
    second, expected = flat(dataset), flat(text)
    assert rows(first) == rows(second) == rows(expected)
    assert len(first) == len(expected) == dataset.cardinality()
    for batch in first:
        assert not any(map(any, batch[0][len(rows([batch])) :]))
    shapes = [np.shape(batch[2]) for batch in first]
    assert collections.Counter(shapes) == collections.Counter(
        np.shape(batch[2]) for batch in expected
    )
    assert shapes not in (sorted(shapes), [np.shape(batch[2]) for batch in second])


@pytest.mark.slow
def test_the_order_depends_only_on_seed_and_epoch(ids):
    dataset = prepared_dataset(ids, 997, seed=11)
    epochs = [flat(dataset) for _ in range(2)]
    assert epochs[0] != epochs[1]
    keras.utils.set_random_seed(7)
    assert flat(prepared_dataset(ids, 997, seed=11, initial_epoch=1)) == epochs[1]
    assert flat(prepared_dataset(ids, 997, seed=12)) not in epochs


def test_shards_hold_examples_that_every_reader_knows(ids, corpus, source_tokenizer):
    files = sorted(ids.glob("train-*"))
    assert files[0].name == "train-23-00000-of-00005.tfrecord"
    assert len(files) == 5 * len(SIZES["buckets"])
    found = []
    for record in tf.data.TFRecordDataset(list(map(str, files))).as_numpy_iterator():
        features = tf.train.Example.FromString(record).features.feature
        found.append(list(features["source_ids"].int64_list.value))
    lines = corpus[0].read_text("utf-8").splitlines()
    expected = [[*row, 3] for row in source_tokenizer(lines).to_list()]
    assert sorted(found) == sorted(expected)


def test_files_that_are_named_twice_are_read_twice(write, corpus, tmp_path):
    paths = [tmp_path / path.name for path in corpus]
    for path, word in zip(paths, ("ba ko", "zu li"), strict=True):
        path.write_text("".join(f"{word} {i}\n" for i in range(13)))
    sides = [[a, b, b] for a, b in zip(corpus, paths, strict=True)]
    folder, manifest = write("ids", *sides)
    assert sum(map(sum, (shard["pairs"] for shard in manifest["shards"]))) == 229 + 13
    counts = collections.Counter(map(str, rows(flat(prepared_dataset(folder, 997)))))
    assert sorted(counts.values()) == [1] * 229 + [2] * 13
    dataset = prepared_dataset(folder, 997, passes=3)
    thrice = flat(dataset)
    counts = collections.Counter(map(str, rows(thrice)))
    assert sorted(counts.values()) == [3] * 229 + [6] * 13
    assert len(thrice) == dataset.cardinality()


def test_what_is_left_out_is_counted(
    write, source_tokenizer, target_tokenizer, tmp_path
):
    pairs = [
        *[("ba ko", "zu li")] * 3,
        ("ba ko", "zu"),
        ("ba ko " * 60, "zu li " * 60),  # longer than 41
        *[("ba " * 9, "zu")] * 2,  # unbalanced, and then a duplicate
        ("ko", "li"),
        ("ko", "\xad"),  # a soft hyphen has no subwords
    ]
    paths = [tmp_path / "a", tmp_path / "b"]
    for path, side in zip(paths, zip(*pairs, strict=True), strict=True):
        path.write_text("".join(f"{line}\n" for line in side))
    limits = {"max_length": 41, "buckets": [41], "max_length_ratio": 3.0}
    # More shards than pairs: some are empty.
    folder, manifest = write("ids", *paths, num_shards=11, **limits)
    shards = manifest["shards"]
    found = [sum(x[k] for x in shards) for k in ("duplicates", "long", "unbalanced")]
    assert found == [3, 1, 2]
    kept = rows(flat(prepared_dataset(folder, 997)))
    texts = [source_tokenizer.detokenize([row[0]]).numpy()[0].decode() for row in kept]
    assert sorted(texts) == ["ba ko", "ba ko", "ko"]
    _, manifest = write("all", *paths, num_shards=3, keep_duplicates=True)
    num_kept = sum(sum(shard["pairs"]) for shard in manifest["shards"])
    assert num_kept == len(pairs) - 1  # without the long one


def test_an_interrupted_one_continues_with_the_same_files(write, ids, tmp_path):
    whole = contents(ids)
    manifest = json.loads(whole["manifest.json"])
    folder = tmp_path / "ids"
    shutil.copytree(ids, folder)
    del manifest["shards"][2:]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    for path in folder.glob("*-0000[34]-of-*"):
        path.unlink()
    (folder / ".unfinished-0").mkdir()
    with pytest.raises(ValueError, match=r"ids holds 2 of 5 shards. Repeat `prepare`"):
        prepared_dataset(folder)
    kept = (folder / "train-23-00001-of-00005.tfrecord").stat().st_mtime_ns
    write()
    assert contents(folder) == whole
    assert (folder / "train-23-00001-of-00005.tfrecord").stat().st_mtime_ns == kept


@pytest.mark.slow
def test_duplicates_of_shards_before_an_interruption_are_left_out(write, tmp_path):
    path = tmp_path / "a"
    path.write_text("".join(f"ba {i % 7}\n" for i in range(35)))
    folder, manifest = write("ids", path, path)
    assert sum(sum(shard["pairs"]) for shard in manifest["shards"]) == 7
    whole = contents(folder)
    manifest["shards"] = manifest["shards"][:1]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    write("ids", path, path)
    assert contents(folder) == whole


@pytest.mark.quick("options0")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": 101, "buckets": [101]}, "`buckets` was .*23, 41, 97.* is .101"),
        ({"num_shards": 3}, "`num_shards` was 5 and is 3"),
        ({"keep_duplicates": True}, "`keep_duplicates` was False and is True"),
    ],
)
def test_ids_of_other_settings_are_refused(write, ids, tmp_path, options, message):
    shutil.copytree(ids, tmp_path / "ids")
    before = contents(tmp_path / "ids")
    with pytest.raises(
        ValueError, match=rf"ids holds other ids: {message}.*Choose a new"
    ):
        write(**options)
    assert contents(tmp_path / "ids") == before


@pytest.mark.slow
def test_ids_of_other_text_and_tokenizers_are_refused(write, ids, corpus, tmp_path):
    shutil.copytree(ids, tmp_path / "ids")
    with pytest.raises(
        ValueError, match=r"`text` was crc32:\w+ and is crc32:\w+. Choose"
    ):
        write("ids", corpus[1], corpus[0])
    other = SubwordTokenizer.train(corpus[0], vocabulary_size=97)
    with pytest.raises(ValueError, match=r"`tokenizers` was"):
        prepare(*corpus, other, other, tmp_path / "ids", **SIZES)


def test_faults_are_found_before_anything_is_written(write, corpus, tmp_path):
    shorter = tmp_path / "shorter"
    shorter.write_bytes(b"".join(corpus[1].read_bytes().splitlines(True)[:-1]))
    with pytest.raises(ValueError, match=r"train\.src:229 has no counterpart"):
        write(targets=shorter)
    with pytest.raises(FileNotFoundError, match="nothing does not exist"):
        write(targets=tmp_path / "nothing")
    assert not (tmp_path / "ids").exists()
    with pytest.raises(
        ValueError, match="holds something other than ids. Choose a new"
    ):
        write(".")
    with pytest.raises(ValueError, match="All sentence pairs are left out: .*=3, or"):
        write(max_length=3, buckets=[3])
    with pytest.raises(
        FileNotFoundError, match=r"holds no ids: .* that `prepare` wrote"
    ):
        prepared_dataset(tmp_path / "nothing")


def test_a_file_that_was_not_copied_whole_is_named(ids, tmp_path):
    shutil.copytree(ids, tmp_path / "ids")
    file = tmp_path / "ids" / "train-41-00003-of-00005.tfrecord"
    size = file.stat().st_size
    for found in (size - 7, 0):
        with open(file, "ab") as opened:
            opened.truncate(found)
        with pytest.raises(
            ValueError, match=f"{file} has {found} bytes and must.*{size}"
        ):
            prepared_dataset(tmp_path / "ids")
    file.unlink()
    with pytest.raises(ValueError, match=f"{file} has 0 bytes"):
        prepared_dataset(tmp_path / "ids")


# Workers


@pytest.mark.quick("2")
@pytest.mark.parametrize("num_shards", [2, 3])
def test_workers_read_every_pair_once_in_equally_many_steps(ids, read, num_shards):
    epochs = [
        flat(prepared_dataset(ids, 997, 11, 0, num_shards, i))
        for i in range(num_shards)
    ]
    found = sorted(row for epoch in epochs for row in rows(epoch))
    assert found == rows(read[1])
    shapes = [[np.shape(batch[2]) for batch in epoch] for epoch in epochs]
    assert all(of_worker == shapes[0] for of_worker in shapes)
    assert set(shapes[0]) == {(997 // num_shards // n, n) for n in SIZES["buckets"]}
    again = prepared_dataset(ids, 997, 11, 0, num_shards, num_shards - 1)
    assert again.cardinality() == len(epochs[-1])
    assert flat(again) == epochs[-1]


@pytest.mark.parametrize(("num_shards", "index"), [(6, 0), (2, 2), (2, -1)])
def test_there_are_no_more_workers_than_shards(ids, num_shards, index):
    with pytest.raises(ValueError, match="which may be at most the 5 shards of .*ids"):
        prepared_dataset(ids, 997, num_shards=num_shards, shard_index=index)


def test_the_batch_of_a_worker_holds_the_longest_sentence(ids):
    with pytest.raises(ValueError, match="`tokens_per_batch` must be at least"):
        prepared_dataset(ids, 193, num_shards=2)
