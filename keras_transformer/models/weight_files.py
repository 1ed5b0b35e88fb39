"""What the file of a model's weights holds, for an error that tells."""

import contextlib
import os
import tempfile
import zipfile

import h5py


def first_difference(model, path: str) -> str | None:
    """Describes the first weight of a model that a file lacks, or has in another shape.

    The file is a `.weights.h5` or `.keras` file. None if it has all, as far as known.
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
        file = path
        if path.endswith(".keras"):
            archive = stack.enter_context(zipfile.ZipFile(path))
            file = stack.enter_context(archive.open("model.weights.h5"))
        weights = stack.enter_context(h5py.File(file))
        weights.visititems(
            lambda name, x: shapes.update({name: getattr(x, "shape", None)})
        )
    return shapes
