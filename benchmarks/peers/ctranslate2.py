"""Decoding with CTranslate2, with the weights of our model.

Not equal: beam search reorders caches and compares scores in a way of its own. The
variant is the compute type, such as `float32` or `int8`.
"""

import json
import subprocess
import sys
import tempfile
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
        engine = ctranslate2.Translator(
            str(export), compute_type=variant, inter_threads=1, intra_threads=THREADS
        )
        pieces = json.loads((export / "shared_vocabulary.json").read_text("utf-8"))
    source, _ = workload.random_ids()
    # CTranslate2 appends the end symbol.
    texts = [[pieces[index] for index in row] for row in source[:, :-1]]

    def work():
        results = engine.translate_batch(
            texts,
            beam_size=workload.beam_width,
            min_decoding_length=workload.target_length,
            max_decoding_length=workload.target_length,
        )
        lengths = {len(result.hypotheses[0]) for result in results}
        assert lengths == {workload.target_length}

    return work


if __name__ == "__main__":
    take_turns(prepare, ["ctranslate2"])
