"""The jobs of the ranks in test_together.py."""

from __future__ import annotations

from pyg_batchgnn.comm import CommError, Communicator


def work(failing: list[int], rank: int) -> int:
    if rank in failing:
        raise OSError(f"no room for {rank}")
    return 10 * rank


def together(failing: list[int]) -> str:
    """Returns this rank's result, or the text of the error, with whether it has a cause."""
    with Communicator.create("together", timeout=20) as comm:
        try:
            return str(comm.run_together(lambda: work(failing, comm.rank)))
        except CommError as error:
            assert error.ranks == tuple(failing)
            assert (error.__cause__ is not None) == (comm.rank in failing)
            comm.barrier()  # nothing is broken
            return str(error)


def worded(failing: list[int]) -> str:
    """Returns the text of the caller's own error."""
    with Communicator.create("together", timeout=20) as comm:
        try:
            comm.run_together(
                lambda: work(failing, comm.rank), error=lambda problems: KeyError(sorted(problems.items()))
            )
        except KeyError as error:
            return str(error.args[0])
    raise AssertionError
