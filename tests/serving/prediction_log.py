"""The requests that TensorFlow Serving replays before it accepts others."""

import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2


def read_requests(path):
    """Yields `(signature, {input: array})` for each request of a file."""
    for record in tf.data.TFRecordDataset(str(path)):
        log = prediction_log_pb2.PredictionLog.FromString(record.numpy())
        request = log.predict_log.request
        yield (
            request.model_spec.signature_name,
            {name: tf.make_ndarray(value) for name, value in request.inputs.items()},
        )
