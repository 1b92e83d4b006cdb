"""Reads and verifies a data set in a folder."""

from __future__ import annotations

from pathlib import Path

from pyg_batchgnn.data.check import check_dataset, check_outline
from pyg_batchgnn.data.dataset import Dataset
from pyg_batchgnn.data.errors import DatasetNotFoundError, broken
from pyg_batchgnn.data.files import META_FILE, open_npy, verify_tensor
from pyg_batchgnn.data.folder_reader import FolderReader, array_name
from pyg_batchgnn.data.groups import EDGES, NODES


def read_folder(path: str | Path) -> Dataset:
    """Reads a data set from a folder.

    Edges are `edge_index.npy` [2, E], which is mapped, or `src.npy` and `dst.npy` [E], or
    `edges*.parquet` with columns src and dst, which are read into memory. All else is optional and
    mapped:

    - `nodes/NAME.npy` [N, ...] and `edges/NAME.npy` [E, ...]: the attributes NAME, of any dtype;
    - `splits/NAME.npy`: the node ids of the split NAME;
    - in the folder itself `x.npy`, `y.npy` and `edge_attr.npy`, where features that are neither
      float16 nor float32 become float32, and class numbers int64 (NaN: no label, -1); and
      `train_idx.npy` (node ids) or `train_mask.npy` (bool [N]), and so for val and test;
    - META.json: name, source, num_nodes and num_classes. In folders that this package wrote it also
      holds dtype, shape and checksum of every array, which are compared.

    Warns:
        UserWarning: the folder itself has an array of another name, which is not read.

    Raises:
        DatasetNotFoundError: there is no such folder, or no edges in it.
        DatasetError: a file is damaged, foreign or inconsistent.
    """
    dataset, files = _read(path)
    return check_dataset(dataset, files)


def open_folder(path: str | Path) -> Dataset:
    """Reads a folder as `read_folder` does, but does not look at node ids, labels and features.

    It is for `partition`, where each rank reads some of them and checks what it needs, and for
    folders that were checked before.

    Raises:
        DatasetNotFoundError, DatasetError: as `read_folder`, from counts, shapes, dtypes and
            checksums.
    """
    return check_outline(*_read(path))


def _read(path: str | Path) -> tuple[Dataset, dict[str, str | Path]]:
    """Returns the data set and the file of each array."""
    path = Path(path).expanduser()
    if not path.is_dir():
        raise DatasetNotFoundError(
            f"{path}: no such folder; give a folder with edge_index.npy or edges*.parquet"
        )
    folder = FolderReader(path)
    edge_index, tables = folder.edge_index(), folder.attributes()
    num_nodes = folder.num_nodes(edge_index, tables[NODES])
    splits = folder.splits(num_nodes)
    folder.warn_of_unread()
    dataset = Dataset.homogeneous(
        folder.meta.name or path.resolve().name,
        num_nodes,
        edge_index,
        nodes=tables[NODES],
        edges=tables[EDGES],
        splits=splits,
        num_classes=folder.meta.num_classes,
        source=folder.meta.source or f"Arrays read from the folder {path}.",
    )
    return dataset, folder.files


def verify_folder(path: str | Path) -> int:
    """Compares every file of a folder with META.json, however large.

    Returns:
        The number of files compared.

    Raises:
        DatasetError: a file differs, or META.json has no checksums.
    """
    path = Path(path).expanduser()
    if not path.is_dir():
        raise DatasetNotFoundError(f"{path}: no such folder; give a folder that this program wrote")
    folder = FolderReader(path)
    if not folder.meta.arrays:
        raise broken(
            path / META_FILE,
            "arrays",
            "no checksums to compare with",
            "write the data with write_folder, which adds them",
        )
    for array, promise in folder.meta.arrays.items():
        open_npy(folder.file(array), array_name(array))
        verify_tensor(folder.file(array), array_name(array), promise)
    return len(folder.meta.arrays)
