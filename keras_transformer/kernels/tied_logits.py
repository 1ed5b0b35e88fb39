"""Logits from an embedding table, `matmul(states, transpose(table))`."""

from keras import ops

from keras_transformer.kernels.graphs import shape_of, with_gradient


def tied_logits(states, table):
    """Computes `states table^T`, with a gradient that never transposes the table.

    The gradient of the table, as a backend derives it, would be computed transposed
    and then copied. Shapes: `(..., dim)` times `(size, dim)` is `(..., size)`.
    """
    size, dim = table.shape

    def product(rows, table):
        # As a batch of one, for which TensorFlow has the faster kernel.
        logits = ops.matmul(rows[None], ops.swapaxes(table[None], -1, -2))

        def gradient(upstream):
            of_table = ops.matmul(ops.transpose(upstream), rows)
            return ops.matmul(upstream, table), of_table

        return ops.reshape(logits, (-1, size)), gradient

    logits = with_gradient(product, ops.reshape(states, (-1, dim)), table)
    return ops.reshape(logits, (*shape_of(states)[:-1], size))


def transposed_once(table):
    """Returns a function that computes `states table^T`, with the table copied once.

    The product of a few rows with a table that is transposed on the fly is slow.
    """
    size, dim = table.shape
    transposed = ops.transpose(table)

    def logits(states):
        rows = ops.matmul(ops.reshape(states, (-1, dim)), transposed)
        return ops.reshape(rows, (*shape_of(states)[:-1], size))

    return logits
