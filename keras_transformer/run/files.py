"""Files that are written whole or not at all."""

import os
from pathlib import Path


def replace_text(path: Path, text: str) -> None:
    """Writes a text file, which is the new one or, after a fault, the old one."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(unfinished, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
