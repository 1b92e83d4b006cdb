"""Small made-up data sets of links, in memory and in the layout of OGB's raw files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from pyg_batchgnn.data import Dataset, EdgeSet, LinkSplit, NodeSet
from tests.support.tiny_datasets import EDGES, NODES, tiny_dataset, write_csv


def pairs(count: int, sources: int, targets: int, seed: int) -> torch.Tensor:
    """Returns [2, count] random pairs."""
    generator = torch.Generator().manual_seed(seed)
    return torch.stack([torch.randint(size, (count,), generator=generator) for size in (sources, targets)])


def link_splits(sources: int, targets: int, seed: int = 0) -> dict[str, LinkSplit]:
    """Returns training links with attributes, validation links with shared negatives, and test
    links with negative targets."""
    some = [pairs(count, sources, targets, seed + count) for count in (9, 4, 5)]
    return {
        "train": LinkSplit(some[0], {"year": torch.arange(9) + 2000, "weight": torch.ones(9, 2)}),
        "val": LinkSplit(some[1].to(torch.int32), {}, negatives=pairs(7, sources, targets, seed)),
        "test": LinkSplit(some[2], {}, negative_targets=pairs(30, targets, targets, seed)[0].view(5, 6)),
    }


def typed_links() -> Dataset:
    """Returns users who buy items, with links of that relation."""
    buys = EdgeSet(("user", "buys_", "item"), pairs(12, 6, 4, 1), {}, link_splits(6, 4))
    back = EdgeSet(("item", "rev_buys", "user"), buys.edge_index.flip(0).clone())
    return Dataset("shop", (NodeSet("user", 6), NodeSet("item", 4)), (buys, back), "Made up for tests.")


def write_ogb_links(root: Path, name: str, *, is_zip: bool = True) -> tuple[Path, dict[str, LinkSplit]]:
    """Writes the raw files of a data set of links; returns its folder and its splits."""
    folder, dataset = root / name.replace("-", "_"), tiny_dataset()
    raw = folder / "raw"
    write_csv(raw / "edge.csv.gz", dataset.edge_index.T.tolist())
    write_csv(raw / "num-node-list.csv.gz", [NODES])
    write_csv(raw / "num-edge-list.csv.gz", [EDGES])
    write_csv(raw / "node-feat.csv.gz", dataset.nodes.tables["x"].tolist())
    splits = {
        "train": LinkSplit(pairs(8, NODES, NODES, 1)),
        "val": LinkSplit(pairs(3, NODES, NODES, 2)),
        "test": LinkSplit(pairs(4, NODES, NODES, 3)),
    }
    if name == "ogbl-collab":
        write_csv(raw / "edge_weight.csv.gz", range(EDGES))
        write_csv(raw / "edge_year.csv.gz", [2000 + at % 3 for at in range(EDGES)])
        for at, (split, links) in enumerate(splits.items()):
            tables = {"weight": torch.arange(len(links)), "year": torch.full((len(links),), 2017 + at)}
            negatives = None if split == "train" else pairs(10, NODES, NODES, 5 + at)
            splits[split] = LinkSplit(links.index, tables, negatives)
    else:
        write_csv(raw / "node_year.csv.gz", [1990 + at for at in range(NODES)])
        for at, (split, links) in enumerate(splits.items()):
            others = None if split == "train" else pairs(len(links) * 6, NODES, NODES, at)[0].view(-1, 6)
            splits[split] = LinkSplit(links.index, {}, None, others)
    (folder / "split" / "time").mkdir(parents=True)
    for file, split in (("train", "train"), ("valid", "val"), ("test", "test")):
        content = _as_ogb_has_it(splits[split])
        path = folder / "split" / "time" / f"{file}.pt"
        torch.save(content, path, _use_new_zipfile_serialization=is_zip)
    return folder, splits


def _as_ogb_has_it(links: LinkSplit) -> dict[str, np.ndarray]:
    """Returns the arrays of a split by OGB's names."""
    if links.tables:
        content = {"edge": np.ascontiguousarray(links.index.numpy().T)}
        content |= {name: table.numpy() for name, table in links.tables.items()}
        return content | ({} if links.negatives is None else {"edge_neg": links.negatives.numpy().T})
    content = {"source_node": links.index[0].numpy(), "target_node": links.index[1].numpy()}
    if links.negative_targets is not None:
        content["target_node_neg"] = links.negative_targets.numpy()
    return content
