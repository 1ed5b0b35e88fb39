"""Lower bound on the time of a training step: its matrix products, loss and optimizer.

    python benchmarks/floor.py HARNESS --workloads T1,T2

HARNESS is the folder with the peers' scripts, as for `run.py`. One process times, one
after the other:
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
import sys
import time

sys.path.insert(0, sys.argv[1])

import common  # noqa: I001  first: it sets threads before TensorFlow starts
import ours

import tensorflow as tf


def products(w):
    """Yields `(rows, inputs, outputs, count)` of each matrix product of a step."""
    m, source, target = w.model, w.batch * w.src, w.batch * w.tgt
    for rows in (source, target):
        yield rows, m.dim, 3 * m.dim, m.layers  # queries, keys and values
        yield rows, m.dim, m.dim, m.layers
        yield rows, m.dim, m.ff, m.layers
        yield rows, m.ff, m.dim, m.layers
    yield source, m.dim, 2 * m.dim, m.layers  # keys and values of the encoder outputs
    yield target, m.dim, m.dim, 2 * m.layers
    yield target, m.dim, m.vocab, 1


def fastest_ms(function, *inputs, calls=7):
    """Returns the minimum milliseconds of several calls, after one to warm up."""
    seconds = []
    for _ in range(calls + 1):
        start = time.perf_counter()
        function(*inputs)
        seconds.append(time.perf_counter() - start)
    return 1000 * min(seconds[1:])


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
    m, total = w.model, 0
    shape = w.batch, m.heads
    dim = m.dim // m.heads
    for queries, keys in ((w.src, w.src), (w.tgt, w.tgt), (w.tgt, w.src)):
        query = tf.random.normal((*shape, queries, dim))
        key = tf.random.normal((*shape, keys, dim))
        scores = tf.random.normal((*shape, queries, keys))
        one_layer = (
            fastest_ms(lambda a, b: tf.matmul(a, b, transpose_b=True), query, key)
            + fastest_ms(tf.matmul, scores, key)
            + fastest_ms(lambda a, b: tf.matmul(a, b, transpose_a=True), scores, query)
        )
        # Each of the two products, with its two gradients, takes these three.
        total += 2 * one_layer * m.layers
    return total


def loss_ms(w):
    logits = tf.random.normal((w.batch * w.tgt, w.model.vocab))
    labels = tf.zeros(w.batch * w.tgt, tf.int32)
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
    parser.add_argument("harness")
    parser.add_argument("--workloads", default="T1,T2")
    print("| work | step ms | products | attention | loss | Adam | sum / step |")
    print("| --- | --: | --: | --: | --: | --: | --: |")
    for name in parser.parse_args().workloads.split(","):
        w = common.WORKLOADS[name]
        step = 1000 * statistics.median(ours.train(w, "graph", 8)[0])
        all_products = sum(
            product_ms(rows, inputs, outputs) * count
            for rows, inputs, outputs, count in products(w)
        )
        times = [all_products, attention_ms(w), loss_ms(w), adam_ms(sum(w.weights))]
        row = " | ".join(f"{each:.0f}" for each in (step, *times))
        print(f"| {name} | {row} | {sum(times) / step:.0%} |")


if __name__ == "__main__":
    main()
