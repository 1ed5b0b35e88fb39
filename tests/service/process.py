"""The service in a process of its own, as `keras-transformer serve` starts it."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parents[2]


class Service:
    """A process of `keras-transformer serve` at a free port.

    Attributes:
        address: Where it answers.
        process: The process.
        before: What it writes on standard error before it answers.
        lines: What it writes afterwards.
    """

    def __init__(self, *arguments):
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "keras_transformer.cli", "serve"),
                *map(str, arguments),
                *("--port", "0"),
            ],
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            text=True,
        )
        self.before, self.lines = [], []
        for line in self.process.stderr:
            if found := re.search(r"at (http://\S+)\. Ctrl-C", line):
                self.address = found[1]
                break
            self.before.append(line)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        self.lines += self.process.stderr

    def post(self, path, body):
        request = urllib.request.Request(self.address + path, json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)

    def num_waiting(self):
        with urllib.request.urlopen(f"{self.address}metrics", timeout=60) as response:
            text = response.read().decode()
        return float(re.search(r'waiting_texts{model="en-de"} (\S+)', text)[1])

    def stop(self, number=signal.SIGTERM):
        """Returns its exit status, and what it wrote once it answered."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self):
        """Returns its exit status, and what it wrote once it answered."""
        status = self.process.wait(60)
        self._reader.join()
        self.process.stderr.close()
        return status, "".join(self.lines)
