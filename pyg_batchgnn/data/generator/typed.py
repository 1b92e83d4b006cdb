"""Makes graphs of papers, authors, fields and institutions, with power-law relations.

Nodes lie in communities, which most edges stay within. A paper has the class of its
community, and an author its labels. Every number is drawn in blocks, so that a graph may
be larger than memory.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import torch

from pyg_batchgnn.data.check import check_dataset
from pyg_batchgnn.data.dataset import SPLITS, Dataset, EdgeSet, NodeSet
from pyg_batchgnn.data.files import EdgeAppender, NpyAppender, new_file
from pyg_batchgnn.data.folder_write import new_folder
from pyg_batchgnn.data.generator.edges import coprime_strides
from pyg_batchgnn.data.generator.spec import TypedGeneratorSpec
from pyg_batchgnn.data.meta import Meta, attribute_array, edge_array, promises_in, split_array, write_meta
from pyg_batchgnn.types import Relation, Schema

#: The arrangement of random numbers: folders made by another one are not taken for this one's.
TYPED_GENERATOR_VERSION = 1
_BLOCK = 1 << 16
_GROUP_NODES, _LABELS, _TIMES = 512, 3, 1_000_003
_NEAR, _LABEL_NOISE, _EXPONENT = 0.8, 0.05, 2.5

#: The relations that are drawn, with the mean number of edges of each node of the first type.
_DRAWN: dict[Relation, float | None] = {
    ("paper", "cites", "paper"): None,  # of the spec
    ("paper", "has_topic", "field"): 4.0,
    ("paper", "rev_writes", "author"): 3.0,
    ("author", "affiliated_with", "institution"): 1.0,
}
#: The relations that are reverses of drawn ones.
_REVERSED: dict[Relation, Relation] = {
    ("author", "writes", "paper"): ("paper", "rev_writes", "author"),
    ("field", "rev_has_topic", "paper"): ("paper", "has_topic", "field"),
    ("institution", "rev_affiliated_with", "author"): ("author", "affiliated_with", "institution"),
}
TYPED_SCHEMA = Schema(("author", "field", "institution", "paper"), tuple(sorted({**_DRAWN, **_REVERSED})))


def generate_typed(spec: TypedGeneratorSpec) -> Dataset:
    """Makes a graph in memory, of the same arrays as `generate_typed_folder` writes."""
    arrays: dict[str, list[np.ndarray]] = {}
    for array, piece in _pieces(spec):
        arrays.setdefault(array, []).append(piece)
    joined = {
        array: torch.from_numpy(np.concatenate(pieces, axis=1 if array.startswith("edge_index") else 0))
        for array, pieces in arrays.items()
    }
    node_sets, edge_sets = [], []
    for group, (name, count) in zip(TYPED_SCHEMA.node_groups, spec.num_nodes.items(), strict=True):
        tables = {key: joined.get(attribute_array(group, key)) for key in ("x", "y", "time")}
        splits = {key: joined.get(split_array(group, key)) for key in SPLITS}
        node_sets.append(
            NodeSet(
                name,
                count,
                {key: table for key, table in tables.items() if table is not None},
                {key: ids for key, ids in splits.items() if ids is not None},
                spec.classes if name == "paper" else 0,
            )
        )
    for group, relation in zip(TYPED_SCHEMA.edge_groups, TYPED_SCHEMA.relations, strict=True):
        time = joined.get(attribute_array(group, "time"))
        edge_index = joined[edge_array("edge_index", group)]
        edge_sets.append(EdgeSet(relation, edge_index, {} if time is None else {"time": time}))
    return check_dataset(Dataset(spec.name, tuple(node_sets), tuple(edge_sets), spec.source))


def generate_typed_folder(spec: TypedGeneratorSpec, path: str | Path) -> Path:
    """Makes a graph in a new folder that `read_folder` maps, in pieces."""
    with new_folder(path) as folder:
        with ExitStack() as stack:
            edges, rows = dict[str, EdgeAppender](), dict[str, NpyAppender]()
            for array, piece in _pieces(spec):
                file = new_file(folder, array)
                if array.startswith("edge_index"):
                    if array not in edges:
                        edges[array] = stack.enter_context(EdgeAppender(file, piece.dtype))
                    edges[array].append(piece[0], piece[1])
                else:
                    if array not in rows:
                        rows[array] = stack.enter_context(NpyAppender(file, piece.dtype, piece.shape[1:]))
                    rows[array].append(piece)
        classes = {"author": 0, "field": 0, "institution": 0, "paper": spec.classes}
        origin = {"typed_generator": dataclasses.asdict(spec), "generator_version": TYPED_GENERATOR_VERSION}
        promises = promises_in(folder)
        write_meta(
            folder, Meta(spec.name, spec.source, TYPED_SCHEMA, spec.num_nodes, classes, promises, origin)
        )
    return Path(path).expanduser()


def _pieces(spec: TypedGeneratorSpec) -> Iterator[tuple[str, np.ndarray]]:
    groups = dict(zip(TYPED_SCHEMA.relations, TYPED_SCHEMA.edge_groups, strict=True))
    reverse_of = {drawn: reverse for reverse, drawn in _REVERSED.items()}
    for number, (relation, mean) in enumerate(_DRAWN.items()):
        for block in _blocks(spec.num_nodes[relation[0]]):
            random = np.random.default_rng([spec.seed, 1 + number, block.start])
            edges = _edges(spec, random, relation, block, spec.degree if mean is None else mean)
            yield edge_array("edge_index", groups[relation]), edges
            if mean is None:
                yield attribute_array(groups[relation], "time"), _time(edges[0])
            if relation in reverse_of:
                yield edge_array("edge_index", groups[reverse_of[relation]]), edges[::-1]
    for name in ("paper", "author"):
        yield from _nodes(spec, name)


def _blocks(count: int) -> Iterator[range]:
    return (range(begin, min(begin + _BLOCK, count)) for begin in range(0, count, _BLOCK))


def _edges(
    spec: TypedGeneratorSpec, random: np.random.Generator, relation: Relation, block: range, mean: float
) -> np.ndarray:
    sources, targets = spec.num_nodes[relation[0]], spec.num_nodes[relation[2]]
    alpha, ids = 1.0 / (_EXPONENT - 1.0), np.arange(block.start, block.stop)
    wanted = mean * (1.0 - alpha) * (1.0 - random.random(len(ids))) ** -alpha
    np.minimum(wanted, mean * math.sqrt(targets), out=wanted)
    source = np.repeat(ids, np.floor(wanted + random.random(len(ids))).astype(np.int64))
    group, groups = _group(spec, source, sources), _groups(spec)
    starts = np.arange(groups + 1) * targets // groups
    near = random.random(len(source)) < _NEAR
    near &= starts[group + 1] > starts[group]
    begin = np.where(near, starts[group], 0)
    size = np.where(near, starts[group + 1] - starts[group], targets)
    # floor(size * u^power) has a power law of the wanted exponent among ranks
    rank = (random.random(len(source)) ** ((_EXPONENT - 1.0) / (_EXPONENT - 2.0)) * size).astype(np.int64)
    place = begin + np.minimum(rank, size - 1)
    return np.stack([source, place * _stride(targets) % targets]).astype(np.int32)


def _nodes(spec: TypedGeneratorSpec, name: str) -> Iterator[tuple[str, np.ndarray]]:
    count, number = spec.num_nodes[name], TYPED_SCHEMA.type_number(name)
    group = TYPED_SCHEMA.node_groups[number]
    means = np.random.default_rng([spec.seed, 100]).standard_normal((spec.classes, spec.features))
    for block in _blocks(count):
        random = np.random.default_rng([spec.seed, 101 + number, block.start])
        ids = np.arange(block.start, block.stop)
        community = _group(spec, ids, count)
        if name == "paper":
            known = community % spec.classes
            noisy = random.random(len(ids)) < _LABEL_NOISE
            yield (
                attribute_array(group, "y"),
                np.where(noisy, random.integers(0, spec.classes, len(ids)), known),
            )
            x = random.standard_normal((len(ids), spec.features), dtype=np.float32)
            yield attribute_array(group, "x"), x + means[known].astype(np.float32)
            yield attribute_array(group, "time"), _time(ids)
        else:
            bits = community[:, None] >> np.arange(_LABELS) & 1
            noisy = random.random(bits.shape) < _LABEL_NOISE
            yield attribute_array(group, "y"), np.where(noisy, 1 - bits, bits)
        part = random.random(len(ids))
        for split, (low, high) in zip(SPLITS, ((0.0, 0.6), (0.6, 0.8), (0.8, 1.0)), strict=True):
            yield split_array(group, split), ids[(part >= low) & (part < high)]


def _time(ids: np.ndarray) -> np.ndarray:
    """Returns the times of papers, which look random."""
    return ids.astype(np.int64) * 2_654_435_761 % _TIMES


def _groups(spec: TypedGeneratorSpec) -> int:
    return max(spec.papers // _GROUP_NODES, spec.classes)


def _group(spec: TypedGeneratorSpec, ids: np.ndarray, count: int) -> np.ndarray:
    """Returns the community of each id of a type; ids are scattered among communities."""
    place = ids * pow(_stride(count), -1, count) % count
    starts = np.arange(_groups(spec) + 1) * count // _groups(spec)
    return np.searchsorted(starts, place, side="right") - 1


def _stride(count: int) -> int:
    return int(coprime_strides(np.array([count]))[0])
