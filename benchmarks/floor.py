"""Lower bound on the time of a training step: its matrix products, loss and optimizer.

    python benchmarks/floor.py --workloads T1,T2

One process times, one after the other:
- the whole training step of `ours.py`;
- the matrix products of its projections, feed-forward networks and logits, each with
  its two gradients, by TensorFlow's `MatMul` at the same shapes;
- the matrix products of attention with their gradients;
- one pass over the logits for loss and gradient, by TensorFlow's fused kernel;
- one fused Adam update of the same number of weights.

Normalisation, the softmax of attention, dropout, activations and sums are not counted.
"""

import argparse
import statistics
import time

import ours
import tensorflow as tf
from peers.workloads import TRAINING


def products(w):
    """Yields `(rows, inputs, outputs, count)` of each matrix product of a step."""
    size, dim, layers = w.size, w.size.hidden_dim, w.size.num_layers
    source, target = w.batch_size * w.source_length, w.batch_size * w.target_length
    for rows in (source, target):
        yield rows, dim, 3 * dim, layers  # queries, keys and values
        yield rows, dim, dim, layers
        yield rows, dim, size.intermediate_dim, layers
        yield rows, size.intermediate_dim, dim, layers
    yield source, dim, 2 * dim, layers  # keys and values of the encoder outputs
    yield target, dim, dim, 2 * layers
    yield target, dim, size.vocabulary_size, 1


def fastest_ms(function, *inputs, calls=7):
    """Returns the minimum milliseconds of several calls, after one to warm up."""
    seconds = []
    for _ in range(calls + 1):
        start = time.perf_counter()
        function(*inputs)
        seconds.append(time.perf_counter() - start)
    return 1000 * min(seconds[1:])


def median_ms(function, calls=8):
    seconds = []
    for _ in range(calls + 2):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return 1000 * statistics.median(seconds[2:])


def product_ms(rows, inputs, outputs):
    """Returns the time of a matrix product and its two gradients."""
    x, kernel, gradient = map(
        tf.random.normal, ((rows, inputs), (inputs, outputs), (rows, outputs))
    )
    return (
        fastest_ms(tf.matmul, x, kernel)
        + fastest_ms(lambda a, b: tf.matmul(a, b, transpose_b=True), gradient, kernel)
        + fastest_ms(lambda a, b: tf.matmul(a, b, transpose_a=True), x, gradient)
    )


def attention_ms(w):
    """Returns the time of the two matrix products of attention and their gradients."""
    size, total = w.size, 0
    shape = w.batch_size, size.num_heads
    dim = size.hidden_dim // size.num_heads
    source, target = w.source_length, w.target_length
    for queries, keys in ((source, source), (target, target), (target, source)):
        query = tf.random.normal((*shape, queries, dim))
        key = tf.random.normal((*shape, keys, dim))
        scores = tf.random.normal((*shape, queries, keys))
        one_layer = (
            fastest_ms(lambda a, b: tf.matmul(a, b, transpose_b=True), query, key)
            + fastest_ms(tf.matmul, scores, key)
            + fastest_ms(lambda a, b: tf.matmul(a, b, transpose_a=True), scores, query)
        )
        # Each of the two products, with its two gradients, takes these three.
        total += 2 * one_layer * size.num_layers
    return total


def loss_ms(w):
    rows = w.batch_size * w.target_length
    logits = tf.random.normal((rows, w.size.vocabulary_size))
    labels = tf.zeros(rows, tf.int32)
    return fastest_ms(
        lambda: tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits(
            features=logits, labels=labels
        )
    )


def adam_ms(weights):
    variable, mean, square = (tf.Variable(tf.zeros(weights)) for _ in range(3))
    gradient = tf.ones(weights)

    def update():
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=mean.handle,
            v=square.handle,
            beta1_power=0.9,
            beta2_power=0.999,
            lr=1e-4,
            beta1=0.9,
            beta2=0.999,
            epsilon=1e-7,
            grad=gradient,
        )

    return fastest_ms(update)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workloads", default="T1,T2")
    print("| work | step ms | products | attention | loss | Adam | sum / step |")
    print("| --- | --: | --: | --: | --: | --: | --: |")
    for name in parser.parse_args().workloads.split(","):
        w = TRAINING[name]
        step = median_ms(ours.prepare(w, "graph"))
        all_products = sum(
            product_ms(rows, inputs, outputs) * count
            for rows, inputs, outputs, count in products(w)
        )
        weights = sum(a * b * count for _, a, b, count in products(w))
        times = [all_products, attention_ms(w), loss_ms(w), adam_ms(weights)]
        row = " | ".join(f"{each:.0f}" for each in (step, *times))
        print(f"| {name} | {row} | {sum(times) / step:.0%} |")


if __name__ == "__main__":
    main()
