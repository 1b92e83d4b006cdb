"""Reads and verifies a data set in a folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from pyg_batchgnn.data.check import check_dataset, check_outline
from pyg_batchgnn.data.dataset import Dataset
from pyg_batchgnn.data.errors import DatasetNotFoundError, broken
from pyg_batchgnn.data.files import META_FILE, open_npy, verify_tensor
from pyg_batchgnn.data.folder_links import read_links
from pyg_batchgnn.data.folder_reader import FolderReader, array_name
from pyg_batchgnn.data.groups import Group
from pyg_batchgnn.data.labels import count_classes
from pyg_batchgnn.data.sets import EdgeSet, NodeSet


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

    A graph of several node types or relations has a file of edges for each relation, named by the
    source type, the relation and the target type: `edge_index/author__writes__paper.npy`, or
    `.parquet`, or several `.*.parquet`. Its attributes and splits lie in folders by type and
    relation: `nodes/paper/NAME.npy`, `edges/author__writes__paper/NAME.npy`,
    `splits/paper/NAME.npy`. META.json may give `node_types` and `relations` in the order wanted,
    which is alphabetical otherwise, and num_nodes and num_classes by type.

    Warns:
        UserWarning: a file of data, or a column of an edge file, is not read.

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
    schema = folder.schema()
    edges, tables = [folder.edge_index(group) for group in schema.edge_groups], folder.attributes(schema)
    counts = {}
    for number, group in enumerate(schema.node_groups):
        ends = zip(edges, schema.source_types, schema.target_types, strict=True)
        ids = [ids[row] for ids, *types in ends for row in range(2) if types[row] == number]
        counts[group] = folder.num_nodes(group, ids, tables[group])
    splits, links = folder.splits(schema, counts), read_links(folder, schema)
    folder.warn_of_unread()
    dataset = Dataset(
        folder.meta.name or path.resolve().name,
        tuple(_node_set(folder, group, counts[group], tables, splits) for group in schema.node_groups),
        tuple(
            EdgeSet(relation, edge_index, tables[group], links[group])
            for relation, group, edge_index in zip(schema.relations, schema.edge_groups, edges, strict=True)
        ),
        folder.meta.source or f"Arrays read from the folder {path}.",
        schema.has_names,
    )
    return dataset, folder.files


def _node_set(
    folder: FolderReader,
    group: Group,
    count: int,
    tables: Mapping[Group, dict[str, Tensor]],
    splits: Mapping[Group, dict[str, Tensor]],
) -> NodeSet:
    classes = folder.meta.num_classes.get(str(group.name))
    classes = count_classes(tables[group]) if classes is None else classes
    return NodeSet(str(group.name), count, tables[group], splits[group], classes)


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
    if not (path / META_FILE).exists():
        raise DatasetNotFoundError(
            f"{path}: has no {META_FILE}, so there are no checksums to compare with; only folders that this "
            f"program wrote have one: write a folder made by hand anew with write_folder"
        )
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
