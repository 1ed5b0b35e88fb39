"""A job of Ray Data, in which a process is killed: `ray_job.py EXPORT FOLDER VICTIM`.

VICTIM is `worker` or `driver`. The first time that a worker has translated some lines,
that worker or the whole job is killed.
"""

import os
import signal
import sys
from pathlib import Path

import ray
from ray.data.checkpoint import CheckpointConfig

import keras_transformer as kt
from keras_transformer.serving.ray_lines import ray_lines

EXPORT, FOLDER, VICTIM = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
DRIVER = os.getpid()


class Translate(kt.serving.BatchTranslator):
    num_batches = 0

    def __call__(self, batch):
        self.num_batches += 1
        if self.num_batches == 3:
            try:
                (FOLDER / "killed").touch(exist_ok=False)
                victim = {"worker": os.getpid(), "driver": DRIVER}[VICTIM]
                os.kill(victim, signal.SIGKILL)
            except FileExistsError:
                pass
        return {**batch, "translation": super().__call__(batch["text"])}


if __name__ == "__main__":
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
    context = ray.data.DataContext.get_current()
    context.checkpoint_config = CheckpointConfig("id", str(FOLDER / "checkpoint"))
    translated = ray_lines(FOLDER / "text").map_batches(
        Translate,
        fn_constructor_args=(EXPORT, "ctranslate2"),
        batch_size=64,
        concurrency=2,
    )
    translated.write_json(str(FOLDER / "translated"))
