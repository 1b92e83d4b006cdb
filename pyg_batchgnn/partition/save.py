"""Writes parts to a folder, all ranks together."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import (
    DECODING_FOLDER,
    DatasetError,
    attribute_array,
    decoding_array,
    edge_array,
    files,
    split_array,
)
from pyg_batchgnn.partition.checks import check_comm, with_files
from pyg_batchgnn.partition.folder_meta import PartitionMeta, part_name
from pyg_batchgnn.partition.part import Part, parts_of


def save_partition(
    parts: Part | Sequence[Part],
    folder: str | Path,
    comm: Communicator,
    origin: Mapping[str, Any] | None = None,
) -> Path:
    """Writes the parts of all ranks to a new folder, on a file system that all ranks see.
    Collective. Returns the folder.

    >>> folder = save_partition(part, "parts", comm)

    Every rank writes its own parts, under a temporary name. When all are on disk, one rank writes
    META.json with their checksums and renames the folder. A save that was killed leaves no
    partition; the next save to the same folder removes what it left.

    Args:
        parts: this rank's part, or parts.
        folder: the folder to make; it must not exist.
        comm: the communicator of all ranks.
        origin: how the parts were made, to be kept in META.json.

    Raises:
        DatasetError: on every rank, if the folder exists or one of them cannot write.
        ValueError: on every rank, if parts have other scales of the same int8 codes.
    """
    mine = parts_of(parts)
    check_comm(comm)
    refuse_other_decodings(mine, comm)

    def end(folder: Path, arrays: dict[str, files.ArrayPromise]) -> None:
        first = mine[0]
        for array, decoding in decodings_of(first).items():
            arrays[array] = files.write_tensor(files.new_file(folder, array), decoding)
            files.sync_tree(folder / DECODING_FOLDER)
        PartitionMeta(first.schema, first.book, first.edge_counts, arrays, origin or {}).write(folder)

    def write(folder: Path) -> Iterator[tuple[str, files.ArrayPromise]]:
        return (promise for part in mine for promise in _write(part, folder))

    is_last = bool(mine) and mine[0].number == 0
    return save_together(folder, comm, write, end if is_last else None)


def save_together(
    folder: str | Path,
    comm: Communicator,
    write: Callable[[Path], Iterator[tuple[str, files.ArrayPromise]]],
    end: Callable[[Path, dict[str, files.ArrayPromise]], None] | None,
) -> Path:
    """Writes a new folder under a temporary name, and renames it when all ranks have written.
    Collective. Returns it.

    ``write``: writes this rank's arrays into the folder; yields the promise of each, by name.
    ``end``: on one rank, writes META.json, given folder and promises of all ranks; None on the
    others. Raises `DatasetError` on every rank.
    """
    path = Path(folder).expanduser()
    temporary = path.with_name(f".{path.name}.partial")

    def rename(arrays: dict[str, files.ArrayPromise]) -> None:
        if end is not None:
            end(temporary, arrays)
            files.sync_file(temporary / files.META_FILE)
            files.sync_folder(temporary)
            files.rename_whole(temporary, path)

    try:
        with_files(comm, lambda: files.begin_folder(path, temporary) if comm.rank == 0 else None)
        promises = with_files(comm, lambda: dict(write(temporary)))
        said = comm.all_gather_json({name: promise.to_json() for name, promise in promises.items()})
        arrays = {name: files.ArrayPromise.from_json(one) for theirs in said for name, one in theirs.items()}
        with_files(comm, lambda: rename(arrays))
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return path


def decodings_of(part: Part) -> dict[str, Tensor]:
    """Returns the scales and offsets of int8 attributes, by array."""
    return {
        decoding_array(group, name): table.decoding
        for group, tables in part.attributes.items()
        for name, table in tables.items()
        if isinstance(table, ops.QuantizedTensor)
    }


def refuse_other_decodings(parts: Sequence[Part], comm: Communicator) -> None:
    """Raises `ValueError` on all ranks if an int8 attribute has several decodings. Collective."""
    own = [[name, digest(one)] for part in parts for name, one in decodings_of(part).items()]
    seen = dict[str, str]()
    for found in comm.all_gather_json(own):
        for name, one in found:
            if seen.setdefault(name, one) != one:
                raise ValueError(
                    f"the parts have other scales or offsets of {name.partition('/')[2]!r}: quantise the "
                    f"graph before it is partitioned, or the folder of the partition (batchgnn quantize)"
                )


def digest(decoding: Tensor) -> str:
    """Returns the SHA-256 of the scales and offsets of int8 codes, 64 hexadecimal digits."""
    return hashlib.sha256(decoding.numpy().tobytes()).hexdigest()


def refuse_existing(folder: str | Path, comm: Communicator) -> None:
    """Raises `DatasetError` on every rank if the folder exists, before any work. Collective."""
    path = Path(folder).expanduser()
    with_files(comm, lambda: files.refuse_existing_path(path) if comm.rank == 0 else None)


def _write(part: Part, folder: Path) -> Iterator[tuple[str, files.ArrayPromise]]:
    try:
        part.check()
    except (TypeError, ValueError, IndexError) as error:
        raise DatasetError(str(error)) from error
    own = folder / part_name(part.number)
    own.mkdir()
    for name, tensor in arrays_of(part).items():
        yield f"{own.name}/{name}", files.write_tensor(files.new_file(own, name), tensor)
    files.sync_tree(own)


def arrays_of(part: Part) -> dict[str, Tensor]:
    return {
        "node": part.node,
        "directory": part.directory,
        **{
            edge_array(name, group): array
            for group, edges in zip(part.schema.edge_groups, part.relations, strict=True)
            for name, array in (
                ("indptr", edges.indptr),
                ("indices", edges.indices),
                ("edge_ids", edges.explicit_edge_ids()),
            )
        },
        **{
            attribute_array(group, name): ops.as_stored(table)
            for group, tables in part.attributes.items()
            for name, table in tables.items()
        },
        **{
            split_array(group, name): split
            for group, splits in part.splits.items()
            for name, split in splits.items()
        },
    }
