"""This library's models for the six workloads of the peers' harness.

`run.py` runs this file in the folder of the harness. Variants: `graph` and `jit` are
`model.compile(jit_compile=False | True)`; `slices` trains each batch in slices, one per
thread (`batch_slices`), with one thread per operation; `bfloat16` is `graph` with the
policy `mixed_bfloat16`; `export` and `export-jit` decode with a search in a SavedModel
instead of `model.generate`.
"""

import os
import sys
import tempfile

sys.path.insert(0, os.getcwd())  # where the harness is

import common  # noqa: I001  first: it sets threads before TensorFlow starts
import keras_fit

import keras
import numpy as np
import tensorflow as tf

import keras_transformer as kt
from keras_transformer.serving.saved_model import compile_search


def build(w, variant):
    m = w.model
    return kt.models.Transformer(
        m.vocab,
        num_layers=m.layers,
        hidden_dim=m.dim,
        num_heads=m.heads,
        intermediate_dim=m.ff,
        dropout=m.dropout,
        dtype="mixed_bfloat16" if variant == "bfloat16" else "float32",
    )


def build_for_training(w, variant):
    if variant == "slices":
        tf.config.threading.set_intra_op_parallelism_threads(1)
    model = build(w, variant)
    model.compile(
        kt.training.Adam(common.LEARNING_RATE),
        kt.training.TokenCrossentropy(common.SMOOTHING),
        jit_compile=variant == "jit",
        batch_slices=common.THREADS if variant == "slices" else 1,
    )
    return model


def train(w, variant, steps):
    keras.utils.set_random_seed(0)
    model = build_for_training(w, variant)
    source, target = common.random_tokens(w, common.WARMUP + steps)
    timer = keras_fit.StepTimer(steps)
    inputs = {"source_ids": source, "target_ids": target[:, :-1]}
    model.fit(inputs, target[:, 1:], batch_size=w.batch, verbose=0, callbacks=[timer])
    return timer.seconds, keras_fit.note(model)


def decode(w, variant, steps):
    model = build(w, variant)
    source, _ = common.random_tokens(w)
    never_end = [kt.decoding.BannedIds([model.end_id])]
    search = (
        kt.decoding.BeamSearch(w.beam, processors=never_end)
        if w.beam > 1
        else kt.decoding.GreedySearch(never_end)
    )
    model.compile(jit_compile=variant == "jit")
    settings = {"search": search, "max_length": w.tgt}
    find = model.generate
    if variant.startswith("export"):
        settings = {}
        find = exported(model, search, w.tgt, jit_compile=variant == "export-jit")

    def call():
        ids = np.asarray(find(source, **settings).ids)
        assert ids.shape[-1] == w.tgt
        assert np.all(ids != model.pad_id)

    return common.time_calls(call, steps), keras_fit.note(model)


def exported(model, search, max_length, jit_compile):
    """Returns the search, saved as a SavedModel and loaded again."""

    def find(ids):
        return search(model, ids, max_length)

    if jit_compile:  # as `translator.export` does
        find = compile_search(find, search.num_slots)
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
    variants = ("graph", "jit", "slices", "bfloat16", "export", "export-jit")
    common.main("keras_transformer", train, decode, variants)
