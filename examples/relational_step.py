"""RelBench's entity step, unchanged and with two lines changed, on databases of generated rows.

One database has the shape of rel-f1 (few rows, which a batch copies often), one that of rel-hm
(many rows, few copies). The model is RelBench's, with its ResNet of four blocks over the columns of
each table. Both sides take the same batches of this package's loader: PyG samples by time with
pyg-lib alone. Times are those of forward, backward and the optimizer, on one thread, the least of
alternating rounds. Needs `pip install relbench pytorch-frame pandas`. It takes some minutes. With
`compare` as an argument it says how far losses and gradients of 20 steps are apart, in seconds;
with `predict`, how long prediction takes that encodes each row once for all batches.
"""

from __future__ import annotations

import copy
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch
import torch.nn.functional as F
from relbench.modeling.nn import HeteroEncoder, HeteroGraphSAGE, HeteroTemporalEncoder
from torch import Tensor
from torch_frame import TensorFrame, stype
from torch_frame.data import Dataset, MultiEmbeddingTensor
from torch_frame.data.stats import StatType
from torch_frame.nn import encoder as encoders
from torch_frame.nn.models import ResNet
from torch_geometric.data import HeteroData

from pyg_batchgnn import MacrobatchNeighborLoader, accelerate
from pyg_batchgnn.port import encode_once, encoded_rows

DAY, DAYS, CHANNELS, ROUNDS = 86_400, 3_650, 128, 6


class Table(NamedTuple):
    rows: int
    numbers: int  # columns of numbers
    categories: list[int]  # of each column of categories, how many there are
    keys: list[str]  # the tables that its rows point to; those with a time are facts
    timed: bool


F1 = {
    "circuits": Table(77, 3, [77, 30, 40], [], False),
    "constructors": Table(211, 0, [211, 24], [], False),
    "drivers": Table(857, 0, [857, 400, 40], [], False),
    "races": Table(1_101, 2, [50], ["circuits"], True),
    "results": Table(26_080, 10, [3, 140], ["races", "drivers", "constructors"], True),
    "standings": Table(34_124, 3, [], ["races", "drivers"], True),
    "qualifying": Table(9_815, 2, [], ["races", "drivers", "constructors"], True),
    "constructor_results": Table(12_290, 1, [], ["races", "constructors"], True),
    "constructor_standings": Table(13_051, 3, [], ["races", "constructors"], True),
}
HM = {
    "customer": Table(137_000, 1, [3, 2, 4, 5], [], False),
    "article": Table(10_500, 1, [130, 20, 30, 50, 8, 20, 300, 10, 5, 57, 21], [], False),
    "transactions": Table(1_500_000, 1, [2], ["customer", "article"], True),
}


def frame_of(table: Table, draw: torch.Generator) -> tuple[TensorFrame, dict[str, Any]]:
    """Returns columns of a table, and the statistics that encoders read."""
    values: dict[Any, Any] = {}
    names: dict[Any, list[str]] = {}
    statistics: dict[str, dict[Any, Any]] = {}
    if table.categories:
        columns = [torch.randint(-1, count, (table.rows,), generator=draw) for count in table.categories]
        values[stype.categorical] = torch.stack(columns, dim=1)
        names[stype.categorical] = [f"category {place}" for place in range(len(columns))]
        for name, count in zip(names[stype.categorical], table.categories, strict=True):
            statistics[name] = {StatType.COUNT: (list(range(count)), [1] * count)}
    if table.numbers:
        values[stype.numerical] = torch.randn(table.rows, table.numbers, generator=draw)
        names[stype.numerical] = [f"number {place}" for place in range(table.numbers)]
        of_numbers = {StatType.MEAN: 0.0, StatType.STD: 1.0}
        statistics |= dict.fromkeys(names[stype.numerical], of_numbers)
    if table.timed:
        ranges = ((2000, 2020), (0, 12), (0, 31), (0, 7), (0, 24), (0, 60), (0, 60))
        times = [torch.randint(*one, (table.rows, 1), generator=draw) for one in ranges]
        values[stype.timestamp], names[stype.timestamp] = torch.stack(times, dim=-1), ["when"]
        some = values[stype.timestamp][0, 0]
        of_time = (StatType.OLDEST_TIME, StatType.NEWEST_TIME, StatType.MEDIAN_TIME)
        statistics["when"] = {StatType.YEAR_RANGE: [2000, 2019], **dict.fromkeys(of_time, some)}
    return TensorFrame(values, names), statistics


