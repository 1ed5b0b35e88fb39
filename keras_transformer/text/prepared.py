"""Parallel text as ids: tokenized once, then read in every epoch.

A folder contains `manifest.json` and shards, TFRecord files of `tf.train.Example`. A
shard is a part of the text, in one file for each batch length:
`train-24-00003-of-00016.tfrecord` has the pairs that are padded to 24.
"""

import contextlib
import itertools
import json
import os
import zlib
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.checks import check_positive_integers
from keras_transformer.storage import (
    is_unfinished,
    remove_unfinished,
    replace_files,
    write_text,
)
from keras_transformer.text.buckets import bucket_lengths, check_buckets
from keras_transformer.text.encoding import add_start_and_end, beginning
from keras_transformer.text.epochs import numbered_epochs, shuffled
from keras_transformer.text.pipeline import in_order
from keras_transformer.text.tokenizer import Tokenizer, check_tokenizer
from keras_transformer.text_files import (
    Files,
    checksum,
    chunks_of,
    paired_files,
    read_pairs,
)

MANIFEST = "manifest.json"
_PAIRS_PER_CHUNK = 1024  # tokenized together
_PAIRS_PER_SHARD = 1 << 20  # at most, unless more are asked for
_SHUFFLE_BUFFER_PAIRS = 1 << 16  # of each length
_OPEN_FILES = 16  # of each length
_FEATURES = dict.fromkeys(
    ("source_ids", "target_ids"),
    tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64),
)


