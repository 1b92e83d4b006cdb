"""The pieces that generated graphs are made of, and the progress bar beside them."""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch

#: What to call after each step of a phase.
Advance = Callable[[], None]
#: Starts a phase of a number of steps.
StartPhase = Callable[[str, int], Advance]


class DrawnPiece(NamedTuple):
    """The next rows of a graph's array, or the next edges of `edge_index`."""

    array: str
    values: np.ndarray  # [n, ...], or [2, n] edges
    dtype: torch.dtype | None = None  # where NumPy lacks it: `values` are integers of its width
    rows: int | None = None  # of the whole array, where that is known


class ProgressBar(enum.Enum):
    """Whether to show a progress bar. AUTO: from a million nodes on, on a terminal."""

    AUTO = "auto"
    SHOW = "show"
    HIDE = "hide"


@contextmanager
def progress_bar(nodes: int, progress: ProgressBar) -> Iterator[StartPhase]:
    """Yields a function that starts a phase of the bar."""
    wanted = nodes >= 1_000_000 and sys.stderr.isatty()
    if progress is ProgressBar.HIDE or (progress is ProgressBar.AUTO and not wanted):
        yield lambda _phase, _steps: lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=progress is ProgressBar.AUTO) as bar:

        def start_phase(phase: str, steps: int) -> Advance:
            task = bar.add_task(phase, total=steps)
            return lambda: bar.advance(task)

        yield start_phase
