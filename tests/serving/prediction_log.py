"""The requests that TensorFlow Serving records, as it defines them.

Only the fields that matter here; the numbers are those of `prediction_log.proto`,
`predict.proto` and `model.proto` in TensorFlow Serving's repository.
"""

import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tensorflow.core.framework import tensor_pb2

MESSAGES = {
    "PredictionLog": [("predict_log", 6, "PredictLog")],
    "PredictLog": [("request", 1, "PredictRequest")],
    "PredictRequest": [("model_spec", 1, "ModelSpec"), ("inputs", 2, "Input")],
    "ModelSpec": [("name", 1, None), ("signature_name", 3, None)],
    "Input": [("key", 1, None), ("value", 2, "tensorflow.TensorProto")],
}


def read_requests(path):
    """Yields `(signature, {input: array})` for each request of a file."""
    prediction_log = _message_class()
    for record in tf.data.TFRecordDataset(str(path)):
        request = prediction_log.FromString(record.numpy()).predict_log.request
        yield (
            request.model_spec.signature_name,
            {one.key: tf.make_ndarray(one.value) for one in request.inputs},
        )


def _message_class():
    file = descriptor_pb2.FileDescriptorProto(
        name="prediction_log.proto", package="serving", syntax="proto3"
    )
    file.dependency.append(tensor_pb2.DESCRIPTOR.name)
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field_name, number, message_type in fields:
            field = message.field.add(name=field_name, number=number)
            field.type = field.TYPE_MESSAGE if message_type else field.TYPE_STRING
            field.label = field.LABEL_OPTIONAL
            if field_name == "inputs":  # a map is a list of entries on the wire
                field.label = field.LABEL_REPEATED
            if message_type:
                dot = "" if "." in message_type else "serving."
                field.type_name = f".{dot}{message_type}"
    pool = descriptor_pool.Default()
    pool.Add(file)
    descriptor = pool.FindMessageTypeByName("serving.PredictionLog")
    return message_factory.GetMessageClass(descriptor)