def prepare(
    source_files: Files,
    target_files: Files,
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    folder: str | os.PathLike,
    max_length: int = 64,
    buckets: Sequence[int] | None = None,
    num_shards: int = 16,
    max_length_ratio: float | None = None,
    keep_duplicates: bool = False,
    verbose: int = 0,
) -> dict[str, Any]:
    """Writes parallel text as ids, for `prepared_dataset`.

    Tokenizers run on all cores; one thread reads the text. A shard appears once it is
    completely on disk. If `prepare` is interrupted, run it again: it continues after
    the last shard, and writes the same files as without the interruption.

    Memory does not grow with the text, except for 8 to 20 bytes per pair to find
    duplicates, 2 GB for 100 million; `keep_duplicates` avoids this.

    Args:
        source_files: As in `parallel_dataset`. A pair of files listed several times is
            written once, and repeated in each epoch.
        target_files: The same number of files, matching the sources line by line.
        source_tokenizer: Tokenizer of the source language.
        target_tokenizer: Tokenizer of the target language; may be the same.
        folder: A new folder, or one to continue.
        max_length: As in `parallel_dataset`.
        buckets: As in `parallel_dataset`.
        num_shards: Number of shards, at least the number of workers. Large texts get
            more: a shard has at most a million pairs. Files listed more often than
            others get this number of separate shards.
        max_length_ratio: Maximum ratio between the numbers of subwords of a pair's two
            sides, such as 3; pairs above it are skipped.
        keep_duplicates: Whether to keep pairs equal to an earlier one.
        verbose: 1 shows a progress bar, 0 is silent.

    Returns:
        The manifest: `settings`, and `shards`, each with the number of `pairs` in each
        bucket and the numbers of skipped pairs: `duplicates`, `long` and `unbalanced`.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file has an error (the message names file and line), if no pair
            is left, or if the folder holds the ids of other text or settings.
    """
    buckets = list(buckets or bucket_lengths(max_length))
    check_buckets(buckets, max_length, max_length)
    check_positive_integers(num_shards=num_shards)
    tokenizers = source_tokenizer, target_tokenizer
    check_tokenizer("source_tokenizer", source_tokenizer)
    check_tokenizer("target_tokenizer", target_tokenizer)
    weights = Counter(paired_files(source_files, target_files))
    folder = Path(folder)
    special = ("pad_id", "start_id", "end_id")
    settings = {
        "text": checksum(itertools.chain.from_iterable(weights)),
        "files": [
            {"columns": [x.column for x in pair], "tags": [x.tag for x in pair]}
            | {"weight": weight}
            for pair, weight in weights.items()
        ],
        "tokenizers": [_digest(tokenizer) for tokenizer in tokenizers],
        "special_ids": [[int(getattr(t, x)) for x in special] for t in tokenizers],
        "buckets": buckets,
        "num_shards": num_shards,
        "max_length_ratio": max_length_ratio,
        "keep_duplicates": keep_duplicates,
    }
    path = folder / MANIFEST
    files_by_weight: dict[int, list] = {}
    for pair, weight in weights.items():
        files_by_weight.setdefault(weight, []).append(pair)
    if path.exists():
        manifest = json.loads(path.read_text("utf-8"))
        for name, value in settings.items():
            if (before := manifest["settings"].get(name)) != value:
                raise ValueError(
                    f"{folder} holds other ids: `{name}` was {before} and is {value}. "
                    "Choose a new folder, or keep to the text and the settings that it "
                    "began with."
                )
    else:
        if folder.exists() and not all(map(is_unfinished, folder.iterdir())):
            raise ValueError(
                f"{folder} holds something other than ids. Choose a new folder."
            )
        sizes = []
        for weight, files in files_by_weight.items():
            count = sum(1 for _ in read_pairs(files))
            num_parts = max(num_shards, -(-count // _PAIRS_PER_SHARD))
            ends = [count * i // num_parts for i in range(num_parts + 1)]
            sizes += [(weight, b - a) for a, b in itertools.pairwise(ends)]
        manifest = {"settings": settings, "sizes": sizes, "shards": []}
        _write(manifest, path)
    remove_unfinished(folder)
    if len(manifest["shards"]) < len(manifest["sizes"]):
        encode = _encoder(tokenizers, max_length)
        _write_shards(manifest, path, files_by_weight, encode, verbose)
    if not sum(sum(shard["pairs"]) for shard in manifest["shards"]):
        raise ValueError(
            f"All sentence pairs are left out: they are longer than "
            f"max_length={max_length}, or differ in length by more than "
            f"max_length_ratio={max_length_ratio}. Raise these."
        )
    return manifest


def _write_shards(manifest, path, files_by_weight, encode, verbose):
    """Writes the shards that the manifest lacks, and each into the manifest."""
    settings = manifest["settings"]
    pairs = {weight: read_pairs(files) for weight, files in files_by_weight.items()}
    seen: list | None = None if settings["keep_duplicates"] else []
    sizes = manifest["sizes"]
    bar = keras.utils.Progbar(len(sizes), verbose=verbose, unit_name="shard")
    with ThreadPoolExecutor() as pool:
        for number, (weight, size) in enumerate(sizes):
            chunks = chunks_of(itertools.islice(pairs[weight], size), _PAIRS_PER_CHUNK)
            if number < len(manifest["shards"]):  # written before
                for chunk in chunks:
                    if seen is not None:
                        _add(_hashes(*_sides(chunk)).numpy(), seen)
                continue
            names = [_name(x, number, manifest) for x in settings["buckets"]]
            encoded = in_order(pool, lambda chunk: encode(*_sides(chunk)), chunks)
            written = _write_shard(path.parent, names, settings, encoded, seen)
            manifest["shards"].append({"weight": weight, **written})
            _write(manifest, path)
            bar.update(number + 1)


def _write_shard(folder, names, settings, encoded, seen):
    """Writes a file for each bucket; counts the pairs in each, and pairs left out."""
    buckets, max_length_ratio = settings["buckets"], settings["max_length_ratio"]
    counts = np.zeros(len(buckets), np.int64)
    omitted = {"duplicates": 0, "long": 0, "unbalanced": 0}
    with replace_files(folder) as unfinished, contextlib.ExitStack() as stack:
        paths = [str(unfinished / name) for name in names]
        writers = [stack.enter_context(tf.io.TFRecordWriter(x)) for x in paths]
        for chunk in encoded:
            hashes, lengths, examples = (tensor.numpy() for tensor in chunk)
            longest, shortest = lengths.max(axis=1), lengths.min(axis=1)
            is_new = np.ones(len(hashes), bool) if seen is None else _add(hashes, seen)
            fits = longest <= buckets[-1]
            is_balanced = np.ones(len(hashes), bool)
            if max_length_ratio is not None:  # without the end tokens
                is_balanced = longest - 1 <= max_length_ratio * (shortest - 1)
            omitted["duplicates"] += int((~is_new).sum())
            omitted["long"] += int((is_new & ~fits).sum())
            omitted["unbalanced"] += int((is_new & fits & ~is_balanced).sum())
            kept = (is_new & is_balanced)[fits]
            bucket_of_pair = np.searchsorted(buckets, longest[fits][kept])
            counts += np.bincount(bucket_of_pair, minlength=len(counts))
            for bucket, example in zip(bucket_of_pair, examples[kept], strict=True):
                writers[bucket].write(example)
        for writer in writers:
            writer.flush()
        sizes = [os.path.getsize(path) for path in paths]
    return {"pairs": counts.tolist(), "bytes": sizes, **omitted}


def read_manifest(folder: str | os.PathLike) -> dict[str, Any]:
    """Returns the manifest of a folder that `prepare` has finished, once checked."""
    path = Path(folder, MANIFEST)
    if not path.is_file():
        raise FileNotFoundError(
            f"{folder} holds no ids: there is no {MANIFEST}. Pass a folder that "
            "`prepare` wrote."
        )
    manifest = json.loads(path.read_text("utf-8"))
    done, total = len(manifest["shards"]), len(manifest["sizes"])
    if done < total:
        problem = f"{folder} holds {done} of {total} shards"
        raise ValueError(f"{problem}. Repeat `prepare`, which continues.")
    buckets = manifest["settings"]["buckets"]
    for number, shard in enumerate(manifest["shards"]):
        for length, size in zip(buckets, shard["bytes"], strict=True):
            file = path.with_name(_name(length, number, manifest))
            found = file.stat().st_size if file.is_file() else 0
            if found != size:
                raise ValueError(
                    f"{file} has {found} bytes and must have {size}. Copy it again."
                )
    return manifest


def prepared_dataset(
    folder: str | os.PathLike,
    tokens_per_batch: int = 4096,
    seed: int = 0,
    initial_epoch: int = 0,
    num_shards: int = 1,
    shard_index: int = 0,
    passes: int = 1,
) -> tf.data.Dataset:
    """Reads the output of `prepare` as batches, like `parallel_dataset`.

    Nothing is read beforehand: the manifest has the number of batches. In each epoch,
    shards are read in a new order, pairs are drawn from a buffer of 65,536 for each
    batch length, and batches of different lengths come in random order. All this
    depends only on `seed` and the number of the epoch.

    Each worker may read its own shards and produce its part of every batch. In each
    step, all workers have a batch of the same length, and all have the same number of
    steps. A worker with fewer pairs than another adds rows of padding. A strategy must
    not split such batches again; see `training.Workers.own_batches`.

    Args:
        folder: The folder of `prepare`, on a disk shared by all workers.
        tokens_per_batch: As in `parallel_dataset`, for all workers together.
        seed: As in `parallel_dataset`.
        initial_epoch: As in `parallel_dataset`.
        num_shards: Number of workers.
        shard_index: Number of this worker, from 0.
        passes: How often an epoch repeats each pair, times how often its files were
            listed.

    Returns:
        As in `parallel_dataset`.

    Raises:
        FileNotFoundError: If the folder holds no ids.
        ValueError: If `prepare` has not finished, if a file is missing or truncated, or
            if the sizes contradict each other.
    """
    manifest, folder = read_manifest(folder), Path(folder)
    buckets = manifest["settings"]["buckets"]
    check_positive_integers(num_shards=num_shards, passes=passes)
    check_buckets(buckets, buckets[-1], tokens_per_batch // num_shards)
    shards = manifest["shards"]
    if not 0 <= shard_index < num_shards <= len(shards):
        raise ValueError(
            "`shard_index` must be from 0 to below `num_shards`, which may be at most "
            f"the {len(shards)} shards of {folder}. Received: shard_index="
            f"{shard_index}, num_shards={num_shards}. Prepare more with `num_shards`."
        )
    # (shards, buckets): rows that an epoch reads of each file
    weights = np.array([passes * shard["weight"] for shard in shards])
    num_rows = weights[:, None] * np.array([shard["pairs"] for shard in shards])
    rows_of_workers = [num_rows[i::num_shards].sum(axis=0) for i in range(num_shards)]
    rows_per_batch = tokens_per_batch // num_shards // np.array(buckets)
    num_batches = np.max(-(-np.array(rows_of_workers) // rows_per_batch), axis=0)
    own = range(shard_index, len(shards), num_shards)
    special_ids = manifest["settings"]["special_ids"]

    def read_bucket(bucket, seed):
        length, rows = buckets[bucket], rows_per_batch[bucket]
        files = [
            str(folder / _name(length, number, manifest))
            for number in own
            for _ in range(weights[number] * bool(num_rows[number, bucket]))
        ]
        files = tf.constant(files, tf.string, shape=(len(files),))
        seeds = tf.stack([seed, bucket])
        files = tf.random.experimental.stateless_shuffle(files, seeds)
        examples = tf.data.Dataset.from_tensor_slices(files).interleave(
            tf.data.TFRecordDataset, cycle_length=_OPEN_FILES, block_length=1
        )
        examples = shuffled(examples, _SHUFFLE_BUFFER_PAIRS, seed + bucket)
        # A worker with fewer pairs than others makes batches of padding at the end.
        batches = examples.batch(rows).concatenate(
            tf.data.Dataset.from_tensors(tf.constant([], tf.string)).repeat()
        )
        return batches.map(
            lambda examples: _batch(examples, rows, length, special_ids),
            num_parallel_calls=tf.data.AUTOTUNE,
        )

    def read_batches(seed):
        order = np.repeat(np.arange(len(buckets)), num_batches)
        order = tf.random.experimental.stateless_shuffle(order, tf.stack([seed, -1]))
        return tf.data.Dataset.choose_from_datasets(
            [read_bucket(bucket, seed) for bucket in range(len(buckets))],
            tf.data.Dataset.from_tensor_slices(order),
        )

    count = num_batches.sum()
    return numbered_epochs(read_batches, lambda x: x, count, seed, initial_epoch)


def _batch(examples, num_rows, length, special_ids):
    """Returns serialized examples as a batch, filled up with rows of padding."""
    (source_pad, *_), (target_pad, start, _) = special_ids
    ids = tf.io.parse_example(examples, _FEATURES)
    sources, targets = (tf.cast(ids[name], tf.int32) for name in _FEATURES)
    starts = tf.fill([targets.nrows(), 1], start)
    shifted = tf.concat([starts, targets[:, :-1]], axis=1)
    shape = num_rows, length
    source_ids = sources.to_tensor(source_pad, shape=shape)
    target_ids = shifted.to_tensor(target_pad, shape=shape)
    labels = targets.to_tensor(target_pad, shape=shape)
    return {"source_ids": source_ids, "target_ids": target_ids}, labels


def _write(manifest, path):
    write_text(path, json.dumps(manifest, indent=1) + "\n")


def _name(length, number, manifest):
    return f"train-{length}-{number:05}-of-{len(manifest['sizes']):05}.tfrecord"


def _digest(tokenizer):
    pieces = "\n".join(tokenizer.pieces(range(tokenizer.vocabulary_size)))
    return f"crc32:{zlib.crc32(pieces.encode()):08x}"


def _sides(chunk):
    """Returns the sources and the targets of some pairs."""
    return [pair.source for pair in chunk], [pair.target for pair in chunk]


def _encoder(tokenizers, max_length):
    """Returns a function from texts to hashes, lengths, and examples of short pairs."""
    texts = tf.TensorSpec((None,), tf.string)

    @tf.function(input_signature=[texts, texts])
    def encode(*sides):
        ids = []
        for tokenizer, side in zip(tokenizers, sides, strict=True):
            subwords = tokenizer(beginning(side, max_length + 1)[0])
            ids.append(add_start_and_end(subwords, tokenizer, end=True))
        lengths = tf.stack([side.row_lengths() for side in ids], axis=1)
        fits = tf.reduce_max(lengths, axis=1) <= max_length
        ids = [tf.ragged.boolean_mask(side, fits) for side in ids]
        return _hashes(*sides), lengths, _examples(*ids)

    return encode


def _hashes(sources, targets):
    """Returns hashes of pairs; one of 2,000 texts of 100 million has two equal ones."""
    pairs = tf.strings.join([sources, targets], "\n")
    return tf.strings.to_hash_bucket_fast(pairs, 2**63 - 1)


def _examples(*sides):
    """Returns ragged ids as serialized `tf.train.Example`."""

    def proto(message, sizes, **values):
        names, tensors = list(values), list(values.values())
        return tf.io.encode_proto(sizes, tensors, names, f"tensorflow.{message}")

    ones, entries = tf.ones([sides[0].nrows(), 1], tf.int32), []
    for name, ids in zip(_FEATURES, sides, strict=True):
        sizes = tf.cast(ids.row_lengths(), tf.int32)[:, None]
        values = tf.cast(ids, tf.int64).to_tensor()
        value = proto("Int64List", sizes, value=values)
        value = proto("Feature", ones, int64_list=value[:, None])[:, None]
        key = tf.fill(tf.shape(ones), name)
        both = tf.concat([ones, ones], axis=1)
        entries.append(proto("Features.FeatureEntry", both, key=key, value=value))
    features = proto("Features", 2 * ones, feature=tf.stack(entries, axis=1))
    return proto("Example", ones, features=features[:, None])


def _add(hashes, seen):
    """Adds hashes `(pairs,)` to the hashes seen so far, and returns which are new.

    They are stored as a few sorted arrays of falling sizes; equal sizes are merged.
    """
    is_new = np.zeros(len(hashes), bool)
    is_new[np.unique(hashes, return_index=True)[1]] = True
    for array in seen:
        is_new &= array.take(array.searchsorted(hashes), mode="clip") != hashes
    if is_new.any():
        seen.append(np.sort(hashes[is_new]))
    while len(seen) > 1 and len(seen[-2]) < 4 * len(seen[-1]):
        merged = np.concatenate(seen[-2:])
        merged.sort(kind="stable")  # in place: they may be most of the memory
        seen[-2:] = [merged]
    return is_new
