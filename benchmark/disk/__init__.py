"""Rows on disk: a papers-like graph that is larger than the memory that it gets.

    python -m benchmark disk --folder FOLDER --tenth FOLDER           all parts but `sort`
    python -m benchmark disk --folder FOLDER --parts reads pages      some of them

The folders are those that `batchgnn generate FOLDER --papers-like` makes, of all nodes and of a
tenth. They are only read. Parts, with minutes on the whole graph and two cores:

    epoch    9   an epoch read from the file, and the same steps with rows held
    budgets  7   what an epoch reads, without a model, by memory budget
    reads    2   the time of reads over the least that the cost model finds
    pages    1   bytes if each minibatch read its rows alone, in pages
    mapped   6   the first steps over the mapping, and PyG's (`--peer pyg=PYTHON`)
    fits     3   a graph that fits: features in memory, against mapped ones that the loader holds
    sort     -   edges in no order to CSC within a budget; writes several GB below --scratch

`measure` runs jobs in processes of their own, so that this file imports nothing by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures the chosen parts, and stores each when it is done."""
    from benchmark.disk import measure

    measure.main(arguments)


def table(result: dict[str, Any]) -> str:
    """Returns what was asked and seen, and a table for each part."""
    from benchmark.disk import page

    return page.table(result)


def plot(result: dict[str, Any]) -> Any:
    """Draws the bytes that an epoch reads, by budget."""
    from benchmark.disk import page

    return page.plot(result)
