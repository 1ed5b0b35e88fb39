"""Decoding with CTranslate2, with the weights of our model and its best threads.

Not equal: beam search reorders caches and compares scores in a way of its own. The
variant is the compute type, such as `float32` or `int8`. One worker of all threads and
a worker for each thread, with a share of the batch, are tried; the fastest is timed.
"""

import json
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import ctranslate2
from peers.turns import take_turns
from peers.workloads import THREADS, WORKLOADS


def prepare(workload, variant):
    with tempfile.TemporaryDirectory() as folder:
        export = Path(folder) / "export"
        name = next(name for name, each in WORKLOADS.items() if each == workload)
        # In a process of its own, so that TensorFlow is not in this one.
        exporting = [sys.executable, "-m", "peers.ctranslate2_export", name, export]
        subprocess.run(exporting, check=True)
        engines = {
            workers: ctranslate2.Translator(
                str(export),
                compute_type=variant,
                inter_threads=workers,
                intra_threads=THREADS // workers,
            )
            for workers in (1, THREADS)
        }
        pieces = json.loads((export / "shared_vocabulary.json").read_text("utf-8"))
    source, _ = workload.random_ids()
    # CTranslate2 appends the end symbol.
    texts = [[pieces[index] for index in row] for row in source[:, :-1]]

    def work(workers):
        results = engines[workers].translate_batch(
            texts,
            max_batch_size=-(-len(texts) // workers),
            beam_size=workload.beam_width,
            min_decoding_length=workload.target_length,
            max_decoding_length=workload.target_length,
        )
        lengths = {len(result.hypotheses[0]) for result in results}
        assert lengths == {workload.target_length}

    def seconds(workers):
        work(workers)
        start = time.perf_counter()
        work(workers)
        return time.perf_counter() - start

    return partial(work, min(engines, key=seconds))


if __name__ == "__main__":
    take_turns(prepare, ["ctranslate2"])
