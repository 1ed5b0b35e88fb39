"""What a training step costs at least: its products, loss and optimizer alone.

    python benchmarks/floor.py HARNESS --workloads T1,T2

HARNESS is the folder with the peers' scripts, as for `run.py`. Times, in turn in one
process, the step of `ours.py`; the products of its projections, feed-forward networks
and logits with their two gradients each, by TensorFlow's own `MatMul` at the same
shapes, one after the other; the products of attention with their gradients; one pass
over the logits for loss and gradient, by TensorFlow's fused kernel; and one fused Adam
update of as many weights. Normalisation, the softmax of attention, dropout, activations
and sums count as nothing.
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
    """Yields `(rows, inputs, outputs, how often)` of every product of a step."""
    m, source, target = w.model, w.batch * w.src, w.batch * w.tgt
    for rows in (source, target):
        yield rows, m.dim, 3 * m.dim, m.layers  # queries, keys and values
        yield rows, m.dim, m.dim, m.layers
        yield rows, m.dim, m.ff, m.layers
        yield rows, m.ff, m.dim, m.layers
    yield source, m.dim, 2 * m.dim, m.layers  # keys and values of the memory
    yield target, m.dim, m.dim, 2 * m.layers
    yield target, m.dim, m.vocab, 1


def least_ms(function, *inputs, calls=7):
    """Returns the least milliseconds of a call, of several after one to warm up."""
    seconds = []
    for _ in range(calls + 1):
        start = time.perf_counter()
        function(*inputs)
        seconds.append(time.perf_counter() - start)
    return 1000 * min(seconds[1:])


def product_ms(rows, inputs, outputs):
    x, kernel, gradient = map(
        tf.random.normal, ((rows, inputs), (inputs, outputs), (rows, outputs))
    )
    return (
        least_ms(tf.matmul, x, kernel)
        + least_ms(lambda *pair: tf.matmul(*pair, transpose_b=True), gradient, kernel)
        + least_ms(lambda *pair: tf.matmul(*pair, transpose_a=True), x, gradient)
    )


def attention_ms(w):
    """The products of queries and keys, of scores and values, and their gradients."""
    m, total = w.model, 0
    shape = w.batch, m.heads
    dim = m.dim // m.heads
    for queries, keys in ((w.src, w.src), (w.tgt, w.tgt), (w.tgt, w.src)):
        query = tf.random.normal((*shape, queries, dim))
        key = tf.random.normal((*shape, keys, dim))
        scores = tf.random.normal((*shape, queries, keys))
        once = (
            least_ms(lambda *pair: tf.matmul(*pair, transpose_b=True), query, key)
            + least_ms(tf.matmul, scores, key)
            + least_ms(lambda *pair: tf.matmul(*pair, transpose_a=True), scores, query)
        )
        # Either product and its two gradients are these three.
        total += 2 * once * m.layers
    return total


def loss_ms(w):
    logits = tf.random.normal((w.batch * w.tgt, w.model.vocab))
    labels = tf.zeros(w.batch * w.tgt, tf.int32)
    return least_ms(
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

    return least_ms(update)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("harness")
    parser.add_argument("--workloads", default="T1,T2")
    print("| work | step ms | products | of attention | loss | Adam | of the step |")
    print("| --- | --: | --: | --: | --: | --: | --: |")
    for name in parser.parse_args().workloads.split(","):
        w = common.WORKLOADS[name]
        step = 1000 * statistics.median(ours.train(w, "graph", 8)[0])
        of_products = sum(
            product_ms(rows, inputs, outputs) * count
            for rows, inputs, outputs, count in products(w)
        )
        parts = [of_products, attention_ms(w), loss_ms(w), adam_ms(sum(w.weights))]
        row = " | ".join(f"{part:.0f}" for part in (step, *parts))
        print(f"| {name} | {row} | {sum(parts) / step:.0%} |")


if __name__ == "__main__":
    main()
