"""What generated graphs are drawn as, and the progress bar beside it."""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch

Advance = Callable[[], None]  # Told after each step of a phase.
StartPhase = Callable[[str, int], Advance]  # Starts a phase, by its name and its number of steps.


class DrawnPiece(NamedTuple):
    """The next rows of a graph's array, or the next edges of `edge_index`."""

    array: str  # the array's name, as in a folder
    values: np.ndarray  # [n, ...] rows, or [2, n] edges
    dtype: torch.dtype | None = None  # if NumPy lacks it, and `values` are integers of its width
    rows: int | None = None  # rows of the whole array, if known


class ProgressBar(enum.Enum):
    """Whether a progress bar is shown. AUTO: from a million nodes on, on a terminal."""

    AUTO = "auto"
    SHOW = "show"
    HIDE = "hide"


@contextmanager
def progress_bar(nodes: int, progress: ProgressBar) -> Iterator[StartPhase]:
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
