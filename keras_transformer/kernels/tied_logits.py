"""Logits from an embedding table, with a gradient that transposes no table."""

from keras import ops


def tied_logits(states, table):
    """Multiplies every state, `(..., dim)`, with every vector, `(size, dim)`.

    The gradient is written out: that of the table, as a backend derives it, would
    lie across and be turned, a copy of the size of the table.
    """
    size, dim = table.shape

    @ops.custom_gradient
    def match_rows(rows, table):
        # As a batch of one, for which TensorFlow has the quicker kernel.
        products = ops.matmul(rows[None], ops.swapaxes(table[None], -1, -2))

        def gradient(*args, upstream=None):
            upstream = args[0] if upstream is None else upstream
            of_table = ops.matmul(ops.transpose(upstream), rows)
            return ops.matmul(upstream, table), of_table

        return ops.reshape(products, (-1, size)), gradient

    products = match_rows(ops.reshape(states, (-1, dim)), table)
    return ops.reshape(products, (*ops.shape(states)[:-1], size))
