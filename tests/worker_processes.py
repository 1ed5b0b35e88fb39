"""Workers of a distributed training, as processes on this machine."""

import contextlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TIMEOUT = 600  # seconds; they need about twenty


@contextlib.contextmanager
def workers(*arguments, count=2, **variables):
    """Starts Python processes that know each other; kills them when the block ends."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(count)]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    with contextlib.ExitStack() as stack:
        processes = []
        for index in range(count):
            config = {
                "cluster": {"worker": addresses},
                "task": {"type": "worker", "index": index},
            }
            variables |= {
                "PYTHONPATH": path,
                "TF_CONFIG": json.dumps(config),
                "TF_CPP_MIN_LOG_LEVEL": "3",
            }
            process = subprocess.Popen(
                [sys.executable, *map(str, arguments)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=os.environ | variables,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            processes.append(process)
        yield processes


def outputs(processes):
    """Waits for all to end; returns the standard output and error of each."""
    return [process.communicate(timeout=TIMEOUT) for process in processes]


def free_ports(count):
    """Returns ports that no process listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for unbound in sockets:
            unbound.bind(("127.0.0.1", 0))
        return [bound.getsockname()[1] for bound in sockets]
