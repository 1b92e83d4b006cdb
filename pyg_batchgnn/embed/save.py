"""Writes tables to a folder, by all ranks together."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import DatasetError, attribute_array
from pyg_batchgnn.data.files import (
    META_FILE,
    ArrayPromise,
    rename_whole,
    sync_file,
    sync_folder,
    sync_tree,
    write_tensor,
)
from pyg_batchgnn.embed.folder_meta import EmbeddingMeta, part_name
from pyg_batchgnn.embed.table import EmbeddingTable
from pyg_batchgnn.partition import with_files


def save_tables(
    tables: Sequence[EmbeddingTable],
    num_nodes: Sequence[int],
    steps: int,
    folder: str | Path,
    comm: Communicator,
) -> Path:
    """Writes the rows of all ranks to a new folder. Collective.

    Args:
        tables: this rank's.
        num_nodes: by table, the number of rows over all ranks.
        steps: the number of steps that the optimizer has made.
        folder: the folder to make. All ranks must see the same file system.
        comm: of all ranks.

    Raises:
        DatasetError: on every rank, if the folder exists or one of them cannot write.
    """
    path = Path(folder).expanduser()
    temporary = path.with_name(f".{path.name}.partial")

    def begin() -> None:
        if comm.rank:
            return
        if path.exists():
            raise DatasetError(f"{path}: exists already; remove it or choose another folder")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)

    def end() -> None:
        if comm.rank:
            return
        names = [str(table.group.name) for table in tables]
        columns = {name: table.columns for name, table in zip(names, tables, strict=True)}
        counts = dict(zip(names, num_nodes, strict=True))
        EmbeddingMeta(columns, counts, len(tables[0].state), steps, comm.size, arrays).write(temporary)
        sync_file(temporary / META_FILE)
        sync_folder(temporary)
        rename_whole(temporary, path)

    try:
        with_files(comm, begin)
        promises = with_files(comm, lambda: dict(_write(tables, temporary, comm.rank)))
        said = comm.all_gather_json({name: promise.to_json() for name, promise in promises.items()})
        arrays = {name: ArrayPromise.from_json(one) for theirs in said for name, one in theirs.items()}
        with_files(comm, end)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return path


def _write(tables: Sequence[EmbeddingTable], folder: Path, rank: int) -> Iterator[tuple[str, ArrayPromise]]:
    own = folder / part_name(rank)
    for table in tables:
        columns = {"node": table.node, "weight": table.weight}
        columns |= {f"state{number}": state for number, state in enumerate(table.state)}
        if table.frozen is not None:
            columns["frozen"] = table.frozen
        for name, column in columns.items():
            array = attribute_array(table.group, name)
            file = own / f"{array}.npy"
            file.parent.mkdir(parents=True, exist_ok=True)
            yield f"{own.name}/{array}", write_tensor(file, column)
    sync_tree(own)
