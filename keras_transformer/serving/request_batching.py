"""TensorFlow Serving's settings for translating the texts of many requests at once."""

MAX_BATCH_SIZE = 64  # a power of two, as compiled batches are


def compiled_batch_sizes() -> list[int]:
    """Returns the sizes of the batches that XLA compiles while a server starts."""
    return [2**i for i in range(MAX_BATCH_SIZE.bit_length())]


def batching_parameters() -> str:
    """Returns a `BatchingParameters` message of TensorFlow Serving as text.

    There are no `allowed_batch_sizes`, whose purpose is to keep the number of shapes
    low. An export does so itself: it fills up each group of texts of one padded length.
    A server can only fill up the whole batch, and would translate more copies: filled
    up from 33 to 64 texts, a batch takes 1.35 times the processor time.
    """
    settings = {
        "max_batch_size": MAX_BATCH_SIZE,
        # Far shorter than a translation, and enough to gather concurrent requests.
        "batch_timeout_micros": 5000,
        # Batches that are translated at the same time.
        "num_batch_threads": 2,
        # The server refuses requests, as unavailable, while this many are waiting.
        "max_enqueued_batches": 100,
    }
    return "".join(f"{name} {{ value: {value} }}\n" for name, value in settings.items())
