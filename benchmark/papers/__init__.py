"""The tables and figures of five publications, with this package's figures beside them."""

from benchmark.papers.measure import main
from benchmark.support.tables import Result

__all__ = ["main", "table"]


def table(_: Result) -> str:
    return "The tables are in [docs/papers.md](../../docs/papers.md)."
