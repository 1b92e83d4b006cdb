"""Parts written to a folder, by all ranks together."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import DatasetError
from pyg_batchgnn.data.durable import rename_whole, sync_file, sync_folder, sync_tree
from pyg_batchgnn.data.meta import META_FILE
from pyg_batchgnn.partition.array_file import write_tensor
from pyg_batchgnn.partition.folder_meta import ArrayPromise, PartitionMeta, part_name
from pyg_batchgnn.partition.part import Part

T = TypeVar("T")


def save_partition(
    parts: Part | Sequence[Part],
    folder: str | Path,
    comm: Communicator,
    origin: Mapping[str, Any] | None = None,
) -> Path:
    """Writes the parts of all ranks to a new folder. Collective; all ranks must see the same file system.

    Every rank writes its own parts under a temporary name; when all are on disk the first rank writes
    META.json with their checksums and renames the folder. What a save left that was killed does not count as
    a partition, and the next save to the same folder removes it.

    Args:
        parts: this rank's part, or parts.
        folder: to be made; must not exist.
        comm: of all ranks.
        origin: what the parts were made from, to be kept in META.json.

    Returns:
        The folder.

    Raises:
        DatasetError: on every rank, if the folder exists or one of them cannot write.
    """
    path = Path(folder).expanduser()
    temporary = path.with_name(f".{path.name}.partial")
    mine = [parts] if isinstance(parts, Part) else list(parts)
    try:
        together(comm, lambda: _begin(path, temporary) if comm.rank == 0 else None)
        promises = together(comm, lambda: [promise for part in mine for promise in _write(part, temporary)])
        said = comm.all_gather_json([[name, p.dtype, list(p.shape), p.sha256] for name, p in promises])
        arrays = {
            name: ArrayPromise(dtype, tuple(shape), sha256)
            for of_rank in said
            for name, dtype, shape, sha256 in of_rank
        }
        together(comm, lambda: _end(mine, arrays, origin or {}, temporary, path))
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return path


def together(comm: Communicator, work: Callable[[], T]) -> T:
    """Does something with files on every rank; where it fails on one, all raise, and so none waits for it.

    Raises:
        DatasetError: what went wrong, on which rank.
    """

    def error(problems: Mapping[int, str]) -> DatasetError:
        rank, text = next(iter(problems.items()))
        return DatasetError(text if comm.size == 1 else f"{text} (rank {rank})")

    return comm.run_together(work, catch=(DatasetError, OSError), error=error)


def refuse_existing(folder: str | Path, comm: Communicator) -> None:
    """What `save_partition` would refuse, before any work. Collective.

    Raises:
        DatasetError: on every rank, if the folder exists.
    """
    together(comm, lambda: _refuse(Path(folder).expanduser()) if comm.rank == 0 else None)


def _refuse(path: Path) -> None:
    if path.exists():
        raise DatasetError(f"{path}: exists already; remove it or choose another folder")


def _begin(path: Path, temporary: Path) -> None:
    _refuse(path)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)


def _write(part: Part, folder: Path) -> Iterator[tuple[str, ArrayPromise]]:
    own = folder / part_name(part.number)
    own.mkdir()
    for name, tensor in arrays_of(part).items():
        yield f"{own.name}/{name}", write_tensor(own / f"{name}.npy", tensor)
    sync_tree(own)


def arrays_of(part: Part) -> dict[str, Tensor]:
    """What is saved of a part, by file name."""
    return {
        "node": part.node,
        "indptr": part.indptr,
        "indices": part.indices,
        "edge_ids": part.edge_ids,
        "directory": part.directory,
        **{f"table.{name}": table for name, table in part.tables.items()},
        **{f"edge_table.{name}": table for name, table in part.edge_tables.items()},
        **{f"split.{name}": split for name, split in part.splits.items()},
    }


def _end(
    parts: list[Part], arrays: dict[str, ArrayPromise], origin: Mapping[str, Any], temporary: Path, path: Path
) -> None:
    """The rank with the first part ends it: the others' arrays it knows by now."""
    if parts and parts[0].number == 0:
        PartitionMeta(parts[0].book, parts[0].num_edges, arrays, origin).write(temporary)
        sync_file(temporary / META_FILE)
        sync_folder(temporary)
        rename_whole(temporary, path)
