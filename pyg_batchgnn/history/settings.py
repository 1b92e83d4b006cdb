"""The settings of historical embeddings."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class HistoricalSettings:
    """The sizes of the caches and of what is pushed to them (DistGNN-MB, section 3.2).

    The defaults are those of the paper's section 4.4. A step is one minibatch of every rank.

    Attributes:
        lines: the lines of each layer's cache (cs); None: one for each halo node.
        life_span: a line can be read for this many steps after the one in which it was stored (ls);
            None: without end.
        push: a rank pushes at most this many rows per step, layer and peer (nc); None: all that the
            peer has in its halo.
        delay: what is pushed in a step is received this many steps later (d).

    Raises:
        TypeError, ValueError: a number that cannot be.
    """

    lines: int | None = 1_000_000
    life_span: int | None = 2
    push: int | None = 2000
    delay: int = 1

    def __post_init__(self) -> None:
        for one in fields(self):
            _check(one.name, getattr(self, one.name), optional=one.name != "delay")


def _check(name: str, value: Any, optional: bool) -> None:
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an integer{' or None' * optional}, got {value!r}")
    if value < 1:
        without = "; None sets no bound" if optional else ""
        raise ValueError(f"{name} must be at least 1, got {value}{without}")
