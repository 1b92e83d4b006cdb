"""Makes a generated graph in memory, or in pieces in a folder."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from pyg_batchgnn.data.check import check_dataset
from pyg_batchgnn.data.dataset import SPLITS, Dataset
from pyg_batchgnn.data.errors import DatasetError
from pyg_batchgnn.data.files import EdgeAppender, NpyAppender
from pyg_batchgnn.data.folder_write import new_folder
from pyg_batchgnn.data.generator.edges import (
    Communities,
    EdgeBuckets,
    IdPermutation,
    class_means,
    edge_keys,
    make_communities,
    make_nodes,
    num_blocks,
    split_keys,
)
from pyg_batchgnn.data.generator.progress import ProgressBar, StartPhase, progress_bar
from pyg_batchgnn.data.generator.spec import GeneratorSpec
from pyg_batchgnn.data.meta import Meta, attribute_array, promises_in, split_array, write_meta
from pyg_batchgnn.types import FEATURES, HOMOGENEOUS, LABELS, NODES

# The arrangement of random numbers: folders made by another one are not taken for this one's.
GENERATOR_VERSION = 1
PIECE_NODES = 1 << 19


def generate(spec: GeneratorSpec) -> Dataset:
    """Makes a graph in memory, of the same bytes as `generate_folder` writes. Edges come in both
    directions, sorted by source and then destination, without self loops or repeats."""
    communities, permutation, means = make_communities(spec), IdPermutation(spec), class_means(spec)
    pieces = [
        keys for block in range(num_blocks(spec)) for keys in edge_keys(spec, communities, permutation, block)
    ]
    all_keys = np.concatenate(pieces)
    del pieces
    all_keys.sort()
    edge_index = np.stack(split_keys(all_keys))
    del all_keys
    blocks = [make_nodes(spec, communities, permutation, means, block) for block in range(num_blocks(spec))]
    splits = zip(SPLITS, zip(*(block.splits for block in blocks), strict=True), strict=True)
    dataset = Dataset.homogeneous(
        spec.name,
        spec.nodes,
        torch.from_numpy(edge_index),
        nodes={
            FEATURES: torch.from_numpy(np.concatenate([block.x for block in blocks])),
            LABELS: torch.from_numpy(np.concatenate([block.y for block in blocks])),
        },
        splits={name: torch.from_numpy(np.concatenate(pieces)) for name, pieces in splits},
        num_classes=spec.classes,
        source=spec.source,
    )
    return check_dataset(dataset)


def generate_folder(
    spec: GeneratorSpec,
    path: str | Path,
    *,
    piece_nodes: int = PIECE_NODES,
    progress: ProgressBar = ProgressBar.AUTO,
) -> Path:
    """Makes a graph in a new folder that `read_folder` maps; returns the folder.

    Peak memory is about 32 * degree bytes per node of a piece, not of the graph, and on the way the
    folder takes about twice the disk space of the finished edges. ``piece_nodes``: sources whose
    edges are sorted at once. It does not change the result.
    """
    if piece_nodes < 1:
        raise DatasetError(f"generator: piece_nodes is {piece_nodes}; give 1 or more")
    communities, permutation = make_communities(spec), IdPermutation(spec)
    with new_folder(path) as folder, progress_bar(spec.nodes, progress) as start_phase:
        _write_edges(spec, communities, permutation, folder, piece_nodes, start_phase)
        _write_nodes(spec, communities, permutation, folder, start_phase)
        origin = {"generator": asdict(spec), "generator_version": GENERATOR_VERSION}
        counts, classes = {"node": spec.nodes}, {"node": spec.classes}
        meta = Meta(spec.name, spec.source, HOMOGENEOUS, counts, classes, promises_in(folder), origin)
        write_meta(folder, meta)
    return Path(path).expanduser()


def _write_edges(
    spec: GeneratorSpec,
    communities: Communities,
    permutation: IdPermutation,
    folder: Path,
    piece_nodes: int,
    start_phase: StartPhase,
) -> None:
    with EdgeBuckets(folder, spec.nodes, piece_nodes) as buckets:
        advance = start_phase("drawing edges", num_blocks(spec))
        for block in range(num_blocks(spec)):
            for keys in edge_keys(spec, communities, permutation, block):
                buckets.add(keys)
            advance()
        advance = start_phase("sorting edges", len(buckets))
        with EdgeAppender(folder / "edge_index.npy", np.int32) as out:
            for keys in buckets.drain():
                out.append(*split_keys(keys))
                advance()


def _write_nodes(
    spec: GeneratorSpec,
    communities: Communities,
    permutation: IdPermutation,
    folder: Path,
    start_phase: StartPhase,
) -> None:
    advance = start_phase("drawing features", num_blocks(spec))
    means = class_means(spec)
    with ExitStack() as stack:
        x_out = stack.enter_context(
            NpyAppender(_file(folder, FEATURES), spec.feature_dtype, (spec.features,))
        )
        y_out = stack.enter_context(NpyAppender(_file(folder, LABELS), np.int64))
        split_outs = [
            stack.enter_context(NpyAppender(folder / f"{split_array(NODES, name)}.npy", np.int64))
            for name in SPLITS
        ]
        for block in range(num_blocks(spec)):
            nodes = make_nodes(spec, communities, permutation, means, block)
            x_out.append(nodes.x)
            y_out.append(nodes.y)
            for out, ids in zip(split_outs, nodes.splits, strict=True):
                out.append(ids)
            advance()


def _file(folder: Path, name: str) -> Path:
    return folder / f"{attribute_array(NODES, name)}.npy"
