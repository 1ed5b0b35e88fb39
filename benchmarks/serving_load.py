"""Latency and throughput of an export behind gRPC, with and without batching.

    python benchmarks/serving_load.py EXPORT FILE [--clients 64] [--seconds 20]
    python benchmarks/serving_load.py EXPORT FILE --threads 1 2 4 8

EXPORT is a folder that `Translator.export` wrote, FILE has a text on each line. Each
client sends texts one by one, each as soon as the last one has its answer, until the
time is over. Batches are those of EXPORT/batching_params.pbtxt, in the second row
without its `allowed_batch_sizes` and in the third with powers of two; with `--threads`
there is a row for each `num_batch_threads` in their place. The server is that of the
tests, with the operation of TensorFlow that batches; it needs
`pip install tensorflow-serving-api`. Its start includes `import tensorflow`.
"""

import argparse
import itertools
import pathlib
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests"))

from serving.prediction_service import client, serve
from serving.server_messages import read_batching_parameters


def ask(predict, texts, end):
    """Sends texts until `end`; returns the seconds of each answer, None if refused."""
    latencies, texts = [], itertools.cycle(texts)
    while (start := time.perf_counter()) < end:
        try:
            predict("serving_default", text=[next(texts)])
            latencies.append(time.perf_counter() - start)
        except grpc.RpcError:
            latencies.append(None)
    return latencies


def measure(export, batching, texts, arguments):
    """Returns seconds: of the start, of each answer, and of all answers."""
    start = time.perf_counter()
    with (
        serve(export, batching) as address,
        client(address) as predict,
        ThreadPoolExecutor(arguments.clients) as clients,
    ):
        begin = time.perf_counter()
        end = begin + arguments.seconds
        answers = [
            clients.submit(ask, predict, texts[i:] + texts[:i], end)
            for i in range(0, 7 * arguments.clients, 7)
        ]
        latencies = [one for answer in answers for one in answer.result()]
        return begin - start, latencies, time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("export", type=pathlib.Path)
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=20, help="of each row")
    parser.add_argument("--threads", type=int, nargs="+", help="num_batch_threads")
    arguments = parser.parse_args()
    texts = arguments.text.read_text("utf-8").splitlines()
    batching = read_batching_parameters(arguments.export / "batching_params.pbtxt")
    powers = [2**i for i in range(batching["max_batch_size"].bit_length())]
    rows = {
        "off": None,
        "on": {**batching, "allowed_batch_sizes": []},
        "on, powers of two": {**batching, "allowed_batch_sizes": powers},
    }
    if arguments.threads:
        threads = [("num_batch_threads", count) for count in arguments.threads]
        rows = {f"{x[1]} threads": dict([*batching.items(), x]) for x in threads}
    print("| batching | p50 s | p90 s | p99 s | sentences/s | errors | start s |")
    print("| --- | --: | --: | --: | --: | --: | --: |")
    for name, settings in rows.items():
        start, latencies, duration = measure(
            arguments.export, settings, texts, arguments
        )
        answered = [one for one in latencies if one is not None]
        percentiles = np.percentile(answered or [np.nan], [50, 90, 99])
        cells = [
            name,
            *(f"{one:.2f}" for one in percentiles),
            f"{len(answered) / duration:.1f}",
            str(len(latencies) - len(answered)),
            f"{start:.0f}",
        ]
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
