"""Checks of the input: each rank checks its share, and all ranks raise or none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import Dataset, DatasetError, split_array
from pyg_batchgnn.data.files import system_message

T = TypeVar("T")


def check_comm(comm: Communicator) -> None:
    ops.check_type("comm", comm, Communicator, "make one with Communicator.create(name)")


def with_files(comm: Communicator, work: Callable[[], T]) -> T:
    """Runs ``work``, which uses files, on every rank, and returns its result. Collective. If it
    fails on one rank, all ranks raise a `DatasetError` with the first failure, and its rank."""

    def error(problems: Mapping[int, str]) -> DatasetError:
        rank, text = next(iter(problems.items()))
        return DatasetError(text if comm.size == 1 else f"{text} (rank {rank})")

    def named() -> T:
        try:
            return work()
        except OSError as caught:
            raise DatasetError(system_message(caught)) from caught

    return comm.run_together(named, catch=(DatasetError,), error=error)


def outside(ids: Tensor, num_nodes: int) -> str:
    """Returns a text about the first id [n] outside of [0, num_nodes); "" if there is none."""
    low, high = ops.extent(ids)
    if low >= 0 and high < num_nodes:
        return ""
    return f"node id {low if low < 0 else high} is outside [0, {num_nodes})"


def refuse_outside(comm: Communicator, dataset: Dataset, problems: Mapping[str, str]) -> None:
    """Raises `DatasetError` on every rank if any rank has a problem, by array. Collective."""

    def refuse() -> None:
        for array, problem in problems.items():
            if problem:
                raise DatasetError(f"{dataset.name}: {array}: {problem}; correct it or num_nodes")

    comm.run_together(
        refuse, catch=(DatasetError,), error=lambda found: DatasetError(next(iter(found.values())))
    )


def own_share(comm: Communicator, rows: Tensor) -> Tensor:
    total = len(rows)
    return rows[total * comm.rank // comm.size : total * (comm.rank + 1) // comm.size]


def check_splits(comm: Communicator, dataset: Dataset) -> None:
    """Raises `DatasetError` unless splits hold node ids. Collective."""
    problems = {
        split_array(nodes.group, name).partition("/")[2]: outside(own_share(comm, index), nodes.num_nodes)
        for nodes in dataset.node_sets
        for name, index in nodes.splits.items()
    }
    refuse_outside(comm, dataset, problems)
