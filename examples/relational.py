"""Relational learning: RelBench's tables, graphs, tasks and models on this package's loaders.

A database of customers, products and reviews is made here. One task asks whether a customer will
write no review in the next 60 days, another which products a customer will review. RelBench's own
data sets (`relbench.load_dataset`) take the same way. Needs `pip install relbench pytorch-frame
pandas`, and no pyg-lib. It takes about a minute.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from relbench.base import Database, Table, TaskType
from relbench.modeling.graph import (
    get_link_train_table_input,
    get_node_train_table_input,
    make_pkey_fkey_graph,
)
from relbench.modeling.nn import HeteroEncoder, HeteroGraphSAGE, HeteroTemporalEncoder
from relbench.modeling.utils import get_stype_proposal
from torch import Tensor
from torch_geometric.data import HeteroData

from pyg_batchgnn import MacrobatchLinkNeighborLoader, MacrobatchNeighborLoader, accelerate

DAY = pd.Timedelta(days=1)
START = pd.Timestamp("2025-01-01")
HORIZON = 60


def make_database(customers: int, products: int, reviews: int, seed: int = 0) -> Database:
    """Returns a database in which some customers write often, and like one of eight kinds."""
    draw = np.random.default_rng(seed)
    busy, taste = draw.gamma(0.5, 1.0, customers), draw.integers(8, size=customers)
    kind = draw.integers(8, size=products)
    who = draw.choice(customers, reviews, p=busy / busy.sum())
    what = draw.integers(products, size=reviews)
    by_kind = [np.flatnonzero(kind == one) for one in range(8)]
    liked = draw.random(reviews) < 0.8
    what[liked] = [draw.choice(by_kind[one]) for one in taste[who[liked]]]
    day = draw.uniform(0, 360, reviews)
    order = np.argsort(day)
    rating = np.clip(3 + 1.5 * (taste[who] == kind[what]) + draw.normal(0, 0.7, reviews), 1, 5)
    tables = {
        "customer": Table(
            pd.DataFrame({"customer_id": range(customers), "age": draw.integers(16, 90, customers)}),
            {},
            pkey_col="customer_id",
        ),
        "product": Table(
            pd.DataFrame({"product_id": range(products), "kind": np.array(list("abcdefgh"))[kind]}),
            {},
            pkey_col="product_id",
        ),
        "review": Table(
            pd.DataFrame(
                {
                    "customer_id": who[order],
                    "product_id": what[order],
                    "rating": rating[order],
                    "written": START + day[order] * DAY,
                }
            ),
            {"customer_id": "customer", "product_id": "product"},
            time_col="written",
        ),
    }
    return Database(tables)


def training_tables(database: Database, days: list[int]) -> tuple[Table, Table]:
    """Returns what is known of some days: who stops, and what each customer reviews next."""
    reviews = database.table_dict["review"].df
    stops, bought = [], []
    for day in days:
        now = START + day * DAY
        past = reviews[reviews.written <= now]
        soon = reviews[(reviews.written > now) & (reviews.written <= now + HORIZON * DAY)]
        seen = past.customer_id.unique()
        ends = ~np.isin(seen, soon.customer_id.unique())
        stops.append(pd.DataFrame({"written": now, "customer_id": seen, "stops": ends.astype(float)}))
        lists = soon[soon.customer_id.isin(seen)].groupby("customer_id").product_id.unique()
        bought.append(pd.DataFrame({"written": now, "customer_id": lists.index, "product_id": lists.values}))
    keys = {"customer_id": "customer"}
    return (
        Table(pd.concat(stops, ignore_index=True), keys, time_col="written"),
        Table(pd.concat(bought, ignore_index=True), {**keys, "product_id": "product"}, time_col="written"),
    )


class Model(torch.nn.Module):
    """RelBench's encoders of columns and of times, and its GraphSAGE."""

    def __init__(self, graph: HeteroData, statistics: dict[str, Any], columns: int) -> None:
        super().__init__()
        names = {name: graph[name].tf.col_names_dict for name in graph.node_types}
        self.encoder = HeteroEncoder(
            columns, names, statistics, torch_frame_model_kwargs={"channels": 32, "num_layers": 1}
        )
        timed = [name for name in graph.node_types if "time" in graph[name]]
        self.times = HeteroTemporalEncoder(timed, columns)
        self.layers = HeteroGraphSAGE(graph.node_types, graph.edge_types, columns)
        self.head = torch.nn.Linear(columns, 1)

    def forward(self, batch: HeteroData, seed_time: Tensor) -> dict[str, Tensor]:
        """Returns the rows of all nodes of a batch by type."""
        x = self.encoder(batch.tf_dict)
        for name, rows in self.times(seed_time, batch.time_dict, batch.batch_dict).items():
            x[name] = x[name] + rows
        return self.layers(x, batch.edge_index_dict)


