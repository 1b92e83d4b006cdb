"""Small graphs with times, and with keys of their nodes as a folder made of tables has them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from pyg_batchgnn.data import Dataset, EdgeSet, LinkSplit, NodeSet, write_folder
from pyg_batchgnn.types import Relation

PAYMENTS, CARDS, USERS, ITEMS, PURCHASES = 400, 40, 30, 24, 500
BY: Relation = ("payment", "by", "card")
BUYS: Relation = ("user", "buys", "item")
BACK: Relation = ("item", "rev_buys", "user")


def bank(labels: str = "labels") -> Dataset:
    """Returns payments with a time, in no order, and the cards they were made with. ``labels``:
    "labels", "classes" or "values"."""
    draw = torch.Generator().manual_seed(3)
    time = torch.randint(1000, (PAYMENTS,), generator=draw)
    card = torch.randint(CARDS, (PAYMENTS,), generator=draw)
    x = torch.randn(PAYMENTS, 4, generator=draw)
    y = {"labels": (x[:, :1] > 0.8), "classes": torch.arange(PAYMENTS) % 3, "values": x[:, 0] * 2}[labels]
    splits = {"train": time < 600, "val": (time >= 600) & (time < 800), "test": time >= 800}
    nodes = {name: mask.nonzero().view(-1) for name, mask in splits.items()}
    tables, classes = {"x": x, "y": y, "time": time}, 3 if labels == "classes" else 0
    payments = NodeSet("payment", PAYMENTS, tables, nodes, classes)
    cards = NodeSet("card", CARDS, {"x": torch.randn(CARDS, 3, generator=draw)})
    by = torch.stack([torch.arange(PAYMENTS), card])
    edges = EdgeSet(BY, by), EdgeSet(("card", "rev_by", "payment"), by.flip(0).contiguous())
    return Dataset("bank", (payments, cards), edges, "Made up for tests.")


def shop() -> Dataset:
    draw = torch.Generator().manual_seed(4)
    index = torch.stack([torch.randint(n, (PURCHASES,), generator=draw) for n in (USERS, ITEMS)])
    time = torch.randint(1000, (PURCHASES,), generator=draw)
    splits = {"train": (time > 100) & (time < 700), "val": (time >= 700) & (time < 850), "test": time >= 850}
    links = {name: LinkSplit(index[:, keep], {"time": time[keep]}) for name, keep in splits.items()}
    nodes = tuple(
        NodeSet(name, n, {"x": torch.randn(n, 5, generator=draw)})
        for name, n in (("user", USERS), ("item", ITEMS))
    )
    edges = (
        EdgeSet(BUYS, index, {"time": time}, links),
        EdgeSet(BACK, index.flip(0).contiguous(), {"time": time.clone()}),
    )
    return Dataset("shop", nodes, edges, "Made up for tests.")


def with_signup(dataset: Dataset) -> Dataset:
    """Returns the shop with a time from which each user exists, after some of its purchases."""
    users, items = dataset.node_sets
    time = torch.arange(USERS) * 20
    return replace(dataset, node_sets=(replace(users, tables={**users.tables, "time": time}), items))


def with_edges(dataset: Dataset, kept: torch.Tensor) -> Dataset:
    edge_sets = []
    for one in dataset.edge_sets:
        tables = {name: table[kept] for name, table in one.tables.items()}
        edge_sets.append(replace(one, topology=one.edge_index[:, kept], tables=tables))
    return replace(dataset, edge_sets=tuple(edge_sets))


def write_keyed(dataset: Dataset, path: Path) -> Path:
    """Writes a data set with keys: strings of payments, users and items, and two columns of cards.
    The time counts hours of 2024, in seconds; classes are words."""
    write_folder(dataset, path)
    (path / "keys").mkdir()
    for nodes in dataset.node_sets:
        ids = np.arange(nodes.num_nodes)
        columns = {f"{nodes.name}_id": [f"{nodes.name[0]}-{(7 * one) % nodes.num_nodes:03d}" for one in ids]}
        if nodes.name == "card":
            columns = {"bank": pa.array(ids % 3, pa.int16()), "number": [f"{one // 3:02d}" for one in ids]}
        pq.write_table(pa.table(columns), path / "keys" / f"{nodes.name}.parquet", row_group_size=11)
        if nodes.num_classes:
            content = {"column": "y", "values": ["rock", "jazz", "pop"]}
            (path / "keys" / f"{nodes.name}.classes.json").write_text(json.dumps(content))
    (path / "keys" / "times.json").write_text(json.dumps({"unit": "s", "timezone": "UTC"}))
    (path / "tables.json").write_text("{}")
    return path
