"""A progress bar for work that takes long."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def progress_bar(title: str, total: int, visible: bool) -> Iterator[Callable[[int], None]]:
    """Yields a function that takes the number of nodes done since the last call.

    Args:
        title: stands before the bar.
        total: the number of nodes.
        visible: True shows a bar on the standard error.
    """
    if not visible:
        yield lambda _done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.advance(task, done)