def later_than_seeds(batch: HeteroData, seed_time: Tensor) -> int:
    """Returns the number of nodes of a batch that are later than the seed that they belong to."""
    return sum(int((time > seed_time[batch[name].batch]).sum()) for name, time in batch.time_dict.items())


database = make_database(customers=2_000, products=300, reviews=30_000)
stypes = get_stype_proposal(database)
graph, statistics = make_pkey_fkey_graph(database, stypes)
print(graph.node_types, len(graph.edge_types), "relations")

train, test = (training_tables(database, days) for days in ([90, 150, 210], [280]))
churn = SimpleNamespace(
    entity_table="customer",
    entity_col="customer_id",
    target_col="stops",
    task_type=TaskType.BINARY_CLASSIFICATION,
)


def node_loader(table: Table, shuffle: bool) -> MacrobatchNeighborLoader:
    """Returns a loader of the rows of a task's table, each with its past alone."""
    rows = get_node_train_table_input(table, churn)
    return MacrobatchNeighborLoader(
        graph,
        num_neighbors=[10, 5],
        input_nodes=rows.nodes,
        input_time=rows.time,
        time_attr="time",
        temporal_strategy="last",
        transform=rows.transform,
        batch_size=256,
        shuffle=shuffle,
        seed=0,
    )


torch.manual_seed(0)
model = accelerate(Model(graph, statistics, 32))
optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
sampled = later = 0
for _ in range(5):
    model.train()
    for batch in node_loader(train[0], shuffle=True):
        seeds = batch["customer"]
        score = model.head(model(batch, seeds.seed_time)["customer"][: seeds.batch_size]).view(-1)
        loss = F.binary_cross_entropy_with_logits(score, seeds.y.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        sampled += sum(batch.num_nodes_dict.values())
        later += later_than_seeds(batch, seeds.seed_time)
print(f"{sampled:,} sampled nodes, {later} of them later than their seed")

model.eval()
scores, stops = [], []
with torch.no_grad():
    for batch in node_loader(test[0], shuffle=False):
        seeds = batch["customer"]
        scores.append(model.head(model(batch, seeds.seed_time)["customer"][: seeds.batch_size]).view(-1))
        stops.append(seeds.y)
rank = torch.cat(scores).argsort().argsort().double()
stop = torch.cat(stops) > 0
auc = (rank[stop].mean() - (stop.sum() - 1) / 2) / (~stop).sum()
print(f"who stops: ROC-AUC {auc:.3f}")

# Recommendations: the pairs of a customer and a product of the customer's list are links at their
# time. They are no edges of the graph; ("customer", "reviews", "product") is the name of the task.
task = SimpleNamespace(
    src_entity_table="customer",
    src_entity_col="customer_id",
    dst_entity_table="product",
    dst_entity_col="product_id",
)
rows = get_link_train_table_input(train[1], task, num_dst_nodes=graph["product"].num_nodes)
lists = rows.dst_nodes[1].to_sparse_coo().coalesce().indices()
pairs = torch.stack([rows.src_nodes[1][lists[0]], lists[1]])
loader = MacrobatchLinkNeighborLoader(
    graph,
    num_neighbors=[10, 5],
    edge_label_index=(("customer", "reviews", "product"), pairs),
    edge_label_time=rows.src_time[lists[0]],
    time_attr="time",
    neg_sampling="triplet",
    batch_size=256,
    shuffle=True,
    seed=0,
)
model = accelerate(Model(graph, statistics, 32))
optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
losses, later = [], 0
for batch in loader:
    seed_time = batch["customer"].seed_time
    later += later_than_seeds(batch, seed_time)
    out = model(batch, seed_time)
    source, product = out["customer"][batch["customer"].src_index], out["product"]
    positive = (source * product[batch["product"].dst_pos_index]).sum(1)
    negative = (source * product[batch["product"].dst_neg_index]).sum(1)
    loss = F.softplus(negative - positive).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(float(loss.detach()))
mean = sum(losses[-10:]) / 10
print(f"recommendation: loss {losses[0]:.3f} to {mean:.3f}, {later} nodes later than their seed")
