"""Work that every rank does, and that fails on all ranks where it fails on one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pyg_batchgnn.comm.errors import CommError

T = TypeVar("T")

#: Makes the error that every rank raises, from the text of each rank that failed, by rank.
MakeError = Callable[[Mapping[int, str]], Exception]


def run_together(
    work: Callable[[], T],
    gather: Callable[[str], list[Any]],
    catch: tuple[type[Exception], ...],
    error: MakeError,
) -> T:
    """Implements `Collectives.run_together`.

    Args:
        work, catch, error: as there.
        gather: returns the text of every rank, by rank.
    """
    result: list[T] = []
    cause: Exception | None = None
    try:
        result.append(work())
    except catch as caught:
        cause = caught
    text = "" if cause is None else str(cause) or type(cause).__name__
    problems = {rank: theirs for rank, theirs in enumerate(gather(text)) if theirs}
    if problems:
        raise error(problems) from cause
    return result[0]


def name_failures(problems: Mapping[int, str], hosts: Sequence[int]) -> str:
    """Returns a list of the ranks that failed, each with its host and the cause."""
    return "; ".join(f"rank {rank} (host {hosts[rank]}): {text}" for rank, text in problems.items())


def failed_together(problems: Mapping[int, str], hosts: Sequence[int]) -> CommError:
    """Returns the error of `Collectives.run_together` if its caller gives none."""
    return CommError(name_failures(problems, hosts), problems)
