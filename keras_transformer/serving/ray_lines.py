"""Lines of text files as a Ray dataset, each with an id that never changes."""

import io
import itertools
import os

from keras_transformer.checks import optional
from keras_transformer.text_files import Paths, decode_lines

with optional("ray", "ray", "A Ray dataset"):
    import ray.data
    from ray.data.datasource import FileBasedDatasource
import pyarrow

LINES_PER_BLOCK = 4096


def ray_lines(files: Paths) -> "ray.data.Dataset":
    """Returns the lines of many text files as a Ray dataset.

    Its columns are `id`, the file and the number of the line (`news/1.txt:7`), and
    `text`. Ray's own checkpoints (`ray.data.checkpoint.CheckpointConfig`) resume a job
    by these ids.

    Args:
        files: Files and folders, plain or compressed (by their names, such as `.gz`),
            on a shared disk, or at an address that Ray reads, such as `s3://`.

    Raises:
        ImportError: If Ray is not installed.
        FileNotFoundError: If there is no such file.
        ValueError: When they are read, if a file is not UTF-8; the message names the
            line.
    """
    listed = [files] if isinstance(files, (str, os.PathLike)) else files
    return ray.data.read_datasource(_Lines([os.fspath(file) for file in listed]))


class _Lines(FileBasedDatasource):
    """Reads each file as a stream of blocks."""

    def _read_stream(self, f, path):
        lines = enumerate(decode_lines(io.BufferedReader(f), path), start=1)
        while block := list(itertools.islice(lines, LINES_PER_BLOCK)):
            ids = [f"{path}:{number}" for number, _ in block]
            yield pyarrow.table({"id": ids, "text": [text for _, text in block]})
