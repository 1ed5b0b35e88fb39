"""How many processor cores there are to use; no library is imported."""

import math
import os
from pathlib import Path


def num_cores(cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """Returns how many cores this process may use.

    They are limited by its affinity, and in a container by the quota of its group, in
    microseconds of processor time a period: `cpu.max`, or two files in older systems.
    """
    has_affinity = hasattr(os, "sched_getaffinity")  # Linux
    cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    quota = [cgroups / f"cpu/cpu.cfs_{name}_us" for name in ("quota", "period")]
    for files in ([cgroups / "cpu.max"], quota):
        if all(file.is_file() for file in files):
            limit, period = " ".join(file.read_text() for file in files).split()
            if limit not in ("max", "-1"):
                cores = min(cores, math.ceil(int(limit) / int(period)))
    return cores
