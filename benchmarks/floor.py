"""What a training step costs at least: its matrix products and its optimizer alone.

    python benchmarks/floor.py HARNESS --workloads T1,T2

HARNESS is the folder with the peers' scripts, as for `run.py`. Times, in turn in one
process, the step of `ours.py`; the products of its projections, feed-forward networks
and logits with their two gradients each, by TensorFlow's own `MatMul` at the same
shapes, one after the other; and one fused Adam update of as many weights. The small
products of attention, normalisation, softmax, dropout and the loss count as nothing.
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
    print("| work | step ms | products | Adam | both of the step |")
    print("| --- | --: | --: | --: | --: |")
    for name in parser.parse_args().workloads.split(","):
        w = common.WORKLOADS[name]
        step = 1000 * statistics.median(ours.train(w, "graph", 8)[0])
        of_products = sum(
            product_ms(rows, inputs, outputs) * count
            for rows, inputs, outputs, count in products(w)
        )
        of_adam = adam_ms(sum(w.weights))
        share = f"{(of_products + of_adam) / step:.0%}"
        print(f"| {name} | {step:.0f} | {of_products:.0f} | {of_adam:.0f} | {share} |")


if __name__ == "__main__":
    main()