def make_graph(tables: dict[str, Table]) -> tuple[HeteroData, dict[str, Any]]:
    """Returns the graph of a database. Rows of facts are in the order of their times; each driver
    has a career of some years, and popular rows of other tables are met more often."""
    graph, statistics, draw = HeteroData(), {}, torch.Generator().manual_seed(0)
    for name, table in tables.items():
        graph[name].tf, statistics[name] = frame_of(table, draw)
        graph[name].num_nodes = table.rows
        if table.timed:
            graph[name].time = torch.arange(table.rows) * DAYS // table.rows * DAY
        for key in table.keys:
            count = tables[key].rows
            when = torch.arange(table.rows) / table.rows * count
            if key == "drivers":
                when += torch.randn(table.rows, generator=draw) * count * 0.05
                stars = torch.rand(table.rows, generator=draw) < 0.6
                when = torch.where(stars, (when / 8).round() * 8, when)
            elif key != "races":
                when = count * torch.rand(table.rows, generator=draw) ** 1.5
            edges = torch.stack([torch.arange(table.rows), when.long().clamp(0, count - 1)])
            graph[name, f"f2p_{key}", key].edge_index = edges[:, edges[1].argsort(stable=True)]
            graph[key, f"rev_f2p_{key}", name].edge_index = edges.flip(0)
    return graph, statistics


class Model(torch.nn.Module):
    """The model of RelBench's script ``gnn_entity.py``."""

    def __init__(
        self,
        graph: HeteroData,
        statistics: dict[str, Any],
        dropout: float,
        numbers: type[torch.nn.Module] = encoders.LinearEncoder,
    ) -> None:
        super().__init__()
        names = {name: graph[name].tf.col_names_dict for name in graph.node_types}
        options = {"channels": CHANNELS, "num_layers": 4, "dropout_prob": dropout}
        kinds: dict[Any, tuple[Any, dict[str, Any]]] = {
            stype.categorical: (encoders.EmbeddingEncoder, {}),
            stype.numerical: (numbers, {}),
            stype.embedding: (encoders.LinearEmbeddingEncoder, {}),
            stype.timestamp: (encoders.TimestampEncoder, {}),
        }
        self.encoder = HeteroEncoder(CHANNELS, names, statistics, ResNet, options, kinds)
        timed = [name for name in graph.node_types if "time" in graph[name]]
        self.temporal_encoder = HeteroTemporalEncoder(timed, CHANNELS)
        self.gnn = HeteroGraphSAGE(graph.node_types, graph.edge_types, CHANNELS)
        self.head = torch.nn.Linear(CHANNELS, 1)

    def forward(self, batch: HeteroData, entity: str) -> Tensor:
        seed_time = batch[entity].seed_time
        x = self.encoder(batch.tf_dict)
        for name, since in self.temporal_encoder(seed_time, batch.time_dict, batch.batch_dict).items():
            x[name] = x[name] + since
        rows: Tensor = self.head(self.gnn(x, batch.edge_index_dict)[entity][: seed_time.size(0)])
        return rows


