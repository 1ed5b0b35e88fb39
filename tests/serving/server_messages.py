"""TensorFlow Serving's settings, which its Python package leaves out.

The names and numbers are those of `session_bundle_config.proto` and
`monitoring_config.proto` in its repository.
"""

import functools

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
    wrappers_pb2,
)

PACKAGE = "tensorflow.serving"
WRAPPED = {
    "max_batch_size": 1,
    "batch_timeout_micros": 2,
    "max_enqueued_batches": 3,
    "num_batch_threads": 4,
}


def read_batching_parameters(path):
    """Returns the settings of a file as arguments of the op `BatchFunction`."""
    text = path.read_text("utf-8")
    message = text_format.Parse(text, server_message("BatchingParameters"))
    settings = {name: getattr(message, name).value for name in WRAPPED}
    return {**settings, "allowed_batch_sizes": list(message.allowed_batch_sizes)}


def server_message(name):
    """Returns an empty `BatchingParameters` or `MonitoringConfig`."""
    descriptor = _pool().FindMessageTypeByName(f"{PACKAGE}.{name}")
    return message_factory.GetMessageClass(descriptor)()


@functools.cache
def _pool():
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(_file())
    return pool


def _file():
    file = descriptor_pb2.FileDescriptorProto(
        name="server_messages.proto", package=PACKAGE, syntax="proto3"
    )
    file.dependency.append(wrappers_pb2.DESCRIPTOR.name)
    batching = file.message_type.add(name="BatchingParameters")
    for name, number in WRAPPED.items():
        _add(batching, name, number, "message", type_name="google.protobuf.Int64Value")
    _add(batching, "allowed_batch_sizes", 6, "int64", label="repeated")
    prometheus = file.message_type.add(name="PrometheusConfig")
    _add(prometheus, "enable", 1, "bool")
    _add(prometheus, "path", 2, "string")
    monitoring = file.message_type.add(name="MonitoringConfig")
    type_name = f"{PACKAGE}.PrometheusConfig"
    _add(monitoring, "prometheus_config", 1, "message", type_name=type_name)
    return file


def _add(message, name, number, type, label="optional", type_name=None):
    field = message.field.add(name=name, number=number)
    field.type = getattr(field, f"TYPE_{type.upper()}")
    field.label = getattr(field, f"LABEL_{label.upper()}")
    if type_name is not None:
        field.type_name = f".{type_name}"
