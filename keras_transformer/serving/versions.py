"""The numbered versions of a served model."""

import os
from pathlib import Path


def next_version(folder: str | os.PathLike) -> Path:
    """Returns the path of a model's next version, one above its highest number.

    Args:
        folder: Folder of the model, with a folder for each version; it may not exist.

    Returns:
        The path, where nothing is yet.

    Example:
        >>> from keras_transformer.serving import next_version
        >>> next_version("saved_models/none-yet").as_posix()
        'saved_models/none-yet/1'
    """
    folder = Path(folder)
    versions = [int(path.name) for path in folder.glob("*") if path.name.isdecimal()]
    return folder / str(max(versions, default=0) + 1)
