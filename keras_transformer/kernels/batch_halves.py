"""Large batches searched as two halves at the same time, under XLA on CPUs.

There XLA divides only large operations among the cores, and most of a decoding step is
too small for that. Two searches at the same time use the cores. The plain form is one
search of the whole batch.
"""

from keras import ops

from keras_transformer.kernels import target

MIN_HYPOTHESES = 64  # in a batch that is faster in halves, on the two cores measured


def is_faster_in_halves(num_rows, num_slots: int):
    """Tells whether two halves of a batch take less time than the batch.

    This was measured for XLA on CPUs: elsewhere it is False.

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
    """Makes a search, inside a graph, that splits large batches in two halves.

    The graph computes both at the same time, since neither needs the other.

    Args:
        find: Function of source ids `(batch, length)` that returns `(ids, scores)`.
        num_slots: Hypotheses that grow side by side for each sentence.

    Returns:
        A function like `find`, for batches with an even number of rows or too few
        to be faster in halves. `find` itself unless XLA compiles for CPUs here.
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
            is_faster_in_halves(num_rows, num_slots),
            in_halves,
            lambda: list(find(source_ids)),
        )

    return find_in_halves
