"""Tables in files: saved and loaded by any number of ranks."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator, Header, MessageKind
from pyg_batchgnn.data import attribute_array, files
from pyg_batchgnn.embed.tables import EmbeddingTable
from pyg_batchgnn.partition import part_name, save_together, with_files
from pyg_batchgnn.store import SortedNodes

#: Rows that are copied at once.
_ROWS = 1 << 16


def load_tables(tables: Sequence[EmbeddingTable], folder: str | Path, comm: Communicator) -> int:
    """Reads this rank's rows and state, for `Embedding.load`; returns the number of steps."""
    path = Path(folder).expanduser()
    meta = with_files(comm, lambda: _checked(EmbeddingMeta.read(path), tables, path))
    comm.check_agreement({"columns": dict(meta.columns), "steps": meta.steps, "parts": meta.parts})

    def read() -> None:
        with FORMAT.parsing(path):
            for table in tables:
                _read(path, meta, table)

    with_files(comm, read)
    return meta.steps


def _checked(meta: EmbeddingMeta, tables: Sequence[EmbeddingTable], path: Path) -> EmbeddingMeta:
    columns = {str(table.group.name): table.columns for table in tables}
    if columns != meta.columns:
        fact = f"holds tables of {dict(meta.columns)} columns by type, but here they have {columns}"
        raise files.broken(path, "columns", fact, OTHER)
    if (held := len(tables[0].state)) not in (0, meta.state):
        fact = f"holds {meta.state} numbers beside each weight, but the optimizer here keeps {held}"
        raise files.broken(
            path, "state", fact, "make the optimizer with the rule that the tables were trained with"
        )
    return meta


def _read(path: Path, meta: EmbeddingMeta, table: EmbeddingTable) -> None:
    """Copies the rows of one saved table that belong to this rank."""
    if not table.state:
        table.state = tuple(torch.empty_like(table.weight) for _ in range(meta.state))
    frozen, found = torch.zeros(len(table.node), dtype=torch.bool), 0
    columns = {"weight": table.weight, "frozen": frozen}
    columns |= {f"state{at}": state for at, state in enumerate(table.state)}
    own = SortedNodes.of(table.node)
    for part in map(part_name, range(meta.parts)):
        node = _array(path, meta, table, part, "node")
        assert node is not None
        shared = own.find(node)
        found += len(shared.row)
        for name, column in columns.items():
            saved = _array(path, meta, table, part, name)
            if saved is None:
                continue
            shape = [len(node), *column.shape[1:]]
            if list(saved.shape) != shape or saved.dtype != column.dtype:
                fact = f"is {saved.dtype} {list(saved.shape)}, expected {column.dtype} {shape}"
                raise files.broken(path, f"{part}/{name}", fact, REMEDY)
            for to, source in zip(shared.row.split(_ROWS), shared.position.split(_ROWS), strict=True):
                column[to] = saved[source]
    if found != len(table.node):
        fact = f"has rows for {found} of the {len(table.node)} nodes that this rank holds"
        raise files.broken(path, str(table.group.name), fact, "give the tables of this graph")
    table.frozen = frozen if bool(frozen.any()) else None


def _array(path: Path, meta: EmbeddingMeta, table: EmbeddingTable, part: str, name: str) -> Tensor | None:
    array = f"{part}/{attribute_array(table.group, name)}"
    promise = meta.arrays.get(array)
    if promise is not None:
        return files.map_tensor(path / f"{array}.npy", array, promise)
    if name == "frozen":
        return None
    raise files.broken(path / files.META_FILE, array, "is not among the arrays", REMEDY)


def save_tables(
    tables: Sequence[EmbeddingTable],
    num_nodes: Sequence[int],
    steps: int,
    folder: str | Path,
    comm: Communicator,
) -> Path:
    """Writes the rows and states of all ranks, for `Embedding.save`; returns the folder."""

    def end(path: Path, arrays: dict[str, files.ArrayPromise]) -> None:
        names = [str(table.group.name) for table in tables]
        content = {
            "columns": {name: table.columns for name, table in zip(names, tables, strict=True)},
            "num_nodes": dict(zip(names, num_nodes, strict=True)),
            "state": len(tables[0].state),
            "steps": steps,
            "parts": comm.size,
        }
        FORMAT.write(path, VERSION, content, arrays)

    write = functools.partial(_write, tables, comm.rank)
    return save_together(folder, comm, write, None if comm.rank else end)


