"""Runs an export as a server would: in a process without this package.

    python -I fresh_process.py eager|graph EXPORT < requests.json > responses.json

The requests are a list of `[signature, {name: values}]`; ids are numbers, texts are
bytes in base64. Each response says too how much memory the process has held at most,
in bytes. `graph` takes the way of the C++ server: a session, the ops that
initialize it, and tensors by the names that the signature gives.
"""

import base64
import json
import resource
import sys


class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "keras_transformer":
            raise ImportError("The export is on its own here.")


if __name__ == "__main__":
    sys.meta_path.insert(0, Blocked())

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
import tensorflow_text  # noqa: E402, F401 (registers the ops of the tokenizers)


def run_eagerly(path, requests):
    model = tf.saved_model.load(path)
    for signature, inputs in requests:
        inputs = {name: as_tensor(value) for name, value in inputs.items()}
        outputs = model.signatures[signature](**inputs)
        yield {name: value.numpy() for name, value in outputs.items()}


def as_tensor(value):
    return tf.constant(value, tf.string if value.dtype == object else tf.int32)


def run_as_graph(path, requests):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        meta_graph = tf.compat.v1.saved_model.loader.load(session, ["serve"], path)
        for signature, inputs in requests:
            info = meta_graph.signature_def[signature]
            fed = {info.inputs[name].name: value for name, value in inputs.items()}
            fetched = {name: one.name for name, one in info.outputs.items()}
            yield session.run(fetched, fed)


def decoded(values):
    if not values or isinstance(values[0], str):
        return np.array([base64.b64decode(value) for value in values], dtype=object)
    return np.array(values, dtype=np.int32)


def encoded(values):
    if values.dtype == object:
        in_base64 = np.frompyfunc(lambda value: base64.b64encode(value).decode(), 1, 1)
        values = in_base64(values)
    return values.tolist()


def peak_memory():
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    way, path = sys.argv[1:]
    requests = [
        (signature, {name: decoded(values) for name, values in inputs.items()})
        for signature, inputs in json.load(sys.stdin)
    ]
    run = {"eager": run_eagerly, "graph": run_as_graph}[way]
    responses = [
        {
            **{name: encoded(values) for name, values in outputs.items()},
            "peak_memory": peak_memory(),
        }
        for outputs in run(path, requests)
    ]
    json.dump(responses, sys.stdout)
