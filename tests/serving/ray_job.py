"""A job of Ray Data, in which a process is killed: `ray_job.py EXPORT FOLDER VICTIM`.

VICTIM is `worker` or `driver`. The first time that a worker has translated some lines,
that worker or the whole job is killed.
"""

import contextlib
import os
import signal
import sys
from pathlib import Path

import keras_transformer as kt


class Translate(kt.serving.BatchTranslator):
    """Kills a process (None: its own) with its third batch, unless one was killed."""

    def __init__(self, folder, victim, *settings):
        super().__init__(*settings)
        self.killed, self.victim, self.num_batches = folder / "killed", victim, 0

    def __call__(self, batch):
        self.num_batches += 1
        if self.num_batches == 3:
            with contextlib.suppress(FileExistsError):
                self.killed.touch(exist_ok=False)
                os.kill(self.victim or os.getpid(), signal.SIGKILL)
        return {**batch, "translation": super().__call__(batch["text"])}


if __name__ == "__main__":
    import ray
    from ray.data.checkpoint import CheckpointConfig

    from keras_transformer.serving.ray_lines import ray_lines

    export, folder, victim = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    pid = {"worker": None, "driver": os.getpid()}[victim]
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
    context = ray.data.DataContext.get_current()
    context.checkpoint_config = CheckpointConfig("id", str(folder / "checkpoint"))
    translated = ray_lines(folder / "text").map_batches(
        Translate,
        fn_constructor_args=(folder, pid, export, "ctranslate2"),
        batch_size=64,
        concurrency=2,
    )
    translated.write_json(str(folder / "translated"))
