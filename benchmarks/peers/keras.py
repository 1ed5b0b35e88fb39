"""Training a Transformer made of Keras's own layers, as TensorFlow's tutorial does.

Not equal: attention weights are dropped, rather than the outputs of attention.
Variants: `jit` (XLA) and none.
"""

import keras
import numpy as np
from keras import layers, ops
from peers.turns import limit_tensorflow_threads, take_turns
from peers.workloads import DROPOUT, LABEL_SMOOTHING, LEARNING_RATE


def build(workload):
    size = workload.size
    embedding = layers.ReversibleEmbedding(size.vocabulary_size, size.hidden_dim)

    def embed(ids):
        scaled = embedding(ids) * size.hidden_dim**0.5
        positions = sinusoids(ids.shape[1], size.hidden_dim)
        return layers.Dropout(DROPOUT)(scaled + positions)

    def attend(query, value, causal=False):
        attention = layers.MultiHeadAttention(
            size.num_heads, size.hidden_dim // size.num_heads, dropout=DROPOUT
        )
        outputs = attention(query, value, use_causal_mask=causal)
        return layers.LayerNormalization()(query + outputs)

    def feed_forward(states):
        outputs = layers.Dense(size.intermediate_dim, "relu")(states)
        outputs = layers.Dropout(DROPOUT)(layers.Dense(size.hidden_dim)(outputs))
        return layers.LayerNormalization()(states + outputs)

    source = keras.Input((workload.source_length,), dtype="int32")
    target = keras.Input((workload.target_length,), dtype="int32")
    encoded, states = embed(source), embed(target)
    for _ in range(size.num_layers):
        encoded = feed_forward(attend(encoded, encoded))
    for _ in range(size.num_layers):
        states = attend(states, states, causal=True)
        states = feed_forward(attend(states, encoded))
    return keras.Model([source, target], embedding(states, reverse=True))


def sinusoids(length, dim):
    rates = 10000.0 ** -np.linspace(0, 1, dim // 2, endpoint=False)
    angles = np.arange(length)[:, None] * rates
    return np.concatenate([np.sin(angles), np.cos(angles)], -1).astype("float32")


def smoothed_crossentropy(labels, logits):
    labels = ops.one_hot(labels, logits.shape[-1])
    return keras.losses.categorical_crossentropy(
        labels, logits, from_logits=True, label_smoothing=LABEL_SMOOTHING
    )


def prepare(workload, variant):
    limit_tensorflow_threads()
    keras.utils.set_random_seed(0)
    model = build(workload)
    adam = keras.optimizers.Adam(LEARNING_RATE)
    model.compile(adam, smoothed_crossentropy, jit_compile=variant == "jit")
    source, target = workload.random_ids()
    inputs = [source, target[:, :-1]]
    return lambda: model.train_on_batch(inputs, target[:, 1:])


if __name__ == "__main__":
    take_turns(prepare, ["tensorflow", "keras"])