def step(
    model: Model, optimizer: torch.optim.Optimizer, batch: HeteroData, entity: str
) -> tuple[float, float]:
    """Returns the seconds of a step, and its loss."""
    begin = time.thread_time()
    target = (batch[entity].n_id[: batch[entity].batch_size] % 2).float()
    loss = F.binary_cross_entropy_with_logits(model(batch, entity).view(-1), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return time.thread_time() - begin, loss.item()


def loader_of(
    graph: HeteroData, tables: dict[str, Table], entity: str, facts: str, batches: int
) -> MacrobatchNeighborLoader:
    """Returns a loader of seeds that are active entities, a week after one of their facts."""
    chosen = torch.randint(tables[facts].rows // 4, tables[facts].rows, (batches * 512,))
    edges = graph[facts, f"f2p_{entity}", entity].edge_index
    return MacrobatchNeighborLoader(
        graph,
        num_neighbors=[128, 64],
        input_nodes=(entity, edges[1][edges[0].argsort()][chosen]),
        input_time=graph[facts].time[chosen] + 7 * DAY,
        time_attr="time",
        batch_size=512,
        seed=0,
    )


def measure(name: str, tables: dict[str, Table], entity: str, facts: str) -> None:
    graph, statistics = make_graph(tables)
    loader = loader_of(graph, tables, entity, facts, ROUNDS)
    for dropout, shares in ((0.0, False), (0.2, False), (0.2, True)):
        torch.manual_seed(0)
        plain = Model(graph, statistics, dropout)
        ours = accelerate(copy.deepcopy(plain), share_dropout=shares)  # and the loader: two lines
        both = [(one, torch.optim.Adam(one.parameters(), lr=1e-3)) for one in (plain, ours)]
        seconds: list[list[float]] = [[], []]
        rows, apart = [0, 0], 0.0
        for number, batch in enumerate(loader):
            found = [step(*one, batch, entity) for one in both]
            apart = max(apart, abs(found[0][1] - found[1][1]))
            for of_model, (spent, _) in zip(seconds, found, strict=True):
                of_model += [spent] if number else []  # the first call captures the model
            counts = encoded_rows(ours).values()
            rows = [rows[0] + sum(one[0] for one in counts), rows[1] + sum(one[1] for one in counts)]
        before, now = map(min, seconds)
        print(
            f"{name}, dropout {dropout}{' shared' if shares else ''}: "
            f"{rows[0] / rows[1]:.2f} rows for each distinct one, "
            f"{before:.2f} s to {now:.2f} s, {before / now:.2f} times as fast, losses within {apart:.1e}",
            flush=True,
        )


def predict(name: str, tables: dict[str, Table], entity: str, facts: str, batches: int) -> None:
    """Predicts with each row encoded once for all batches. A few batches are predicted plainly,
    too."""
    graph, statistics = make_graph(tables)
    loader = loader_of(graph, tables, entity, facts, batches)
    plain = Model(graph, statistics, 0.2).eval()
    ours = accelerate(copy.deepcopy(plain))
    seconds: list[list[float]] = [[], []]
    rows, apart = 0, 0.0
    with torch.no_grad():
        ours(next(iter(loader)), entity)  # the first call captures the model
    with torch.no_grad(), encode_once(ours) as encoded:
        for number, batch in enumerate(loader):
            rows += sum(store.num_nodes for store in batch.node_stores)
            found = []
            for of_model, model in zip(seconds, (plain, ours), strict=True):
                if model is ours or number % (batches // 4) == 0:
                    begin = time.thread_time()
                    found.append(model(batch, entity))
                    of_model.append(time.thread_time() - begin)
            apart = max(apart, float((found[0] - found[-1]).abs().max()))
    before, now = (sum(one) / len(one) for one in seconds)
    print(
        f"{name}, prediction: {rows / sum(encoded.values()):.1f} rows for each encoded one, "
        f"{before:.2f} s to {now:.3f} s a batch, {before / now:.1f} times as fast, at the end "
        f"{min(seconds[1]):.3f} s, rows within {apart:.1e}",
        flush=True,
    )


def compare(numbers: type[torch.nn.Module] = encoders.LinearEncoder, steps: int = 20) -> float:
    """Trains the model beside an accelerated copy in float64, on a small database of which one
    frame comes from a Parquet file, and one has embeddings. ``numbers``: encodes columns of
    numbers. Returns how far losses and gradients are apart, in parts of the largest."""
    tables = {name: one._replace(rows=max(40, one.rows // 40)) for name, one in F1.items()}
    graph, statistics = make_graph(tables)
    rows = tables["drivers"].rows
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "drivers.parquet"
        columns = {"points": torch.randn(rows).tolist(), "team": [f"t{one % 7}" for one in range(rows)]}
        pd.DataFrame(columns).to_parquet(path)
        kinds = {"points": stype.numerical, "team": stype.categorical}
        read = Dataset(pd.read_parquet(path), kinds).materialize()
    graph["drivers"].tf, statistics["drivers"] = read.tensor_frame, read.col_stats
    texts = MultiEmbeddingTensor(
        len(graph["races"].tf), 2, torch.randn(len(graph["races"].tf), 7), torch.tensor([0, 3, 7])
    )
    graph["races"].tf.feat_dict[stype.embedding] = texts
    graph["races"].tf.col_names_dict[stype.embedding] = ["title", "text"]
    statistics["races"] |= {"title": {StatType.EMB_DIM: 3}, "text": {StatType.EMB_DIM: 4}}
    for store in graph.node_stores:
        for kind, values in store.tf.feat_dict.items():
            if kind is stype.embedding:
                values.values = values.values.double()
            else:
                store.tf.feat_dict[kind] = values.double() if values.is_floating_point() else values
    seeds = torch.randint(rows, (steps * 64,))
    loader = MacrobatchNeighborLoader(
        graph,
        num_neighbors=[16, 8],
        input_nodes=("drivers", seeds),
        input_time=torch.full((len(seeds),), 3000 * DAY),
        time_attr="time",
        batch_size=64,
        seed=0,
    )
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    plain = Model(graph, statistics, 0.0, numbers).double()
    ours = accelerate(copy.deepcopy(plain))
    both = [(one, torch.optim.SGD(one.parameters(), lr=1e-2)) for one in (plain, ours)]
    far = 0.0
    for batch in loader:
        losses = torch.tensor([step(*one, batch, "drivers")[1] for one in both])
        learned = [[p.grad.flatten() for p in one.parameters() if p.grad is not None] for one, _ in both]
        for wanted, found in (losses, map(torch.cat, learned)):
            far = max(far, float((wanted - found).abs().max() / wanted.abs().max()))
        counts = encoded_rows(ours)
        assert all(counts[name][1] == batch[name].n_id.unique().numel() for name in counts), counts
    tracing: Any = ours._batchgnn
    whole = [one for one in tracing.graphs[0].recording.calls if one.note]
    assert not whole and not tracing.told, (whole, tracing.told)
    torch.set_default_dtype(torch.float32)
    return far


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if "compare" in sys.argv:
        others = encoders.StackEncoder, encoders.ExcelFormerEncoder
        print(max(compare(), *(compare(one, steps=3) for one in others)))
        sys.exit()
    if "predict" in sys.argv:
        predict("shape of rel-f1", F1, "drivers", "results", batches=40)
        predict("shape of rel-hm", HM, "customer", "transactions", batches=200)
        sys.exit()
    measure("shape of rel-f1", F1, "drivers", "results")
    measure("shape of rel-hm", HM, "customer", "transactions")
