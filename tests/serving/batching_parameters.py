"""TensorFlow Serving's `BatchingParameters`, which its Python package leaves out.

The names and numbers are those of `session_bundle_config.proto` in its repository.
"""

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
    wrappers_pb2,
)

WRAPPED = {
    "max_batch_size": 1,
    "batch_timeout_micros": 2,
    "max_enqueued_batches": 3,
    "num_batch_threads": 4,
}


def read_batching_parameters(path):
    """Returns the settings of a file as arguments of the op `BatchFunction`."""
    message = text_format.Parse(path.read_text("utf-8"), _message_class()())
    settings = {name: getattr(message, name).value for name in WRAPPED}
    return {**settings, "allowed_batch_sizes": list(message.allowed_batch_sizes)}


def _message_class():
    name = "tensorflow.serving.BatchingParameters"
    pool = descriptor_pool.Default()
    try:
        descriptor = pool.FindMessageTypeByName(name)
    except KeyError:
        pool.Add(_file())
        descriptor = pool.FindMessageTypeByName(name)
    return message_factory.GetMessageClass(descriptor)


def _file():
    file = descriptor_pb2.FileDescriptorProto(
        name="batching_parameters.proto", package="tensorflow.serving", syntax="proto3"
    )
    file.dependency.append(wrappers_pb2.DESCRIPTOR.name)
    message = file.message_type.add(name="BatchingParameters")
    for name, number in WRAPPED.items():
        field = message.field.add(name=name, number=number)
        field.type, field.label = field.TYPE_MESSAGE, field.LABEL_OPTIONAL
        field.type_name = ".google.protobuf.Int64Value"
    field = message.field.add(name="allowed_batch_sizes", number=6)
    field.type, field.label = field.TYPE_INT64, field.LABEL_REPEATED
    return file
