"""A progress bar on standard error."""

import sys
from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


def track(items: Iterable, total: int | None, shown: bool = True) -> Iterator:
    """Yields items, with a progress bar if standard error is a terminal.

    Args:
        items: The items.
        total: Their number, None if unknown.
        shown: False to show no progress bar at all.
    """
    progress = Progress(
        TextColumn("Translating"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not (shown and sys.stderr.isatty()),
        transient=True,
    )
    with progress:
        yield from progress.track(items, total=total)
