"""Accelerated models of PyG, and of the shapes of its examples, equal the plain ones."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.nn import GraphSAGE, SAGEConv

from pyg_batchgnn import MacrobatchLinkNeighborLoader, accelerate, nn
from tests.support.accuracy import assert_as_pygs
from tests.support.example_models import (
    HIDDEN,
    IN,
    ITEM,
    OUT,
    TO,
    Bipartite,
    Encoder,
    Hierarchical,
    Module,
    Recommender,
    Stack,
    Tabular,
    link_batches,
    sequential,
    to_hetero,
    typed_batches,
    with_tables,
)
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
from tests.support.recorded_models import Written, assert_close, batches, cut, found_in, gradients, pair
from tests.support.tiers import each, some

#: Products of options are in `make test-all`.
pytestmark = each


def run(model: torch.nn.Module, batch: Any, rows: int | None, **options: Any) -> dict[str, torch.Tensor]:
    """The results of a call on a batch, with a loss of the first ``rows`` rows."""
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


def test_counts_that_do_not_fit_are_left_to_pyg() -> None:
    reference, batch = MODELS["sage"](2), batch_of(2)
    ours = accelerated(reference)
    nodes, edges = list(batch.num_sampled_nodes), list(batch.num_sampled_edges)
    options = {"num_sampled_nodes_per_hop": nodes, "num_sampled_edges_per_hop": edges}
    edges[-1] += 3
    assert_same(run(ours, batch, 8, **options), run(reference, batch, 8, **options), 1e-10)


def test_a_loss_of_other_rows_is_noticed_once() -> None:
    reference, batch = MODELS["sage"](2), batch_of(2)
    ours = accelerated(reference)
    run(ours, batch, 8)
    assert not ours._batchgnn.uses_all_rows
    run(ours, batch, 9)
    assert ours._batchgnn.uses_all_rows
    assert_same(run(ours, batch, None), run(reference, batch, None), 1e-10)


def test_dropout_of_other_rows_is_that_of_the_forward_pass() -> None:
    ours = accelerated(MODELS["sage"](2)).train()
    ours.dropout.p = 0.5
    torch.manual_seed(1)
    split = run(ours, batch_of(2), None)  # computes the layers again in the backward pass
    assert ours._batchgnn.uses_all_rows
    torch.manual_seed(1)
    assert_same(run(ours, batch_of(2), None), split, 1e-10)


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


def test_hooks_on_a_model_are_called_once() -> None:
    ours, batch, seen = accelerated(MODELS["sage"](1)), batch_of(2), []
    ours.register_forward_hook(lambda *_: seen.append(1))
    ours(batch)  # of another depth than the batch
    assert len(seen) == 1


# Shapes of PyG's examples #########################################################################


@dataclass(frozen=True)
class Example:
    """A ``forward`` of the examples: the script's call, ours, and what of their results is used.

    ``whole`` says why something computes all rows: None where nothing does, empty where nothing is
    recorded.
    """

    make: Callable[[], Module]
    plain: Callable[[Any, Any], Any] = lambda model, batch: model(batch.x, batch.edge_index)
    ours: Callable[[Any, Any], Any] = lambda model, batch: model(batch)
    rows: Callable[[Any, Any], Any] = lambda found, batch: cut(found, batch.num_sampled_nodes[0])
    picks: Callable[[Any], Any] = lambda found: found
    given: Callable[[], list[Any]] = batches
    whole: str | None = None
    dtype: torch.dtype = torch.float64


def dicts(model: Any, batch: Any) -> Any:
    return model(batch.x_dict, batch.edge_index_dict)


def links(model: Any, batch: Any) -> Any:
    return model(batch.x_dict, batch.edge_index_dict, batch[TO].edge_label_index)


def as_it_is(found: Any, batch: Any) -> Any:
    return found


def of_items(found: Any, batch: Any) -> Any:
    return found[ITEM][: batch[ITEM].batch_size]


def item_rows(found: Any, batch: Any) -> Any:
    return found[: batch[ITEM].batch_size]


def self_trimming(model: Any, batch: Any) -> Any:
    return model(
        batch.x_dict, batch.edge_index_dict, batch.num_sampled_edges_dict, batch.num_sampled_nodes_dict
    )


def homogeneous_links() -> list[Any]:
    options: dict[str, Any] = {"batch_size": 12, "seed": 3, "neg_sampling": "binary"}
    return list(MacrobatchLinkNeighborLoader(GRAPH, [4, 3], GRAPH.edge_index[:, 5:35], **options))


EXAMPLES: dict[str, Example] = {
    "graph_sage_unsup": Example(
        lambda: pyg.GraphSAGE(IN, HIDDEN, 2, OUT, norm="batch_norm"), given=homogeneous_links
    ),
    "infomax_inductive": Example(
        Encoder, lambda model, batch: model(batch.x, batch.edge_index, batch.batch_size), rows=as_it_is
    ),
    "bipartite_sage_unsup, taobao": Example(
        Bipartite,
        lambda model, batch: model(batch.number_dict, batch.edge_index_dict, batch[TO].edge_label_index),
        rows=as_it_is, given=link_batches,
    ),
    "hierarchical_sage": Example(Hierarchical, self_trimming, rows=item_rows, given=typed_batches),
    "recommender_system, temporal_link_pred": Example(
        Recommender, links, rows=as_it_is, given=link_batches
    ),
    "to_hetero_mag": Example(
        sequential, dicts, rows=of_items, picks=lambda found: found[ITEM], given=typed_batches
    ),
    "relational_gnn": Example(
        lambda: to_hetero(Stack(last=True)), dicts, rows=of_items, picks=lambda found: found[ITEM],
        given=typed_batches,
    ),
    "rdl": Example(
        Tabular, lambda model, batch: model(batch, ITEM), lambda model, batch: model(batch, ITEM),
        rows=as_it_is, given=with_tables,
    ),
}  # fmt: skip


def prepared(example: Example) -> tuple[Any, Any]:
    """An accelerated and a plain model in evaluation mode, whose widths are known."""
    torch.manual_seed(0)
    model = example.make().to(example.dtype)
    (first, *_) = example.given()
    with torch.no_grad():
        example.plain(model, first.clone())
    ours, plain = pair(model, example.dtype)
    return ours.eval(), plain.eval()


@pytest.mark.parametrize("name", some(EXAMPLES, 2))
def test_models_of_the_shapes_in_pygs_examples(name: str) -> None:
    example = EXAMPLES[name]
    ours, plain = prepared(example)
    tolerance = 1e-10 if example.dtype == torch.float64 else 1e-4
    for batch, same in zip(example.given(), example.given(), strict=True):
        found = example.picks(example.ours(ours, batch))
        wanted = example.rows(example.plain(plain, same), batch)
        assert_close(found, wanted, tolerance)
        assert_close(gradients(ours, found), gradients(plain, wanted), tolerance)
    now = found_in(ours)
    assert is_trimmed(ours) == (example.whole is None), (now.reasons, now.notes)
    assert example.whole is None or re.search(example.whole, " ".join(now.reasons + now.notes))


def is_trimmed(model: Any) -> bool:
    """Returns whether nothing computed all rows, and some convolution those of the seeds alone."""
    found = found_in(model)
    return not found.reasons and not found.notes and any(0 in hops for hops in found.hops)


# Other devices ####################################################################################

DEVICES = ["meta", *(["cuda"] if torch.cuda.is_available() else [])]


def batch_on(device: str) -> Data:
    generator = torch.Generator().manual_seed(0)
    target, _ = torch.randint(6, (20,), generator=generator).sort()
    data = Data(x=torch.randn(10, 8), edge_index=torch.stack([torch.arange(20) % 10, target]))
    data.num_sampled_nodes, data.num_sampled_edges, data.batch_size = [3, 3, 4], [10, 10], 3
    return data.to(device)


def own() -> torch.nn.Module:
    layers = {"first": SAGEConv(8, 16), "second": SAGEConv(16, 4)}
    return Written(lambda model, x, edges: model.second(model.first(x, edges).relu(), edges), **layers)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("make", [own, lambda: GraphSAGE(8, 16, 2, out_channels=4)], ids=["own", "SAGE"])
def test_accelerated_models_compute_by_pygs_code(make: Any, device: str) -> None:
    plain = make().eval()
    model = accelerate(make()).eval()
    model.load_state_dict(plain.state_dict())
    plain, model, batch = plain.to(device), model.to(device), batch_on(device)
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
    batch = batch_on(device)
    layer = getattr(nn, name)(8, 4).to(device)
    with pytest.raises(ValueError, match=r"on the CPU|CPU tensors"):
        layer(batch.x, batch.edge_index)
