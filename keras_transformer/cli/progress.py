"""A progress bar that is in nobody's way."""

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
    """Yields items, with a progress bar on standard error if that is a terminal.

    Args:
        items: What to yield.
        total: How many there are; None if that is not known.
        shown: Whether to show the bar on a terminal.
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
