"""The requests that TensorFlow Serving replays before it accepts others."""

import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2


def read_requests(export):
    """Yields each `PredictRequest` of the warm-up of an export."""
    path = export / "assets.extra" / "tf_serving_warmup_requests"
    for record in tf.data.TFRecordDataset(str(path)):
        log = prediction_log_pb2.PredictionLog.FromString(record.numpy())
        yield log.predict_log.request
