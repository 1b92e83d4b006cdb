"""Reads tables from a folder, for any number of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import attribute_array
from pyg_batchgnn.data.files import META_FILE, broken, map_tensor
from pyg_batchgnn.embed.folder_meta import OTHER, REMEDY, EmbeddingMeta, part_name
from pyg_batchgnn.embed.table import EmbeddingTable
from pyg_batchgnn.partition import with_files

#: Rows that are copied at once.
_ROWS = 1 << 16


def load_tables(tables: Sequence[EmbeddingTable], folder: str | Path, comm: Communicator) -> int:
    """Reads this rank's rows from a folder that any number of ranks wrote. Collective.

    Args:
        tables: this rank's; written to.
        folder: the same on every rank.
        comm: of all ranks.

    Returns:
        The number of steps that the optimizer had made.

    Raises:
        DatasetError: on every rank, where a file is damaged or missing, or of other tables.
        AgreementError: ranks read different folders.
    """
    path = Path(folder).expanduser()
    meta = with_files(comm, lambda: _checked(EmbeddingMeta.read(path), tables, path))
    comm.check_agreement({"columns": dict(meta.columns), "steps": meta.steps, "parts": meta.parts})
    with_files(comm, lambda: _Reader(path, meta).read_all(tables))
    return meta.steps


def _checked(meta: EmbeddingMeta, tables: Sequence[EmbeddingTable], path: Path) -> EmbeddingMeta:
    columns = {str(table.group.name): table.columns for table in tables}
    if columns != meta.columns:
        fact = f"holds tables of {dict(meta.columns)} columns by type, but here they have {columns}"
        raise broken(path, "columns", fact, OTHER)
    held = len(tables[0].state)
    if held and held != meta.state:
        fact = f"holds {meta.state} numbers beside each weight, but the optimizer here keeps {held}"
        raise broken(
            path, "state", fact, "make the optimizer with the rule that the tables were trained with"
        )
    return meta


class _Reader:
    """Reads the saved parts, one after the other."""

    def __init__(self, path: Path, meta: EmbeddingMeta) -> None:
        self._path, self._meta = path, meta

    def read_all(self, tables: Sequence[EmbeddingTable]) -> None:
        for table in tables:
            if not table.state:
                table.state = tuple(torch.empty_like(table.weight) for _ in range(self._meta.state))
            frozen = torch.zeros(len(table.node), dtype=torch.bool)
            found = sum(self._part(table, number, frozen) for number in range(self._meta.parts))
            if found != len(table.node):
                fact = f"has rows for {found} of the {len(table.node)} nodes that this rank holds"
                raise broken(self._path, str(table.group.name), fact, "give the tables of this graph")
            table.frozen = frozen if bool(frozen.any()) else None

    def _part(self, table: EmbeddingTable, number: int, frozen: Tensor) -> int:
        """Copies what one saved part has of a rank's rows. Returns their number."""
        node = self._array(table, number, "node")
        assert node is not None
        here, there = _common(table.node, node)
        columns = {"weight": table.weight, "frozen": frozen}
        columns |= {f"state{at}": state for at, state in enumerate(table.state)}
        for name, column in columns.items():
            saved = self._array(table, number, name)
            if saved is None:
                continue
            shape = [len(node), *column.shape[1:]]
            if list(saved.shape) != shape or saved.dtype != column.dtype:
                fact = f"is {saved.dtype} {list(saved.shape)}, expected {column.dtype} {shape}"
                raise broken(self._path, f"{part_name(number)}/{name}", fact, REMEDY)
            for to, source in zip(here.split(_ROWS), there.split(_ROWS), strict=True):
                column[to] = saved[source]
        return len(here)

    def _array(self, table: EmbeddingTable, number: int, name: str) -> Tensor | None:
        """Maps an array; None if there are no frozen rows."""
        array = f"{part_name(number)}/{attribute_array(table.group, name)}"
        promise = self._meta.arrays.get(array)
        if promise is None:
            if name == "frozen":
                return None
            raise broken(self._path / META_FILE, array, "is not among the arrays", REMEDY)
        return map_tensor(self._path / f"{array}.npy", array, promise)


def _common(own: Tensor, theirs: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the positions of the ids that two vectors have in common, in each of them."""
    if torch.equal(own, theirs):
        return torch.arange(len(own)), torch.arange(len(own))
    ascending, order = own.sort()
    place = torch.searchsorted(ascending, theirs)
    hit = (place < len(own)).nonzero().view(-1)
    hit = hit[ascending[place[hit]] == theirs[hit]]
    return order[place[hit]], hit
