"""A large batch searched as two halves, side by side.

Where XLA compiles for CPUs, it divides only large operations among the cores, and
most of a decoding step is too small for that. Two searches at once use the cores.
"""

from keras import ops

from keras_transformer.kernels import target

# Hypotheses that grow in a batch that is worth two searches.
MIN_HYPOTHESES = 64


def worth_halving(num_rows, num_slots: int):
    """Tells whether two halves of a batch are found sooner than the batch.

    That was measured for XLA on CPUs: elsewhere it is False.

    Args:
        num_rows: Number of sentences, an integer or a scalar tensor.
        num_slots: Hypotheses that grow side by side for each sentence.

    Returns:
        A boolean, or a scalar boolean tensor.
    """
    if not target.xla_would_compile_for_cpu():
        return False
    return (num_rows >= 2) & (num_rows * num_slots >= MIN_HYPOTHESES)


def search_in_halves(find, num_slots: int):
    """Makes a search that takes large batches in two halves, inside a graph.

    A graph runs the halves at the same time, since neither needs the other.

    Args:
        find: Function of source ids `(batch, length)` that returns `(ids, scores)`.
        num_slots: Hypotheses that grow side by side for each sentence.

    Returns:
        A function like `find`, for batches with an even number of rows or too few
        to be worth halving. `find` itself unless XLA compiles for CPUs here.
    """
    if not target.xla_would_compile_for_cpu():
        return find

    def find_in_halves(source_ids):
        num_rows = ops.shape(source_ids)[0]

        def in_halves():
            first = find(source_ids[: num_rows // 2])
            second = find(source_ids[num_rows // 2 :])
            return [
                ops.concatenate(pair, axis=0)
                for pair in zip(first, second, strict=True)
            ]

        return ops.cond(
            worth_halving(num_rows, num_slots),
            in_halves,
            lambda: list(find(source_ids)),
        )

    return find_in_halves