def _write(
    tables: Sequence[EmbeddingTable], rank: int, folder: Path
) -> Iterator[tuple[str, files.ArrayPromise]]:
    own = folder / part_name(rank)
    for table in tables:
        columns = {"node": table.node, "weight": table.weight}
        columns |= {f"state{number}": state for number, state in enumerate(table.state)}
        if table.frozen is not None:
            columns["frozen"] = table.frozen
        for name, column in columns.items():
            array = attribute_array(table.group, name)
            yield f"{own.name}/{array}", files.write_tensor(files.new_file(own, array), column)
    files.sync_tree(own)


# META.json of a folder of tables.
#
# A folder has META.json, and for each part its nodes, its rows and what lies beside the rows.
# Every rank writes its own rows. Any number of ranks, under any partition of the graph, reads
# them: rows are found by the original ids of their nodes.


REMEDY = "restore the file or save the tables again"
VERSION = 1
FORMAT = files.MetaFormat("pyg_batchgnn.embedding", (VERSION,), "Embedding.save", REMEDY)
OTHER = "give a folder that Embedding.save wrote for tables of these node types"


@dataclass(frozen=True)
class EmbeddingMeta:
    """The contents of META.json of saved tables."""

    columns: Mapping[str, int]  # the number of columns of each table, by node type
    num_nodes: Mapping[str, int]  # the number of rows of each table, over all parts
    state: int  # how many numbers lie beside each weight
    steps: int  # the number of steps that the optimizer had made
    parts: int  # the number of parts
    arrays: Mapping[str, files.ArrayPromise]  # what is promised of each array, by part and name

    @classmethod
    def read(cls, folder: Path) -> EmbeddingMeta:
        """Reads and checks META.json."""
        content, _ = FORMAT.read(folder)
        with FORMAT.parsing(folder):
            return cls(
                columns={str(name): int(count) for name, count in content["columns"].items()},
                num_nodes={str(name): int(count) for name, count in content["num_nodes"].items()},
                state=int(content["state"]),
                steps=int(content["steps"]),
                parts=int(content["parts"]),
                arrays=files.promises(folder / files.META_FILE, content["arrays"], REMEDY),
            )


#: Bytes of rows that the first rank receives at once.
_PIECE = 16 << 20
_HEADER = Header(MessageKind.EMBEDDINGS)


def export_table(table: EmbeddingTable, num_nodes: int, path: Path, comm: Communicator) -> None:
    """Writes the rows of all nodes, for `Embedding.export_rows`, on the first rank."""
    size = max(1, _PIECE // (table.columns * table.weight.element_size()))
    node, order = table.node.sort()
    temporary = path.with_name(f".{path.name}.partial")
    shape = (table.columns,)
    writer = with_files(
        comm, lambda: None if comm.rank else files.NpyAppender(temporary, table.weight.numpy().dtype, shape)
    )
    for begin in range(0, num_nodes, size):
        bounds = torch.tensor([begin, min(begin + size, num_nodes)])
        first, last = torch.searchsorted(node, bounds).tolist()
        ids, rows = node[first:last], table.weight[order[first:last]]
        none = [0] * (comm.size - 1)
        ids = comm.exchange(ids, [len(ids), *none], _HEADER).rows
        rows = comm.exchange(rows, [len(rows), *none], _HEADER).rows
        with_files(comm, lambda: writer.append(rows[ids.argsort()].numpy()) if writer else None)  # noqa: B023

    def end() -> None:
        if writer is not None:
            writer.__exit__(None, None, None)
            files.sync_file(temporary)
            files.rename_whole(temporary, path)

    with_files(comm, end)


def read_table(table: EmbeddingTable, num_nodes: int, path: Path, comm: Communicator) -> None:
    """Overwrites rows from a mapped file, for `Embedding.read_rows`. A pickle is never read."""

    def read() -> None:
        saved = files.as_tensor(files.open_npy(path, "rows"), path, "rows")
        if tuple(saved.shape) != (num_nodes, table.columns) or not saved.is_floating_point():
            expected = [num_nodes, table.columns]
            fact = f"is {saved.dtype} {list(saved.shape)}, expected floats of shape {expected}"
            raise files.broken(path, "rows", fact, "give one row per node, in the order of node ids")
        size = max(1, _PIECE // (table.columns * saved.element_size()))
        begin = 0
        for node in table.node.split(size):
            table.weight[begin : begin + len(node)] = saved[node]
            begin += len(node)

    with_files(comm, read)
