"""Accelerated models of PyG, and of the shapes of its examples, equal the plain ones."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.nn import SAGEConv
from torch_geometric.utils import trim_to_layer

from pyg_batchgnn import MacrobatchLinkNeighborLoader, MacrobatchNeighborLoader, accelerate, nn
from tests.support.accuracy import assert_as_pygs
from tests.support.ported_models import (
    FEATURES,
    GRAPH,
    KNOWLEDGE,
    MODELS,
    accelerated,
    assert_same,
    batch_of,
    minibatch_of,
    model_of,
    results,
    trimming,
)
from tests.support.recorded_models import Written, assert_as_plain, assert_trimmed, found_in, pair
from tests.support.tiers import each

#: Products of options are in `make test-all`.
pytestmark = each


def run(model: torch.nn.Module, batch: Any, rows: int | None, **options: Any) -> dict[str, torch.Tensor]:
    x = batch.x.detach().requires_grad_()
    out = model(x, batch.edge_index, **options)
    return {**results(model, out[:rows], x), "whole output": out.detach()}


@pytest.mark.parametrize("rows", [8, None], ids=["seeds", "all rows"])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("trimmed", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", MODELS)
def test_calls_are_those_of_pyg(
    name: str, dtype: torch.dtype, trimmed: bool, training: bool, rows: int | None
) -> None:
    layers = 3 if rows is None else 2
    reference = MODELS[name](layers).train(training).to(dtype)
    batch = batch_of(layers, dtype)

    def call(model: torch.nn.Module, x: torch.Tensor) -> dict[str, torch.Tensor]:
        out = model(x, batch.edge_index, **(trimming(batch) if trimmed else {}))
        kept = {key.replace(".", " "): one for key, one in model.named_buffers() if one.is_floating_point()}
        return {"output": out[:rows], "whole output": out.detach(), **kept}

    assert_as_pygs(accelerated(reference, dtype), reference, call, call, batch.x)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", KNOWLEDGE)
def test_jumping_knowledge(name: str, training: bool) -> None:
    reference, batch = KNOWLEDGE[name](3).train(training), batch_of(3)
    ours = accelerated(reference)
    for rows in (8, None):
        assert_same(run(ours, batch, rows), run(reference, batch, rows), 1e-10)
    with torch.no_grad():
        wanted = reference.eval()(batch.x, batch.edge_index)[:8]
        assert torch.allclose(ours.eval()(batch), wanted, atol=1e-12)


@pytest.mark.parametrize("trimmed", [False, True])
def test_edge_weights_and_features(trimmed: bool) -> None:
    batch = batch_of(2)
    trims = trimming(batch) if trimmed else {}
    for reference, options in (
        (model_of(pyg.GCN, 2), {"edge_weight": batch.edge_weight}),
        (model_of(pyg.GCN, 2, normalize=False), {"edge_weight": batch.edge_weight}),
        (model_of(pyg.GAT, 2, edge_dim=3), {"edge_attr": batch.edge_attr}),
        (model_of(pyg.GAT, 2), {"edge_attr": batch.edge_attr}),  # PyG's layer looks at none
        (model_of(pyg.GAT, 2, v2=True, edge_dim=3, share_weights=True), {"edge_attr": batch.edge_attr}),
    ):
        ours = accelerated(reference)
        for rows in (8, None):
            found = run(ours, batch, rows, **options, **trims)
            assert_same(found, run(reference, batch, rows, **options, **trims), 1e-10)


@pytest.mark.parametrize("name", ["sage", "gcn", "gin", "gat", "gatv2", "sage, batch norm"])
def test_a_batch_gives_the_rows_of_its_seeds(name: str) -> None:
    reference, batch = MODELS[name](2).eval(), batch_of(2)
    ours = accelerated(reference)
    wanted = results(reference, reference(batch.x, batch.edge_index)[:8])
    for one in (batch, batch.clone(), minibatch_of(2)):
        assert_same(results(ours, ours(one)), wanted, 1e-10)
    induced, minibatch = (make(1, subgraph_type="induced") for make in (batch_of, minibatch_of))
    ours = accelerated(reference.train())
    wanted = results(reference, reference(induced.x, induced.edge_index)[:8])
    assert_same(results(ours, ours(minibatch)), wanted, 1e-10)


@pytest.mark.parametrize("layers", [1, 3])
def test_a_model_of_another_depth_than_the_batch(layers: int) -> None:
    reference, batch = MODELS["gcn"](layers), batch_of(2)
    ours = accelerated(reference)
    assert_same(run(ours, batch, 8), run(reference, batch, 8), 1e-10)
    assert torch.allclose(ours(batch), reference(batch.x, batch.edge_index)[:8], atol=1e-12)
    if layers < 2:
        found, wanted = (run(one, batch, 8, **trimming(batch)) for one in (ours, reference))
        assert_same(found, wanted, 1e-10)


def test_wrong_batches() -> None:
    ours = accelerated(MODELS["sage"](2))
    with pytest.raises(TypeError, match="a batch with x and edge_index"):
        ours(torch.randn(3, FEATURES))
    for given in (batch_of(2), minibatch_of(2)):
        with pytest.raises(
            TypeError, match=r"but int was given as edge_index beside a .*call model\(batch\)"
        ):
            ours(given, 5)
    deeper = minibatch_of(3)
    assert torch.allclose(ours(deeper), ours(deeper.x, deeper.edge_index)[:8], atol=1e-12)
    bare = batch_of(2)
    del bare.batch_size
    with pytest.raises(ValueError, match="batch_size"):
        ours(bare)


@pytest.mark.parametrize("name", ["sage", "gcn", "sage, batch norm"])
def test_a_batch_size_that_was_set_is_read(name: str) -> None:
    reference, batch = MODELS[name](2).eval(), batch_of(2)
    ours = accelerated(reference)
    for size in (3, 8, 20, batch.num_nodes, torch.tensor(5)):
        for one in (batch, batch.clone()):
            one.batch_size = size
            wanted = reference(batch.x, batch.edge_index)[: int(size)]
            assert_same(results(ours, ours(one)), results(reference, wanted), 1e-10)
    for size in (-1, batch.num_nodes + 1):
        batch.batch_size = size
        with pytest.raises(ValueError, match=f"batch_size is {size}, but the batch has {batch.num_nodes}"):
            ours(batch)


def test_a_batch_of_graphs_has_no_seed_nodes() -> None:
    reference = MODELS["gin"](2).eval()
    ours, batch = accelerated(reference), batch_of(2)
    graphs = [Data(x=GRAPH.x[:n], edge_index=torch.arange(n).repeat(2, 1)) for n in (3, 4, 5)]
    together = Batch.from_data_list(graphs)
    with pytest.raises(ValueError, match=r"a Batch of 3 graphs has no seed nodes; call model\(batch\.x"):
        ours(together)
    wanted = reference(together.x, together.edge_index)
    assert torch.allclose(ours(together.x, together.edge_index), wanted, atol=1e-12)
    together.batch_size = 5
    assert torch.allclose(ours(together), wanted[:5], atol=1e-12)
    with pytest.raises(ValueError, match="a tensor of 2 numbers"):
        ours(Batch.from_data_list([batch, batch]))


# Shapes of PyG's examples #########################################################################

Module = torch.nn.Module
IN, HIDDEN, OUT = 6, 8, 4


USER, ITEM = "user", "item"
TO, BACK, AMONG = (USER, "to", ITEM), (ITEM, "rev_to", USER), (ITEM, "to", ITEM)
RELATIONS = (TO, BACK, AMONG)


@cache
def shop() -> HeteroData:
    data, draw = HeteroData(), torch.Generator().manual_seed(2)
    counts = {USER: 60, ITEM: 80}
    for name, count in counts.items():
        data[name].x = torch.randn(count, IN, generator=draw, dtype=torch.float64)
        data[name].number = torch.arange(count)
        data[name].time = torch.randint(50, (count,), generator=draw)
    for source, name, target in RELATIONS:
        ends = [torch.randint(counts[one], (500,), generator=draw) for one in (source, target)]
        data[source, name, target].edge_index = torch.stack(ends)
    return data


def typed_batches(seeds: str = ITEM, **options: Any) -> list[Any]:
    loader = MacrobatchNeighborLoader(
        shop(), [4, 3], (seeds, torch.arange(24)), batch_size=9, seed=1, **options
    )
    return list(loader)


@cache
def link_batches() -> list[Any]:
    loader = MacrobatchLinkNeighborLoader(
        shop(), [4, 3], edge_label_index=(TO, shop()[TO].edge_index[:, :30]), batch_size=12, seed=3,
        neg_sampling="binary",
    )  # fmt: skip
    return list(loader)


class Pair(Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(2 * HIDDEN, HIDDEN), torch.nn.Linear(HIDDEN, 1)

    def forward(self, source: Tensor, target: Tensor, edge_label_index: Tensor) -> Tensor:
        row, col = edge_label_index
        joined = torch.cat([source[row], target[col]], dim=-1)
        return self.second(self.first(joined).relu()).view(-1)


class Bipartite(Module):
    """Encoders of different depth for users and items, of rows that are written into the dict."""

    def __init__(self) -> None:
        super().__init__()
        self.user_table, self.item_table = torch.nn.Embedding(60, IN), torch.nn.Embedding(80, IN)
        self.items = torch.nn.ModuleList([pyg.SAGEConv(IN, HIDDEN), pyg.SAGEConv(HIDDEN, HIDDEN)])
        self.users = torch.nn.ModuleList([
            pyg.SAGEConv(IN, HIDDEN), pyg.SAGEConv((IN, IN), HIDDEN), pyg.SAGEConv((HIDDEN, HIDDEN), HIDDEN)
        ])  # fmt: skip
        self.lins = torch.nn.ModuleList([torch.nn.Linear(HIDDEN, HIDDEN), torch.nn.Linear(HIDDEN, HIDDEN)])
        self.decoder = Pair()

    def forward(
        self, number_dict: dict[str, Tensor], edge_index_dict: Any, edge_label_index: Tensor
    ) -> Tensor:
        found: dict[str, Tensor] = {}
        number_dict[USER] = self.user_table(number_dict[USER])
        number_dict[ITEM] = self.item_table(number_dict[ITEM])
        user, item = number_dict[USER], number_dict[ITEM]
        among, back = edge_index_dict[AMONG], edge_index_dict[BACK]
        near = self.users[0](item, among).relu()
        user = self.users[1]((item, user), back).relu()
        found[USER] = self.lins[0](self.users[2]((near, user), back).relu())
        for conv in self.items:
            item = conv(item, among).relu()
        found[ITEM] = self.lins[1](item)
        return self.decoder(found[USER], found[ITEM], edge_label_index)


class Hierarchical(Module):
    def __init__(self) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList(
            pyg.HeteroConv({one: pyg.SAGEConv((-1, -1), HIDDEN) for one in RELATIONS}) for _ in range(2)
        )
        self.lin = torch.nn.Linear(HIDDEN, OUT)

    def forward(
        self, x_dict: Any, edge_index_dict: Any, num_sampled_edges_dict: Any, num_sampled_nodes_dict: Any
    ) -> Tensor:
        for layer, conv in enumerate(self.convs):
            x_dict, edge_index_dict, _ = trim_to_layer(
                layer, num_sampled_nodes_dict, num_sampled_edges_dict, x_dict, edge_index_dict
            )
            x_dict = {name: x.relu() for name, x in conv(x_dict, edge_index_dict).items()}
        return self.lin(x_dict[ITEM])


class Tabular(Module):
    """Tables of rows by type with times beside them, cut by the times of the seeds."""

    def __init__(self) -> None:
        super().__init__()
        self.encoders = torch.nn.ModuleDict({name: Columns() for name in (USER, ITEM)})
        self.positions = torch.nn.ModuleDict({name: pyg.PositionalEncoding(HIDDEN) for name in (USER, ITEM)})
        self.lins = torch.nn.ModuleDict({name: torch.nn.Linear(HIDDEN, HIDDEN) for name in (USER, ITEM)})
        self.convs = torch.nn.ModuleList(
            pyg.HeteroConv({one: pyg.SAGEConv((HIDDEN, HIDDEN), HIDDEN) for one in RELATIONS})
            for _ in range(2)
        )
        self.norms = torch.nn.ModuleList(
            torch.nn.ModuleDict({name: pyg.LayerNorm(HIDDEN, mode="node") for name in (USER, ITEM)})
            for _ in range(2)
        )
        self.head = pyg.MLP(HIDDEN, out_channels=OUT, norm="batch_norm", num_layers=1)

    def forward(self, batch: HeteroData, entity: str) -> Tensor:
        seed_time = batch[entity].seed_time
        x_dict = {name: self.encoders[name](table) for name, table in batch.tf_dict.items()}
        for name, time in batch.time_dict.items():
            since = (seed_time[batch[name].batch] - time) / 24
            x_dict[name] = x_dict[name] + self.lins[name](self.positions[name](since))
        for conv, norms in zip(self.convs, self.norms, strict=True):
            x_dict = {name: norms[name](x).relu() for name, x in conv(x_dict, batch.edge_index_dict).items()}
        return self.head(x_dict[entity][: seed_time.size(0)])


class Columns(Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin, self.norm = torch.nn.Linear(IN, HIDDEN), torch.nn.LayerNorm(HIDDEN)

    def forward(self, table: Any) -> Tensor:
        return self.norm(torch.einsum("ij,kj->ik", table.columns["numbers"], self.lin.weight))


def with_tables() -> list[Any]:
    options = {"time_attr": "time", "disjoint": True, "temporal_strategy": "uniform"}
    found = typed_batches(input_time=torch.arange(50, 74), **options)
    for batch in found:
        for name in (USER, ITEM):
            batch[name].tf = SimpleNamespace(columns={"numbers": batch[name].x.clone()}, names=["a"])
            batch[name].num_nodes = batch[name].x.size(0)
    return found


@dataclass(frozen=True)
class Example:
    """A ``forward`` of the examples: the script's call, ours, and what of its results is used."""

    make: Callable[[], Module]
    given: Callable[[], list[Any]]
    plain: Callable[[Any, Any], Any]
    rows: Callable[[Any, Any], Any] = lambda found, _: found
    ours: Callable[[Any, Any], Any] = lambda model, batch: model(batch)


