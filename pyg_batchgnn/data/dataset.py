"""A graph with attributes and splits, wherever it came from, and tensors from users' arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn import machine
from pyg_batchgnn.data.csc import MappedEdges
from pyg_batchgnn.data.errors import broken
from pyg_batchgnn.data.files.npy import as_tensor
from pyg_batchgnn.ops import InEdges, QuantizedTensor
from pyg_batchgnn.types import FEATURES, HOMOGENEOUS, LABELS, NODES, Group, Relation, RowKind, Schema

#: The arrays of a link split that are not attributes of links.
INDEX, NEGATIVES, NEGATIVE_TARGETS = "index", "negatives", "negative_targets"
#: Attributes with a meaning. Of links: the id of the edge that each link is. Of edges: the id of
#: each edge's reverse in the same relation, -1 for none.
EDGE_ID, REVERSE_ID = "edge_id", "reverse_id"


@dataclass(frozen=True, eq=False)
class LinkSplit:
    """The links of one split of a relation, to learn from or to be ranked.

    >>> len(LinkSplit(torch.tensor([[0, 1], [2, 2]])))  # from 0 to 2, and from 1 to 2
    2
    """

    index: Tensor  # [2, n] int32 or int64, source and target ids within their types
    tables: dict[str, Tensor] = field(default_factory=dict)  # attributes, [n, ...], such as "year"
    #: [2, m] pairs that are no links, which all links are ranked among, or None
    negatives: Tensor | None = None
    #: [n, k] target ids that each link is ranked among, or None
    negative_targets: Tensor | None = None

    def __len__(self) -> int:
        return int(self.index.shape[-1])

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Tensor]) -> LinkSplit:
        """Makes a split of its arrays by name, as `arrays` returns them."""
        known = (INDEX, NEGATIVES, NEGATIVE_TARGETS)
        tables = {name: table for name, table in arrays.items() if name not in known}
        return cls(arrays[INDEX], tables, arrays.get(NEGATIVES), arrays.get(NEGATIVE_TARGETS))

    def arrays(self) -> dict[str, Tensor]:
        """Returns everything that is written of the split, by array name."""
        fixed = {INDEX: self.index, NEGATIVES: self.negatives, NEGATIVE_TARGETS: self.negative_targets}
        return {**{name: one for name, one in fixed.items() if one is not None}, **self.tables}


@dataclass(frozen=True, eq=False)
class NodeSet:
    """The nodes of one type, with ids 0 to N_t - 1."""

    name: str  # the node type
    num_nodes: int  # the number of nodes N_t
    #: attributes by name: [N_t, ...], any dtype and shape. By convention "x" are the features and
    #: "y" the labels (class numbers 0 to C - 1, -1: none)
    tables: dict[str, Tensor] = field(default_factory=dict)
    #: node ids of each split, int64. "train", "val" and "test" are disjoint
    splits: dict[str, Tensor] = field(default_factory=dict)
    num_classes: int = 0  # the number of classes C; 0 without class numbers in "y"

    @property
    def group(self) -> Group:
        """The key of these nodes in mappings of nodes and edges."""
        return Group(RowKind.NODE, self.name)

    @property
    def num_rows(self) -> int:
        """The number of nodes."""
        return self.num_nodes


class EdgePiece(NamedTuple):
    source: Tensor  # [n] int32 or int64, source ids
    target: Tensor  # [n] int32 or int64, target ids
    edge: Tensor  # [n] int32 or int64, edge ids


_LIST_BYTES = 40  # bytes per edge at the peak of making a list from edges by destination


@dataclass(frozen=True, eq=False)
class EdgeSet:
    """The edges of one relation, with ids 0 to E_r - 1."""

    relation: Relation  # (source type, relation, target type)
    #: [2, E_r] int32 or int64: source and target of each edge, whose position is its id; or
    #: `InEdges`: by target, then by ascending id. Ids of nodes are within their types
    topology: Tensor | InEdges
    #: attributes by name: [E_r, ...], any dtype and shape. By convention "edge_attr" are the
    #: features
    tables: dict[str, Tensor] = field(default_factory=dict)
    #: the links of "train", "val" and "test", to learn and to measure. Models see the edges of
    #: `topology` alone. Links that are edges with labels "y" to learn have the attribute "edge_id"
    links: dict[str, LinkSplit] = field(default_factory=dict)
    num_classes: int = 0  # the number of classes in the labels "y" of edges; 0 without

    @property
    def group(self) -> Group:
        """The key of these edges in mappings of nodes and edges."""
        return Group(RowKind.EDGE, self.relation)

    @property
    def num_edges(self) -> int:
        """The number E_r of stored (directed) edges."""
        if isinstance(self.topology, InEdges):
            return self.topology.num_edges
        return int(self.topology.shape[-1])

    @property
    def csc(self) -> InEdges | None:
        """The edges by destination; None if they are a list."""
        return self.topology if isinstance(self.topology, InEdges) else None

    @property
    def edge_index(self) -> Tensor:
        """[2, E_r] int32 or int64, the edges by id. From edges by destination it is made at each
        call, as int64. Raises `DatasetError` if that takes more than half of the free memory."""
        if isinstance(self.topology, Tensor):
            return self.topology
        size, free = _LIST_BYTES * self.num_edges, machine.memory().available
        if size > free // 2:
            fact = f"a list of {self.num_edges:,} edges by id takes {size:,} bytes, and {free:,} are free"
            remedy = "take what reads edges by destination, or a folder with edge_index.npy"
            raise broken("-".join(self.relation), "edge_index", fact, remedy)
        return self.topology.edge_list()

    def some(self, edges: range) -> EdgePiece:
        """Returns the stored edges at these positions, without a list of all edges."""
        at = slice(edges.start, edges.stop)
        if isinstance(self.topology, Tensor):
            source, target = self.topology[:, at]
            return EdgePiece(source, target, torch.arange(edges.start, edges.stop))
        ids = self.topology.edge_ids
        ids = torch.arange(edges.start, edges.stop) if ids is None else ids[at]
        return EdgePiece(self.topology.indices[at], self.topology.targets_of(edges), ids)

    @property
    def num_rows(self) -> int:
        """The number of edges."""
        return self.num_edges


def class_numbers(tables: Mapping[str, Tensor]) -> Tensor | None:
    """Returns the labels "y" as [N] int64 if they are class numbers, else None."""
    y = narrow_class_numbers(tables)
    return None if y is None else y.to(torch.int64)


def narrow_class_numbers(tables: Mapping[str, Tensor]) -> Tensor | None:
    """Returns the labels "y" as [N] in their own integer dtype (unsigned ones of more than 8 bits:
    int64). None unless they are integers [N] or [N, 1]. ``tables``: attributes by name."""
    y = tables.get(LABELS)
    if y is None or y.dtype is torch.bool or y.is_floating_point() or y.is_complex():
        return None
    if y.dim() == 2 and y.shape[1] == 1:
        y = y[:, 0]
    y = y.to(torch.int64) if y.dtype in (torch.uint16, torch.uint32, torch.uint64) else y
    return y if y.dim() == 1 else None


def count_classes(tables: Mapping[str, Tensor]) -> int:
    """Returns the largest class number in "y" + 1; 0 without class numbers."""
    labels = narrow_class_numbers(tables)
    return 0 if labels is None or not labels.numel() else max(int(labels.max()) + 1, 0)


#: The splits that training uses.
SPLITS = ("train", "val", "test")

_Set = TypeVar("_Set", NodeSet, EdgeSet)


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A graph of any node types and relations. Readers return only what `check_dataset` has passed.

    >>> edge_index = torch.tensor([[0, 1], [1, 2]])
    >>> Dataset.homogeneous("mine", 3, edge_index, nodes={"x": torch.zeros(3, 4)})
    Dataset(mine: 3 nodes, 2 edges, 4 features, 0 classes, 0/0/0 train/val/test nodes)

    `nodes`, `edges`, `edge_index`, `splits`, `num_classes` and `num_features` are those of the only
    type or relation; if there are several, they raise an error that names what to read.

    Tensors read from a folder are mapped from its files: only the pages used are read, and writing
    to one changes this process's copy, never the file.
    """

    name: str  # the short name, for `load_dataset` and errors
    node_sets: tuple[NodeSet, ...]  # the nodes, by type
    edge_sets: tuple[EdgeSet, ...]  # the edges, by relation
    source: str = "Given by the caller."  # one sentence: where the data came from
    has_names: bool = True  # False: a homogeneous graph, whose type names are ours, not the user's

    @classmethod
    def homogeneous(
        cls,
        name: str,
        num_nodes: int,
        edge_index: Tensor | InEdges,
        *,
        nodes: Mapping[str, Tensor] | None = None,
        edges: Mapping[str, Tensor] | None = None,
        splits: Mapping[str, Tensor] | None = None,
        num_classes: int | None = None,
        source: str = "Given by the caller.",
    ) -> Dataset:
        """Makes a graph of one node type and one relation. Nothing is copied or checked.
        ``edge_index``: [2, E] int32 or int64, or edges by destination. ``nodes``, ``edges``:
        attributes by name, [N, ...] and [E, ...]. ``splits``: node ids by split, int64.
        ``num_classes``: None counts them (`count_classes`). ``source``: a sentence."""
        tables = dict(nodes or {})
        classes = count_classes(tables) if num_classes is None else num_classes
        return cls(
            name,
            (NodeSet(str(NODES.name), num_nodes, tables, dict(splits or {}), classes),),
            (EdgeSet(HOMOGENEOUS.relations[0], edge_index, dict(edges or {})),),
            source,
            has_names=False,
        )

    @cached_property
    def schema(self) -> Schema:
        """Node types and relations, in the order of the sets."""
        return Schema(
            tuple(nodes.name for nodes in self.node_sets),
            tuple(edges.relation for edges in self.edge_sets),
            self.has_names,
        )

    @property
    def sets(self) -> list[NodeSet | EdgeSet]:
        """All node sets, then all edge sets."""
        return [*self.node_sets, *self.edge_sets]

    @property
    def num_nodes(self) -> int:
        """The number of nodes of all types."""
        return sum(nodes.num_nodes for nodes in self.node_sets)

    @property
    def num_edges(self) -> int:
        """The number of stored (directed) edges of all relations."""
        return sum(edges.num_edges for edges in self.edge_sets)

    def nodes_of(self, name: str) -> NodeSet:
        """Returns the nodes of a type. Raises `KeyError` for an unknown type."""
        return self.node_sets[self.schema.type_number(name)]

    def edges_of(self, relation: Relation) -> EdgeSet:
        """Returns the edges of a relation. Raises `KeyError` for an unknown relation."""
        return self.edge_sets[self.schema.relation_number(relation)]

    def split(self, name: str, node_type: str | None = None) -> Tensor:
        """Returns [n] int64, the node ids of a split; empty if there is no such split.
        ``node_type``: not needed if there is only one."""
        nodes = self.nodes if node_type is None else self.nodes_of(node_type)
        return nodes.splits.get(name, torch.empty(0, dtype=torch.int64))

    def read_topology(self, at_most: int | None = None) -> Dataset:
        """Returns the data set with mapped edges read into memory; if these take more than
        ``at_most`` bytes, the same data set."""
        mapped = [one.topology for one in self.edge_sets if isinstance(one.topology, MappedEdges)]
        if at_most is not None and sum(edges.nbytes for edges in mapped) > at_most:
            return self
        sets = tuple(
            replace(one, topology=one.topology.read()) if isinstance(one.topology, MappedEdges) else one
            for one in self.edge_sets
        )
        return replace(self, edge_sets=sets)

    def without_attributes(self) -> Dataset:
        """Returns the graph and its splits, without attributes."""
        nodes = tuple(replace(one, tables={}) for one in self.node_sets)
        return replace(
            self, node_sets=nodes, edge_sets=tuple(replace(one, tables={}) for one in self.edge_sets)
        )

    @property
    def nodes(self) -> NodeSet:
        return self._only(self.node_sets, "nodes", "nodes_of(type)")

    @property
    def edges(self) -> EdgeSet:
        return self._only(self.edge_sets, "edges", "edges_of(relation)")

    @property
    def edge_index(self) -> Tensor:
        """[2, E] int32 or int64; see `EdgeSet.edge_index`."""
        return self._only(self.edge_sets, "edge_index", "edges_of(relation).edge_index").edge_index

    @property
    def splits(self) -> dict[str, Tensor]:
        """The node ids of the only type by split, int64."""
        return self._only(self.node_sets, "splits", "nodes_of(type).splits").splits

    @property
    def num_classes(self) -> int:
        """The number of classes of the only type."""
        return self._only(self.node_sets, "num_classes", "nodes_of(type).num_classes").num_classes

    @property
    def num_features(self) -> int:
        """The number of columns of "x"; 0 unless "x" has two dimensions."""
        x = self._only(self.node_sets, "num_features", "nodes_of(type).tables").tables.get(FEATURES)
        return int(x.shape[1]) if x is not None and x.dim() == 2 else 0

    def _only(self, sets: Sequence[_Set], name: str, instead: str) -> _Set:
        if len(sets) != 1:
            raise AttributeError(
                f"{name!r} can be read from a data set itself only if it has one node type or relation, but "
                f"{self.name} has {[str(one.group) for one in sets]}; read dataset.{instead}"
            )
        return sets[0]

    def __repr__(self) -> str:
        if not self.schema.is_plain:
            nodes = ", ".join(f"{one.name}={one.num_nodes:,}" for one in self.node_sets)
            edges = ", ".join(f"{'-'.join(one.relation)}={one.num_edges:,}" for one in self.edge_sets)
            return f"Dataset({self.name}: nodes: {nodes}; edges: {edges})"
        sizes = "/".join(f"{len(self.split(name)):,}" for name in SPLITS)
        return (
            f"Dataset({self.name}: {self.num_nodes:,} nodes, {self.num_edges:,} edges, "
            f"{self.num_features} features, {self.num_classes} classes, {sizes} train/val/test nodes)"
        )

    def to_pyg(self, feature_dtype: torch.dtype | None = None) -> Any:
        """Returns the graph as PyG's `Data`, or as `HeteroData` if its types have names. It shares
        the tensors. `edge_index` becomes int64. Edges by destination become `adj_t`, which only our
        loaders read, and `num_edges`. Splits become boolean masks such as `train_mask`.
        ``feature_dtype``: converts `x`; None keeps its dtype. Raises `DatasetError` if two
        attributes, or an attribute and a mask, have one name."""
        from torch_geometric.data import Data, HeteroData

        typed = self.has_names
        data: Any = HeteroData() if typed else Data(num_nodes=self.num_nodes)
        for nodes in self.node_sets:
            store = data[nodes.name] if typed else data
            store.num_nodes = nodes.num_nodes
            masks = {f"{name}_mask": _mask(nodes.num_nodes, index) for name, index in nodes.splits.items()}
            self._fill(store, [*nodes.tables.items(), *masks.items()], feature_dtype)
        for edges in self.edge_sets:
            store = data[edges.relation] if typed else data
            if edges.csc is None:
                self._fill(store, [("edge_index", edges.edge_index.to(torch.int64))], None)
            else:
                store.adj_t, store.num_edges = edges.csc, edges.num_edges  # PyG cannot count them
            self._fill(store, [*edges.tables.items()], None)
        return data

    def _fill(
        self, store: Any, entries: Sequence[tuple[str, Tensor]], feature_dtype: torch.dtype | None
    ) -> None:
        for name, tensor in entries:
            if name in store:
                fact = "is there twice, which a Data cannot hold"
                raise broken(self.name, name, fact, "rename one of them")
            store[name] = converted(tensor, feature_dtype) if name == FEATURES and feature_dtype else tensor


