"""Reads the figures that PyG's benchmark scripts print."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

#: Lines that say what the figures after them are about, and how that is shown.
_CONTEXT = (
    (re.compile(r"Dataset: (\S+)"), "{0}", 0),
    (re.compile(r"(?:Training|Evaluation) bench for (\w+):"), "{0}", 1),
    (re.compile(r"Training sampling with (\[.*\]) neighbors"), "fanout {0}", 1),
    (re.compile(r"Evaluation sampling with all neighbors"), "all neighbours", 1),
    (re.compile(r"Batch size=(\d+), Layers amount=(\d+)"), "batch {0}, {1} layers", 2),
)
_SECONDS = re.compile(r"batch size=(\d+), iterations=\d+, .*average runtime=([\d.]+)")
_RATE = re.compile(r"Throughput: ([\d.]+) samples/s")


@dataclass(frozen=True)
class Figure:
    """A figure that a script reports.

    Attributes:
        what: what was measured.
        value: seconds, or samples per second.
        is_rate: True for samples per second.
    """

    what: str
    value: float
    is_rate: bool


def figures(text: str) -> Iterator[Figure]:
    """Yields the figures in the output of a script."""
    context: list[str] = []
    for line in text.splitlines():
        for pattern, shown, depth in _CONTEXT:
            if found := pattern.match(line):
                context[depth:] = [shown.format(*found.groups())]
        if found := _SECONDS.match(line):
            yield Figure(", ".join([*context, f"batch {found[1]}"]), float(found[2]), is_rate=False)
        if found := _RATE.match(line):
            yield Figure(", ".join(context), float(found[1]), is_rate=True)