EXAMPLES: dict[str, Example] = {
    "bipartite_sage_unsup, taobao": Example(
        Bipartite,
        link_batches,
        lambda model, batch: model(batch.number_dict, batch.edge_index_dict, batch[TO].edge_label_index),
    ),
    "hierarchical_sage": Example(
        Hierarchical,
        typed_batches,
        lambda model, batch: model(
            batch.x_dict, batch.edge_index_dict, batch.num_sampled_edges_dict, batch.num_sampled_nodes_dict
        ),
        lambda found, batch: found[: batch[ITEM].batch_size],
    ),
    "rdl": Example(
        Tabular,
        with_tables,
        lambda model, batch: model(batch, ITEM),
        ours=lambda model, batch: model(batch, ITEM),
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_models_of_the_shapes_in_pygs_examples(name: str) -> None:
    example = EXAMPLES[name]
    model = example.make().double()
    with torch.no_grad():  # the widths are known from here on
        example.plain(model, example.given()[0].clone())
    ours, plain = (one.eval() for one in pair(model))
    for batch, same in zip(example.given(), example.given(), strict=True):
        found = example.ours(ours, batch)
        assert_as_plain(ours, plain, found, example.rows(example.plain(plain, same), batch))
    assert_trimmed(ours)
    assert any(0 in hops for hops in found_in(ours).hops)


# Other devices ####################################################################################

DEVICES = ["meta", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["own", "SAGE"])
def test_accelerated_models_compute_by_pygs_code(name: str, device: str) -> None:
    made = MODELS["sage"](2)
    if name == "own":
        made = Written(lambda m, x, edges: m.conv(x, edges).relu(), conv=SAGEConv(FEATURES, 4)).double()
    plain, model = made.eval().to(device), accelerated(made).eval().to(device)
    batch = copy.deepcopy(batch_of(2)).to(device)
    out, right = model(batch.x, batch.edge_index), plain(batch.x, batch.edge_index)
    assert out.device == right.device and out.shape == right.shape
    assert device == "meta" or torch.equal(out, right)
    with pytest.raises(
        TypeError, match=rf"the batch is on {device}.*call model\(batch.x, batch.edge_index\)"
    ):
        model(batch)


def test_a_typed_batch_is_refused() -> None:
    batch = HeteroData()
    batch["a"].x = torch.randn(3, 2, device="meta")
    batch["a", "to", "a"].edge_index = torch.zeros(2, 3, dtype=torch.int64, device="meta")

    class Typed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = SAGEConv(2, 2)

        def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
            return {name: self.conv(x, edge_index_dict["a", "to", "a"]) for name, x in x_dict.items()}

    with pytest.raises(TypeError, match=r"call model\(batch.x_dict, batch.edge_index_dict\)"):
        accelerate(Typed())(batch)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["SAGEConv", "GCNConv", "GATConv"])
def test_native_layers_refuse(name: str, device: str) -> None:
    batch = copy.deepcopy(batch_of(2, torch.float32)).to(device)
    layer = getattr(nn, name)(FEATURES, 4).to(device)
    with pytest.raises(ValueError, match=r"on the CPU|CPU tensors"):
        layer(batch.x, batch.edge_index)
