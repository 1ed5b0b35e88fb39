"""What the file of a model's weights holds, for an error that tells."""

import contextlib
import json
import os
import tempfile
import zipfile
from pathlib import Path

import h5py
import numpy as np


def first_difference(model, path: str) -> str | None:
    """Describes the first weight of a model that a file lacks, or has in another shape.

    The file is a `.keras`, `.weights.h5` or `.weights.json` file. None if it has all,
    as far as known.
    """
    with tempfile.TemporaryDirectory() as folder:
        own = os.path.join(folder, "own.weights.h5")
        model.save_weights(own)
        wanted, found = _weight_shapes(own), _weight_shapes(path)
    for name, shape in wanted.items():
        if name.startswith("layers/") and found.get(name) != shape:
            has = f"of the shape {found[name]}" if name in found else "missing"
            return f"{name} {has}, where the model has {shape}"
    return None


def _weight_shapes(path):
    """Returns the shapes of the weights in a file, None for groups, by their names."""
    shapes: dict = {}
    with contextlib.ExitStack() as stack:
        files = [path]
        if path.endswith(".keras"):
            archive = stack.enter_context(zipfile.ZipFile(path))
            files = [stack.enter_context(archive.open("model.weights.h5"))]
        elif path.endswith(".json"):  # which names the files of parts
            index = json.loads(Path(path).read_text("utf-8"))["weight_map"]
            parts = np.unique(np.concatenate([*map(np.atleast_1d, index.values())]))
            files = [os.path.join(os.path.dirname(path), part) for part in parts]
        for file in files:
            stack.enter_context(h5py.File(file)).visititems(
                lambda name, x: shapes.update(
                    {name: getattr(x, "shape", shapes.get(name))}
                )
            )
    return shapes
