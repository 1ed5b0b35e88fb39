"""A progress bar on standard error."""

import sys
from collections.abc import Iterable, Iterator

from rich import progress
from rich.console import Console


def track(items: Iterable, total: int | None, shown: bool = True) -> Iterator:
    """Yields items, with a progress bar if `shown` and standard error is a terminal.

    `total` is the number of items, None if unknown.
    """
    bar = progress.Progress(
        "Translating",
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not (shown and sys.stderr.isatty()),
        transient=True,
    )
    with bar:
        yield from bar.track(items, total=total)
