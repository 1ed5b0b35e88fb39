"""How weights are split over devices, for models too large for one device."""

import contextlib
from collections.abc import Iterator

import keras

from keras_transformer.kernels import target

# Two products after one another need one exchange: the first kernel is split by its
# outputs and the second by its inputs. Every rule fits weights of every model.
_WIDENING = (
    r".*(attention/(query|key|value)|feed_forward/widen|transform|patches/project)"
)
_NARROWING = r".*(attention/output|narrow|logits)"
_LAYOUTS = {
    rf"{_WIDENING}/kernel|.*(positions/table|pooling/query)": (None, "model"),
    rf"{_WIDENING}/bias": ("model",),
    rf"{_NARROWING}/kernel|.*embedding/embeddings": ("model", None),
}


def layout_map(mesh: keras.distribution.DeviceMesh) -> keras.distribution.LayoutMap:
    """Returns how `keras.distribution.ModelParallel` splits any model of this package.

    Every matrix, its gradient and its optimizer state are split over the axis `"model"`
    of the mesh; the axis `"batch"` splits the batches. This needs JAX. The number of
    devices on each axis must divide what it splits: the vocabulary and the widths, or
    the batch. Change the layout of one weight by its path:
    `layout["embedding/embeddings"] = (None, "model")` splits a vocabulary of any size
    by its width.

    The first training or search raises an error if a rule matches no weight, or no rule
    matches a large weight: so renaming a layer cannot silently put a full copy on every
    device.

    Args:
        mesh: A `keras.distribution.DeviceMesh` with an axis `"model"`.

    Returns:
        A `keras.distribution.LayoutMap`.

    Raises:
        ValueError: If the mesh has no such axis.

    Example:
        >>> devices = keras.distribution.list_devices()[:1]
        >>> mesh = keras.distribution.DeviceMesh((1, 1), ["batch", "model"], devices)
        >>> layout = kt.training.layout_map(mesh)
        >>> layout["encoder/block_0/feed_forward/widen/kernel"].axes
        (None, 'model')
        >>> distribution = keras.distribution.ModelParallel(
        ...     layout_map=layout, batch_dim_name="batch"
        ... )

    Reference:
        [Shoeybi et al., 2019](https://arxiv.org/abs/1909.08053), section 3
    """
    if "model" not in mesh.axis_names:
        raise ValueError(
            "`mesh` must have an axis 'model', over which weights are split. "
            f"Received: axis_names={mesh.axis_names}."
        )
    layout = keras.distribution.LayoutMap(mesh)
    layout.update(_LAYOUTS)
    return layout


@contextlib.contextmanager
def all_devices(model_devices: int = 1) -> Iterator[int]:
    """Distributes models that are built and trained inside over all devices of JAX.

    Args:
        model_devices: Number of devices over which each replica of the model is split;
            batches are split over the replicas.

    Yields:
        The number of replicas; 1 on other backends.

    Raises:
        ValueError: If the devices cannot be divided this way.

    Example:
        >>> with all_devices() as replicas:
        ...     model = keras.Sequential([keras.layers.Dense(1)])
        >>> replicas
        1
    """
    is_jax = target.BACKEND == "jax"
    devices = keras.distribution.list_devices() if is_jax else [target.BACKEND]
    replicas, rest = divmod(len(devices), model_devices)
    if rest:
        raise ValueError(
            "`model_devices` must divide the number of devices on JAX, and be 1 on "
            f"TensorFlow. Received: model_devices={model_devices}, devices={devices}."
        )
    if len(devices) == 1:
        yield 1
        return
    shape, axes = (replicas, model_devices), ["batch", "model"]
    mesh = keras.distribution.DeviceMesh(shape, axes, devices)
    before = keras.distribution.distribution()
    keras.distribution.set_distribution(
        keras.distribution.DataParallel(devices=devices)
        if model_devices == 1
        else keras.distribution.ModelParallel(
            layout_map=layout_map(mesh), batch_dim_name="batch"
        )
    )
    try:
        yield replicas
    finally:
        keras.distribution.set_distribution(before)
