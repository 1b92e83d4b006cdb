"""Makes a generated graph in memory, or in a folder, some rows at a time."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.data.check import check_dataset
from pyg_batchgnn.data.csc import INDICES, INDPTR
from pyg_batchgnn.data.dataset import SPLITS, Dataset, EdgeSet, NodeSet
from pyg_batchgnn.data.errors import DatasetError
from pyg_batchgnn.data.files.durable import new_file
from pyg_batchgnn.data.files.npy import EdgeAppender, NpyAppender, promise_of
from pyg_batchgnn.data.folder_write import new_folder
from pyg_batchgnn.data.generator.communities import community_pieces, typed_pieces
from pyg_batchgnn.data.generator.papers import papers_pieces
from pyg_batchgnn.data.generator.pieces import DrawnPiece, ProgressBar, StartPhase, progress_bar
from pyg_batchgnn.data.generator.spec import GeneratorSpec, PapersSpec, TypedGeneratorSpec
from pyg_batchgnn.data.meta import Meta, attribute_array, csc_array, edge_array, split_array, write_meta
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.types import FEATURES, LABELS, Group

#: The parameters of any generated graph.
AnySpec = GeneratorSpec | TypedGeneratorSpec | PapersSpec

PIECE_NODES = 1 << 19
_ATTRIBUTES = (FEATURES, LABELS, "time")


def generate(spec: AnySpec) -> Dataset:
    """Makes a graph in memory, with the bytes that `generate_folder` writes. The edges of a
    `GeneratorSpec` go both ways, sorted by source and destination, without self loops or repeats.
    Raises `DatasetError`."""
    pieces: dict[str, list[np.ndarray]] = {}
    types: dict[str, torch.dtype] = {}
    for piece in _pieces(spec, lambda _phase, _steps: lambda: None):
        pieces.setdefault(piece.array, []).append(piece.values)
        if piece.dtype is not None:
            types[piece.array] = piece.dtype
    arrays = {}
    for array in list(pieces):
        whole = np.concatenate(pieces.pop(array), axis=1 if array.startswith("edge_index") else 0)
        found = torch.from_numpy(whole)
        arrays[array] = found.view(types.get(array, found.dtype))
    schema = spec.schema
    node_sets = [
        NodeSet(
            str(group.name),
            spec.num_nodes[str(group.name)],
            _tables(arrays, group),
            {name: arrays[one] for name in SPLITS if (one := split_array(group, name)) in arrays},
            spec.num_classes[str(group.name)],
        )
        for group in schema.node_groups
    ]
    edge_sets = [
        EdgeSet(relation, _topology(arrays, group), _tables(arrays, group))
        for relation, group in zip(schema.relations, schema.edge_groups, strict=True)
    ]
    return check_dataset(
        Dataset(spec.name, tuple(node_sets), tuple(edge_sets), spec.source, schema.has_names)
    )


def _tables(arrays: dict[str, Tensor], group: Group) -> dict[str, Tensor]:
    return {name: arrays[one] for name in _ATTRIBUTES if (one := attribute_array(group, name)) in arrays}


def _topology(arrays: dict[str, Tensor], group: Group) -> Tensor | InEdges:
    listed = arrays.get(edge_array("edge_index", group))
    if listed is not None:
        return listed
    return InEdges(arrays[csc_array(group, INDPTR)], arrays[csc_array(group, INDICES)])


def generate_folder(
    spec: AnySpec,
    path: str | Path,
    *,
    piece_nodes: int = PIECE_NODES,
    progress: ProgressBar = ProgressBar.AUTO,
) -> Path:
    """Makes a graph in a new folder, which `read_folder` maps and which may exceed memory.

    >>> generate_folder(GeneratorSpec(nodes=10**3, half=1), "graphs/new")
    PosixPath('graphs/new')

    With a `GeneratorSpec`, memory peaks at about 32 * degree bytes per node of ``piece_nodes``, and
    the folder takes about twice the disk space of the finished edges meanwhile. With a
    `PapersSpec`, memory peaks at 10 bytes per node and about 200 MiB: 1.3 GiB for papers100M.

    Args:
        spec: the graph's parameters.
        path: the new folder; it must not exist, and appears only when it is complete.
        piece_nodes: with a `GeneratorSpec`, the sources whose edges are sorted at once. It does not
            change the result.
        progress: whether a progress bar is shown.

    Raises:
        DatasetError: ``path`` exists, the disk lacks space, or ``piece_nodes`` is below 1.
    """
    if piece_nodes < 1:
        raise DatasetError(f"generator: piece_nodes is {piece_nodes}; give 1 or more")
    nodes = sum(spec.num_nodes.values())
    with new_folder(path) as folder, progress_bar(nodes, progress) as start_phase:
        free = shutil.disk_usage(folder).free
        if free < spec.estimated_bytes:
            raise DatasetError(
                f"{folder.parent}: {spec.name} takes about {spec.estimated_bytes:,} bytes, and the disk has "
                f"{free:,} free; free some, choose another folder, or fewer nodes"
            )
        rows, edges = dict[str, NpyAppender](), dict[str, EdgeAppender]()
        with ExitStack() as stack:
            for array, values, dtype, count in _pieces(spec, start_phase, folder, piece_nodes):
                file = new_file(folder, array)
                if array.startswith("edge_index"):
                    if array not in edges:
                        edges[array] = stack.enter_context(EdgeAppender(file, values.dtype))
                    edges[array].append(values[0], values[1])
                else:
                    if array not in rows:
                        out = NpyAppender(file, dtype or values.dtype, values.shape[1:], count)
                        rows[array] = stack.enter_context(out)
                    rows[array].append(values)
        promises = {array: out.promise() for array, out in rows.items()}
        promises |= {array: promise_of(folder / f"{array}.npy") for array in edges}
        named = (spec.name, spec.source, spec.schema, spec.num_nodes, spec.num_classes)
        write_meta(folder, Meta(*named, promises, spec.origin))
    return Path(path).expanduser()


def _pieces(
    spec: AnySpec, start_phase: StartPhase, folder: Path | None = None, piece_nodes: int = PIECE_NODES
) -> Iterator[DrawnPiece]:
    if isinstance(spec, GeneratorSpec):
        return community_pieces(spec, start_phase, folder, piece_nodes)
    return typed_pieces(spec) if isinstance(spec, TypedGeneratorSpec) else papers_pieces(spec, start_phase)
