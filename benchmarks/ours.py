"""This library on the workloads of `peers/workloads.py`.

Run in `benchmarks/`: `echo 5 | python -m ours D1 --variant jit`. Variants: `graph` and
`jit` are `compile(jit_compile=False | True)`. `bfloat16` and `bfloat16-jit` have the
policy `mixed_bfloat16`; `bfloat16-jit-fused` attends by Keras's fused kernel, to
however few positions. `export` and `export-jit` decode with a search in a SavedModel
instead of `model.generate`.

The backend is that of `KERAS_BACKEND`; exports need TensorFlow.
"""

import tempfile

import keras
import numpy as np
from peers.turns import limit_tensorflow_threads, take_turns
from peers.workloads import DROPOUT, LABEL_SMOOTHING, LEARNING_RATE, THREADS

import keras_transformer as kt
from keras_transformer.kernels import attention
from keras_transformer.version import DISTRIBUTION

BACKEND = keras.backend.backend()


def build(workload, dtype="float32"):
    """Returns the model; the weights of a size are always the same."""
    keras.utils.set_random_seed(0)
    size = workload.size
    return kt.models.Transformer(
        size.vocabulary_size,
        num_layers=size.num_layers,
        hidden_dim=size.hidden_dim,
        num_heads=size.num_heads,
        intermediate_dim=size.intermediate_dim,
        dropout=DROPOUT,
        dtype=dtype,
    )


def prepare(workload, variant):
    if BACKEND == "tensorflow":
        limit_tensorflow_threads(intra=THREADS)
    if variant.endswith("fused"):
        attention.MAX_UNFUSED_LENGTH = 0
    is_mixed = variant.startswith("bfloat16")
    model = build(workload, "mixed_bfloat16" if is_mixed else "float32")
    return (prepare_training if workload.trains else prepare_decoding)(
        workload, variant, model
    )


def prepare_training(workload, variant, model):
    model.compile(
        kt.training.Adam(LEARNING_RATE),
        kt.training.TokenCrossentropy(LABEL_SMOOTHING),
        jit_compile="jit" in variant,
    )
    source, target = workload.random_ids()
    inputs = {"source_ids": source, "target_ids": target[:, :-1]}
    if workload.steps == 1:
        return lambda: model.train_on_batch(inputs, target[:, 1:])
    settings = {"batch_size": workload.batch_size, "shuffle": False, "verbose": 0}
    return lambda: model.fit(inputs, target[:, 1:], **settings)


def prepare_decoding(workload, variant, model):
    source, _ = workload.random_ids()
    never_end = [kt.decoding.BannedIds([model.end_id])]
    search = (
        kt.decoding.BeamSearch(workload.beam_width, processors=never_end)
        if workload.beam_width > 1
        else kt.decoding.GreedySearch(never_end)
    )
    model.compile(jit_compile="jit" in variant)
    max_length, batch_size = workload.target_length, workload.batch_size
    settings = {"search": search, "max_length": max_length, "batch_size": batch_size}
    find = model.generate
    if variant.startswith("export"):
        settings = {}
        find = exported(model, search, max_length, jit_compile=variant == "export-jit")

    def work():
        ids = np.asarray(find(source, **settings).ids)
        assert ids.shape[-1] == max_length
        assert np.all(ids != model.pad_id)

    return work


def exported(model, search, max_length, jit_compile):
    """Returns the search, saved as a SavedModel and loaded again."""
    import tensorflow as tf

    def find(ids):
        return search(model, ids, max_length)

    if jit_compile:  # as `translator.export` does
        find = tf.function(find, autograph=False, jit_compile=True)
    module = tf.Module()
    module.weights = [weight.value for weight in model.weights]
    specs = [tf.TensorSpec([None, None], tf.int32)]
    module.find = tf.function(
        lambda ids: kt.decoding.Hypotheses(*find(ids)), specs, autograph=False
    )
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder)
        loaded = tf.saved_model.load(folder)
    # The lambda keeps `loaded`, and with it the variables, alive.
    return lambda ids: loaded.find(ids)


if __name__ == "__main__":
    take_turns(prepare, [BACKEND, "keras", DISTRIBUTION])
