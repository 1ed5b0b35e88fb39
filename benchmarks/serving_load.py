"""Latency and throughput of an export behind gRPC, with and without batching.

    python benchmarks/serving_load.py EXPORT FILE [--clients 64] [--requests 8]

EXPORT is a folder that `Translator.export` wrote, FILE has a text on each line. Each
client sends texts one by one, each as soon as the last one has its answer. Batches are
those of EXPORT/batching_params.pbtxt, and in the last row also filled up to powers of
two. The server is that of the tests; it needs `pip install tensorflow-serving-api`.
"""

import argparse
import pathlib
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests"))

from serving.batching_parameters import read_batching_parameters
from serving.prediction_log import read_requests
from serving.prediction_service import client, serve


def latency(predict, text):
    """Returns the seconds until the answer to a text, or None after an error."""
    start = time.perf_counter()
    try:
        predict("serving_default", text=[text])
    except grpc.RpcError:
        return None
    return time.perf_counter() - start


def measure(export, batching, texts, num_clients):
    """Returns seconds: of the warm-up, of each answer, and of all answers."""
    with (
        serve(export, batching) as address,
        client(address) as predict,
        ThreadPoolExecutor(num_clients) as clients,
    ):
        start = time.perf_counter()
        warmup = export / "assets.extra" / "tf_serving_warmup_requests"
        for signature, inputs in read_requests(warmup):
            predict(signature, **inputs)
        warmup_time, start = time.perf_counter() - start, time.perf_counter()
        latencies = list(clients.map(lambda text: latency(predict, text), texts))
        duration = time.perf_counter() - start
    return warmup_time, latencies, duration


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("export", type=pathlib.Path)
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--requests", type=int, default=8, help="of each client")
    arguments = parser.parse_args()
    num_texts = arguments.clients * arguments.requests
    texts = arguments.text.read_text("utf-8").splitlines()[:num_texts]
    batching = read_batching_parameters(arguments.export / "batching_params.pbtxt")
    powers = [2**i for i in range(batching["max_batch_size"].bit_length())]
    rows = {
        "off": None,
        "on": batching,
        "on, powers of two": {**batching, "allowed_batch_sizes": powers},
    }
    print("| batching | p50 s | p90 s | p99 s | sentences/s | errors | warm-up s |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, settings in rows.items():
        warmup_time, latencies, duration = measure(
            arguments.export, settings, texts, arguments.clients
        )
        answered = [one for one in latencies if one is not None]
        percentiles = np.percentile(answered, [50, 90, 99])
        cells = [
            name,
            *(f"{one:.2f}" for one in percentiles),
            f"{len(answered) / duration:.1f}",
            str(len(latencies) - len(answered)),
            f"{warmup_time:.0f}",
        ]
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
