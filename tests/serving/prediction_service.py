"""TensorFlow Serving's `PredictionService` over an export, on this machine.

    cd tests; python -m serving.prediction_service EXPORT SETTINGS

SETTINGS are arguments of the op `BatchFunction` as JSON, or null: no batching. It
answers `Predict` as TensorFlow Serving does: first the warm-up requests of the export,
then it prints its port. `BatchFunction` gathers the batches. It runs in a process of
its own and ends with its input.
"""

import json
import os
import subprocess
import sys
import uuid
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path

import grpc
import tensorflow as tf
from serving.prediction_log import read_requests
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

STATUS_CODES = {code.value[0]: code for code in grpc.StatusCode}
UNLIMITED = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
]
TIMEOUT = 120  # seconds for an answer
# TensorFlow's log has a line of them for each graph that it optimizes, and for each
# program that XLA compiles.
PREPARATIONS = "Starting optimization for grappler item", "] Compiled __inference"
LOGGED = "meta_optimizer=1,device_compilation_profiler=1"


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
        """Answers a request, or tells why it is refused."""
        try:
            return self.answer(request)
        except tf.errors.OpError as error:
            context.abort(STATUS_CODES[error.error_code], error.message)

    def answer(self, request):
        """Returns the `PredictResponse` to a `PredictRequest`."""
        name = request.model_spec.signature_name or "serving_default"
        inputs = self._inputs(name, request.inputs)
        outputs = self._run[name](**inputs)
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
def serve(path, batching=None, log=None):
    """Context manager that serves an export in a new process and yields its address.

    `log` is a file for what `PREPARATIONS` names.
    """
    command = [sys.executable, "-m", __name__, path.absolute(), json.dumps(batching)]
    logging = {"TF_CPP_MIN_LOG_LEVEL": "0", "TF_CPP_VMODULE": LOGGED} if log else {}
    with subprocess.Popen(
        command,
        cwd=Path(__file__).parents[1],
        env=os.environ | logging,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
    ) as process:
        try:
            yield f"localhost:{int(process.stdout.readline())}"
        finally:
            process.kill()


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
            outputs = service.Predict(request, timeout=TIMEOUT).outputs
            return {name: tf.make_ndarray(value) for name, value in outputs.items()}

        yield predict


def main(path, settings):
    import tensorflow_text  # noqa: F401 (registers the ops of the tokenizers)

    # As many requests as threads are answered at a time.
    server = grpc.server(futures.ThreadPoolExecutor(64), options=UNLIMITED)
    service = PredictionService(path, json.loads(settings))
    for request in read_requests(Path(path)):
        service.answer(request)
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(service, server)
    port = server.add_insecure_port("localhost:0")
    server.start()
    print(port, flush=True)
    sys.stdin.read()
    server.stop(grace=None).wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