def converted(table: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns a floating-point table in another dtype; int8 codes stay, and decode into it."""
    if isinstance(table, QuantizedTensor):
        return QuantizedTensor(table.codes, table.decoding, dtype)
    return table.to(dtype)


def _mask(num_nodes: int, index: Tensor) -> Tensor:
    mask = torch.zeros(num_nodes, dtype=torch.bool)
    mask[index] = True
    return mask


# Arrays of users ##################################################################################


def to_index(values: np.ndarray, file: str | Path, array: str) -> Tensor:
    """Returns node ids as int32 or int64; integers of other dtypes become int64. ``file``,
    ``array``: the names in a `DatasetError`, here and in the functions below."""
    if values.dtype.kind not in "iu":
        raise broken(file, array, f"dtype is {values.dtype}, expected int32 or int64", "store integers")
    if values.dtype == np.uint64 and values.size and int(values.max()) > np.iinfo(np.int64).max:
        raise broken(file, array, f"value {values.max()} does not fit int64", "store ids below 2^63")
    kept = values.dtype in (np.dtype(np.int32), np.dtype(np.int64))
    return torch.from_numpy(values if kept else values.astype(np.int64))


def to_labels(values: np.ndarray, file: str | Path, array: str) -> Tensor:
    """Returns class numbers, [N] int64. [N, 1] is flattened; NaN means no label, -1."""
    values = _one_column(values)
    if values.dtype.kind != "f":
        return to_index(values, file, array).to(torch.int64)
    known = ~np.isnan(values)
    if len(bad := values[known & ~_is_whole(values)]):
        raise broken(file, array, f"label {bad[0]} is not a whole number", "store class numbers 0..C-1")
    return torch.from_numpy(np.where(known, values, -1).astype(np.int64))


def to_targets(values: np.ndarray, file: str | Path, array: str) -> Tensor:
    """Returns class numbers as `to_labels`; other targets keep shape and dtype."""
    column = _one_column(values)
    whole = column.dtype.kind in "iu" or (
        column.dtype.kind == "f" and bool((_is_whole(column) | np.isnan(column)).all())
    )
    if column.ndim == 1 and whole:
        return to_labels(values, file, array)
    return as_tensor(values, file, array)


def _one_column(values: np.ndarray) -> np.ndarray:
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values


def _is_whole(values: np.ndarray) -> np.ndarray:
    return np.asarray(np.isfinite(values) & (values == np.floor(values)))


def to_features(values: np.ndarray, file: str | Path, array: str) -> Tensor:
    """Returns features in float16 or float32; other dtypes become float32."""
    if values.dtype.kind not in "fiub":
        raise broken(file, array, f"dtype is {values.dtype}, expected float16 or float32", "store numbers")
    kept = values.dtype in (np.dtype(np.float16), np.dtype(np.float32))
    return torch.from_numpy(values if kept else values.astype(np.float32))


def to_codes(codes: Tensor, decoding: Tensor, file: str | Path, array: str) -> QuantizedTensor:
    """Returns an int8-quantised table of ``codes`` [N, F] int8 and ``decoding`` [2, F] float32.
    ``file``, ``array``: the names of the decoding in a `DatasetError`."""
    try:
        return QuantizedTensor(codes, decoding)
    except (TypeError, ValueError) as error:
        raise broken(file, array, str(error), "restore the file or quantise again") from error
