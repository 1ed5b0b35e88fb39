"""Which entries of the key/value cache belong to a hypothesis, and how a cache grows.

A cache has one entry for each position and slot of a sentence: at position `t`, the
hypothesis in slot `j` writes entry `(t, j)`. Beam search moves hypotheses between slots
at every step. The entries stay where they are; only a table of integers, the lineage,
is updated: `lineage[b, i, t]` is the slot that wrote position `t` of hypothesis `i`. At
first every hypothesis writes into its own slot.

A cache is short at first, since a decoding step reads the whole of it, and grows when
it is full.
"""

from keras import ops

from keras_transformer.kernels.selection import take_rows

GROWTH = 4  # factor by which a full cache grows; each length is traced
MAX_FIRST_LENGTH = 256  # a longer cache is filled only by few sentences
# With fewer entries of a sentence, or of all sentences, a shorter cache saves nothing.
MIN_ENTRIES, MIN_ENTRIES_OF_ALL = 128, 2048


def first_length(max_length: int, num_hypotheses: int) -> int:
    """Returns how many positions a cache has at first: a power of two, or the most."""
    length = 1
    while 2 * length < max_length and length < MAX_FIRST_LENGTH:
        length *= 2
    return length if length * num_hypotheses >= MIN_ENTRIES else max_length


def inherit_lineage(lineage, parents, index):
    """Gives each new hypothesis the lineage of the one that it extends.

    `parents`, `(batch, hypotheses)`, are the slots of the hypotheses that the new ones
    extend; `index`, `(batch,)`, the positions written last. After these, the lineage,
    `(batch, hypotheses, max_length)`, is the hypothesis' own slot.
    """
    num_hypotheses, max_length = lineage.shape[1:]
    own = ops.arange(num_hypotheses, dtype="int32")[:, None]
    written = ops.arange(max_length, dtype="int32") <= index[:, None, None]
    return ops.where(written, take_rows(lineage, parents), own)


def visible_entries(lineage, index):
    """Finds the cache entries that each hypothesis may see at this step.

    `lineage` has the shape `(batch, hypotheses, max_length)`; entries after `index`,
    `(batch,)`, the positions that this step writes, are hidden. Returns the attention
    mask of the hypotheses, as queries, over the whole cache: a boolean tensor of shape
    `(batch, hypotheses, max_length, slots)`.
    """
    num_hypotheses, max_length = lineage.shape[1:]
    slots = ops.arange(num_hypotheses, dtype="int32")
    positions = ops.arange(max_length, dtype="int32")
    written = ops.where(positions <= index[:, None, None], lineage, -1)
    return ops.equal(written[..., None], slots)


def write_position(table, index, values):
    """Writes one value for each hypothesis, `(batch, hypotheses)`, at a position.

    `table` has the shape `(batch, hypotheses, max_length)`, `index` `(batch,)`.
    """
    positions = ops.arange(table.shape[-1], dtype="int32")
    is_here = positions == index[:, None, None]
    return ops.where(is_here, values[..., None], table)


def read_position(table, index):
    """Reads one value for each hypothesis, as `write_position` writes it."""
    positions = ops.arange(table.shape[-1], dtype="int32")
    is_here = positions == index[:, None, None]
    return ops.sum(ops.where(is_here, table, ops.zeros_like(table)), axis=-1)
