"""Checks all that must hold of a `Dataset`, in one place."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.data.csc import Complain, check_entries_of_csc, check_outline_of_csc
from pyg_batchgnn.data.dataset import (
    EDGE_ID,
    INDEX,
    NEGATIVE_TARGETS,
    NEGATIVES,
    SPLITS,
    Dataset,
    EdgeSet,
    LinkSplit,
    NodeSet,
    count_classes,
    narrow_class_numbers,
)
from pyg_batchgnn.data.errors import DatasetError, broken
from pyg_batchgnn.data.meta import LinkArray, attribute_array, csc_array, edge_array, split_array
from pyg_batchgnn.types import EDGE_FEATURES, FEATURES, LABELS, Group

#: Features of more bytes are not searched for NaN: they are mapped, and reading them whole would
#: cost what mapping saves.
FINITE_CHECK_BYTES = 1 << 30
_ROWS_AT_A_TIME = 1 << 16

Files = Mapping[str, str | Path]


class _Checker:
    """Raises errors that name the file of an array. ``files``: the file of each array, by name."""

    def __init__(self, dataset: Dataset, files: Files) -> None:
        self.dataset = dataset
        self.files = files

    def error(self, array: str, fact: str, remedy: str) -> DatasetError:
        return broken(self.files.get(array, self.dataset.name), array.rpartition("/")[2], fact, remedy)

    def errors_of_csc(self, group: Group) -> Complain:
        return lambda name, fact, remedy: self.error(csc_array(group, name), fact, remedy)

    def shape(self, array: str, tensor: Tensor, expected: tuple[int | None, ...]) -> None:
        shape = tuple(tensor.shape)
        fits = len(shape) == len(expected) and all(
            want in (None, size) for size, want in zip(shape, expected, strict=True)
        )
        if not fits:
            text = ", ".join("any" if want is None else str(want) for want in expected)
            raise self.error(array, f"shape is {list(shape)}, expected [{text}]", "store it in that shape")

    def rows(self, array: str, tensor: Tensor, expected: int) -> None:
        if tensor.layout is not torch.strided:
            raise self.error(array, f"is stored as {tensor.layout}", "make it dense with .to_dense()")
        if tensor.dim() == 0 or len(tensor) != expected:
            fact = f"shape is {list(tensor.shape)}, expected {expected} rows"
            raise self.error(array, fact, "store one row per node, or per edge")

    def dtype(self, array: str, tensor: Tensor, expected: tuple[torch.dtype, ...]) -> None:
        if tensor.dtype not in expected:
            names = " or ".join(str(dtype).removeprefix("torch.") for dtype in expected)
            seen = str(tensor.dtype).removeprefix("torch.")
            raise self.error(array, f"dtype is {seen}, expected {names}", "convert it to that type")

    def span(self, array: str, tensor: Tensor, low: int, high: int, what: str) -> None:
        if tensor.numel() == 0:
            return
        smallest, largest = (int(v) for v in torch.aminmax(tensor))
        if smallest >= low and largest < high:
            return
        value = smallest if smallest < low else largest
        place = (tensor == value).nonzero()[0].tolist()
        raise self.error(
            array,
            f"{what} {value} at position {place} is outside [{low}, {high})",
            "correct the value or the count it is measured against",
        )


def check_dataset(dataset: Dataset, files: Files | None = None) -> Dataset:
    """Returns the data set if it is consistent; raises `DatasetError` for the first fault.

    It checks counts, shapes and dtypes, node ids in [0, N), class numbers in [-1, C), and that
    features "x" are finite (if they have at most 1 GiB). The splits "train", "val" and "test" of a
    node type must be disjoint, without repeats, and nodes of the first one need labels, if there
    are class numbers. ``files``: the file to name in errors, by array, such as `nodes/x`.
    """
    check_outline(dataset, files)
    check_node_counts(dataset, files)
    check = _Checker(dataset, files or {})
    for edges in dataset.edge_sets:
        if edges.csc is None:
            _check_pairs(check, edge_array("edge_index", edges.group), edges.edge_index, edges)
        else:
            sources = dataset.nodes_of(edges.relation[0]).num_nodes
            check_entries_of_csc(edges.csc, sources, check.errors_of_csc(edges.group))
        for split, links in edges.links.items():
            for name, values in links.arrays().items():
                array = str(LinkArray(edges.group, split, name))
                if name in (INDEX, NEGATIVES):
                    _check_pairs(check, array, values, edges)
                elif name == NEGATIVE_TARGETS:
                    targets = dataset.nodes_of(edges.relation[2]).num_nodes
                    check.span(array, values, 0, targets, "node id")
    for one in dataset.sets:
        _check_finite(check, one)
        labels, of = narrow_class_numbers(one.tables), "node" if one.group.is_node else "edge"
        if labels is not None:
            most = one.num_classes if one.group.is_node else one.num_classes or count_classes(one.tables)
            check.span(attribute_array(one.group, LABELS), labels, -1, most, "label")
        splits = _splits(one)
        _check_splits(check, of, one.num_rows, splits)
        for array, index in list(splits.values())[:1]:
            missing = index[:0] if labels is None else index[labels[index] < 0]
            if len(missing):
                first = f"{of} {missing[0]} first"
                fact = f"{len(missing)} of {len(index)} {of}s have no label (y is -1), {first}"
                raise check.error(array, fact, "leave them out of the split, or give them labels")
    return dataset


def check_node_counts(dataset: Dataset, files: Files | None = None, processes: int = 1) -> None:
    """Raises `DatasetError` if a type has more nodes than this machine has memory for. ``files``:
    as in `check_dataset`. ``processes``: how many processes share the memory."""
    check = _Checker(dataset, files or {})
    for nodes in dataset.node_sets:
        why = ops.too_many_nodes(nodes.num_nodes, processes)
        if not why:
            continue
        last = nodes.num_nodes - 1
        for edges in dataset.edge_sets:
            for at, end in enumerate((edges.relation[0], edges.relation[2])):
                if (
                    edges.csc is None
                    and end == nodes.name
                    and edges.num_edges
                    and int(edges.edge_index[at].max()) == last
                ):
                    fact = f"holds the id {last}, so there would be {nodes.num_nodes} nodes, but {why}"
                    raise check.error(edge_array("edge_index", edges.group), fact, ops.MAP_IDS)
        raise check.error(
            "num_nodes", f"is {nodes.num_nodes} of type {nodes.name!r}, but {why}", "give the number of nodes"
        )


def check_outline(dataset: Dataset, files: Files | None = None) -> Dataset:
    if not isinstance(dataset, Dataset):
        raise TypeError(
            f"dataset must be a Dataset, got {type(dataset).__name__}; from_pyg makes one of a Data"
        )
    check = _Checker(dataset, files or {})
    for nodes in dataset.node_sets:
        for field in ("num_nodes", "num_classes"):
            value = getattr(nodes, field)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise check.error(field, f"is {value!r}", "give a whole number, 0 or more")
    for edges in dataset.edge_sets:
        if edges.csc is not None:
            targets = dataset.nodes_of(edges.relation[2]).num_nodes
            check_outline_of_csc(edges.csc, targets, check.errors_of_csc(edges.group))
            continue
        array = edge_array("edge_index", edges.group)
        check.shape(array, edges.edge_index, (2, None))
        check.dtype(array, edges.edge_index, (torch.int32, torch.int64))
    for one in dataset.sets:
        for name, table in one.tables.items():
            check.rows(attribute_array(one.group, name), table, one.num_rows)
    for nodes in dataset.node_sets:
        for name, index in nodes.splits.items():
            check.shape(split_array(nodes.group, name), index, (None,))
            check.dtype(split_array(nodes.group, name), index, (torch.int64,))
    for edges in dataset.edge_sets:
        for split, links in edges.links.items():
            _check_outline_of_links(check, edges.group, split, links)
    return dataset


def _check_outline_of_links(check: _Checker, group: Group, split: str, links: LinkSplit) -> None:
    for name, values in links.arrays().items():
        array = str(LinkArray(group, split, name))
        if name in (INDEX, NEGATIVES, NEGATIVE_TARGETS):
            check.shape(array, values, (len(links) if name == NEGATIVE_TARGETS else 2, None))
            check.dtype(array, values, (torch.int32, torch.int64))
        else:
            check.rows(array, values, len(links))
    if links.negatives is not None and links.negative_targets is not None:
        array = str(LinkArray(group, split, NEGATIVE_TARGETS))
        raise check.error(array, f"there are {NEGATIVES} too", "leave one of the two out")


def _check_pairs(check: _Checker, array: str, pairs: Tensor, edges: EdgeSet) -> None:
    source, _, target = edges.relation
    if source == target:
        check.span(array, pairs, 0, check.dataset.nodes_of(source).num_nodes, "node id")
        return
    for row, name in enumerate((source, target)):
        nodes = check.dataset.nodes_of(name).num_nodes
        check.span(array, pairs[row], 0, nodes, f"id of a node of type {name!r},")


def _check_finite(check: _Checker, rows: NodeSet | EdgeSet) -> None:
    name = FEATURES if rows.group.is_node else EDGE_FEATURES
    x = rows.tables.get(name)
    if x is None or not x.is_floating_point() or x.itemsize == 1:  # torch cannot tell for float8
        return
    if isinstance(x, ops.QuantizedTensor):  # scales and offsets are finite
        return
    if x.numel() * x.element_size() > FINITE_CHECK_BYTES:
        return
    for start in range(0, len(x), _ROWS_AT_A_TIME):
        finite = torch.isfinite(x[start : start + _ROWS_AT_A_TIME])
        if not bool(finite.all()):
            row, *rest = (~finite).nonzero()[0].tolist()
            place = [start + row, *rest]
            fact = f"value {float(x[tuple(place)])} at position {place} is not finite"
            remedy = "replace NaN and infinite features, for example by 0"
            raise check.error(attribute_array(rows.group, name), fact, remedy)


def _splits(rows: NodeSet | EdgeSet) -> dict[str, tuple[str, Tensor]]:
    """Returns (array, ids) by split of the nodes or edges, the split "train" first."""
    if isinstance(rows, NodeSet):
        found = {name: (split_array(rows.group, name), index) for name, index in rows.splits.items()}
    else:
        found = {
            name: (str(LinkArray(rows.group, name, EDGE_ID)), links.tables[EDGE_ID].reshape(-1))
            for name, links in rows.links.items()
            if EDGE_ID in links.tables
        }
    return {name: found[name] for name in (*SPLITS, *found) if name in found}


def _check_splits(check: _Checker, of: str, rows: int, splits: Mapping[str, tuple[str, Tensor]]) -> None:
    owner = torch.zeros(rows, dtype=torch.uint8)  # 0: in no split yet
    for array, index in splits.values():
        check.dtype(array, index, (torch.int64,))
        check.span(array, index, 0, rows, f"{of} id")
    for code, name in enumerate(SPLITS, start=1):
        if name not in splits:
            continue
        array, index = splits[name]
        taken = owner[index].nonzero()
        if len(taken):
            one = int(index[taken[0, 0]])
            other = SPLITS[int(owner[one]) - 1]
            raise check.error(array, f"{of} {one} is in {other} too", "make the splits disjoint")
        owner[index] = code
        if int((owner == code).sum()) != len(index):
            values, counts = torch.unique(index, return_counts=True)
            one = int(values[counts > 1][0])
            raise check.error(array, f"{of} {one} is listed more than once", f"list each {of} once")
