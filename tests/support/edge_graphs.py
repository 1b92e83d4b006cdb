"""Data sets whose edges have features, times and labels."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn.data import EDGE_ID, Dataset, EdgeSet, LinkSplit, NodeSet, with_reverse_relations

PAYS = ("account", "pays", "account")


def payments(accounts: int = 120, edges: int = 900, *, timed: bool = False, labels: str = "class") -> Dataset:
    """Accounts that pay each other, some of them several times. The label of a payment follows from
    its features and from what its source paid before."""
    draw = torch.Generator().manual_seed(5)
    index = torch.randint(accounts, (2, edges), generator=draw)
    index[:, ::7] = index[:, :1]  # parallel edges
    attr, x = torch.randn(edges, 3, generator=draw), torch.randn(accounts, 4, generator=draw)
    score = attr[:, 0] + 2 * x[index[0], 0] + x[index[1], 1]
    y = {"class": (score > 0).long() + (score > 2).long(), "label": (score > 0)[:, None], "value": score}
    tables: dict[str, Tensor] = {"edge_attr": attr, "y": y[labels]}
    if timed:
        tables["time"] = torch.arange(edges)
    ids = {"train": slice(0, 600), "val": slice(600, 750), "test": slice(750, edges)}
    links = {}
    for split, part in ids.items():
        edge = torch.arange(edges)[part]
        links[split] = LinkSplit(index[:, edge], {EDGE_ID: edge})
    sets = EdgeSet(PAYS, index, tables, links, 3 if labels == "class" else 0)
    nodes = NodeSet("account", accounts, {"x": x})
    return with_reverse_relations(Dataset("payments", (nodes,), (sets,)))
