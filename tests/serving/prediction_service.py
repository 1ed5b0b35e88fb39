"""TensorFlow Serving's `PredictionService` over an export, on this machine.

    python prediction_service.py EXPORT SETTINGS

SETTINGS are arguments of the op `BatchFunction` as JSON, or null: no batching. The
first line that it prints is its port, and it ends with its input. It answers `Predict`
as TensorFlow Serving does; `BatchFunction` gathers the batches. It runs in a process of
its own.
"""

import json
import subprocess
import sys
import uuid
from concurrent import futures
from contextlib import contextmanager

import grpc
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

STATUS_CODES = {code.value[0]: code for code in grpc.StatusCode}
UNLIMITED = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
]


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Serves a SavedModel.

    Args:
        path: Folder of an export.
        batching: Arguments of the op `BatchFunction`, to batch requests.
    """

    def __init__(self, path, batching=None):
        # Kept, since signatures alone do not keep their variables.
        self._model = tf.saved_model.load(path)
        self._signatures = dict(self._model.signatures)
        self._run = {
            name: batched(signature, **batching) if batching else signature
            for name, signature in self._signatures.items()
        }

    def Predict(self, request, context):
        """Answers a `PredictRequest`."""
        name = request.model_spec.signature_name or "serving_default"
        try:
            inputs = self._inputs(name, request.inputs)
            outputs = self._run[name](**inputs)
        except tf.errors.OpError as error:
            context.abort(STATUS_CODES[error.error_code], error.message)
        response = predict_pb2.PredictResponse(model_spec=request.model_spec)
        for name, value in outputs.items():
            response.outputs[name].CopyFrom(tf.make_tensor_proto(value.numpy()))
        return response

    def _inputs(self, name, inputs):
        """Returns the inputs as tensors, whose shape the server does not check."""
        if name not in self._signatures:
            raise invalid(f'Serving signature name: "{name}" not found.')
        specs = self._signatures[name].structured_input_signature[1]
        if set(inputs) != set(specs):
            raise invalid(f"input keys are {sorted(inputs)}, not {sorted(specs)}.")
        values = {name: tf.make_ndarray(value) for name, value in inputs.items()}
        for name, value in inputs.items():
            if value.dtype != specs[name].dtype.as_datatype_enum:
                raise invalid(f"input {name} must be {specs[name].dtype.name}.")
        return {
            name: tf.constant(value, specs[name].dtype)
            for name, value in values.items()
        }


def invalid(message):
    return tf.errors.InvalidArgumentError(None, None, message)


def batched(signature, **settings):
    """A signature that gathers concurrent calls into batches."""
    specs = signature.structured_input_signature[1]
    names = sorted(signature.structured_outputs)
    shared_name = uuid.uuid4().hex  # or all batches would be those of one function

    @tf.function(input_signature=list(specs.values()), autograph=False)
    def run_batch(*tensors):
        outputs = signature(**dict(zip(specs, tensors, strict=True)))
        return [outputs[name] for name in names]

    run_batch = run_batch.get_concrete_function()

    any_shape = {name: tf.TensorSpec(None, one.dtype) for name, one in specs.items()}

    @tf.function(input_signature=[any_shape], autograph=False)
    def run(inputs):
        outputs = tf.raw_ops.BatchFunction(
            in_tensors=[inputs[name] for name in specs],
            captured_tensors=run_batch.captured_inputs,
            f=run_batch,
            Tout=[output.dtype for output in run_batch.outputs],
            shared_name=shared_name,
            **settings,
        )
        return dict(zip(names, outputs, strict=True))

    return lambda **inputs: run(inputs)


@contextmanager
def serve(path, batching=None):
    """Context manager that serves an export in a new process and yields its address."""
    command = [sys.executable, __file__, path, json.dumps(batching)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        yield f"localhost:{int(process.stdout.readline())}"
        process.stdin.close()


@contextmanager
def client(address):
    """Context manager that yields a function from signature and inputs to outputs."""
    with grpc.insecure_channel(address, options=UNLIMITED) as channel:
        service = prediction_service_pb2_grpc.PredictionServiceStub(channel)

        def predict(signature, **inputs):
            request = predict_pb2.PredictRequest()
            request.model_spec.name = "en-de"
            request.model_spec.signature_name = signature
            for name, value in inputs.items():
                request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
            outputs = service.Predict(request, timeout=600).outputs
            return {name: tf.make_ndarray(value) for name, value in outputs.items()}

        yield predict


def main(path, settings):
    import tensorflow_text  # noqa: F401 (registers the ops of the tokenizers)

    # As many requests as threads are answered at a time.
    server = grpc.server(futures.ThreadPoolExecutor(64), options=UNLIMITED)
    service = PredictionService(path, json.loads(settings))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(service, server)
    port = server.add_insecure_port("localhost:0")
    server.start()
    print(port, flush=True)
    sys.stdin.read()
    server.stop(grace=None).wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
