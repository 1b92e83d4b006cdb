"""What a capture must not confuse, what it says, and that a wrong program is found."""

from __future__ import annotations

import copy
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch.nn import Linear
from torch_geometric import EdgeIndex
from torch_geometric.data import Data

from pyg_batchgnn import MacrobatchLinkNeighborLoader, accelerate
from pyg_batchgnn.port import execution, rules
from tests.support.ported_models import CLASSES, FEATURES, GRAPH
from tests.support.recorded_models import (
    BATCH_SIZE,
    HIDDEN,
    Middle,
    Net,
    Options,
    Written,
    assert_as_plain,
    assert_close,
    assert_trimmed,
    batches,
    compare,
    found_in,
    pair,
)
from tests.support.tiers import each, in_all, some


@contextmanager
def said(*texts: str) -> Iterator[None]:
    """Fails unless each text is in just one warning."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield
    told = [str(one.message) for one in found]
    for text in texts:
        assert sum(text in one for one in told) == 1, (text, told)


# Sizes ############################################################################################


class Small(torch.nn.Module):
    def __init__(self, does: Callable[..., Tensor]) -> None:
        super().__init__()
        self.one, self.does = pyg.SAGEConv((4, 4), 4), does

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Tensor:
        h = self.one((x_dict["b"], x_dict["a"]), edge_index_dict["b", "to", "a"])
        return self.does(h, x_dict["b"], edge_index_dict["b", "to", "a"])


@each
@pytest.mark.parametrize(
    "does",
    [
        lambda h, x, _: h + 1 if x.numel() == 0 else h + 2,
        *in_all(
            lambda h, x, _: h if len(x) else h.tanh(), lambda h, _, edges: h * 2 if edges.size(1) > 0 else h
        ),
        lambda h, _, edges: h * 2 if edges.size(1) <= 1 else h,
        lambda h, x, _: h + (torch.stack([x, x]).numel() == 0),
        lambda h, x, _: h * max(len(x), 1) if x.t().is_contiguous() else h * 2,
    ],
)
@pytest.mark.parametrize("first", some(range(4), 2))
def test_what_is_done_for_sizes_of_zero_is_done(does: Callable[..., Tensor], first: int) -> None:
    """TorchDynamo's graphs for sizes of 0 and 1 take none of them for 0."""
    ours, plain = pair(Small(does))
    counts = [(5, 7, 9), (3, 0, 0), (2, 1, 1), (4, 6, 0), (1, 0, 0), (4, 5, 3)]
    for rows, sources, count in counts[first:] + counts[:first]:
        x = {"a": torch.randn(rows, 4).double(), "b": torch.randn(sources, 4).double()}
        ends = torch.randint(max(1, sources), (count,)), torch.randint(rows, (count,))
        edges = {("b", "to", "a"): torch.stack(ends)}
        assert_as_plain(ours, plain, ours(x, edges), plain(x, edges))
    assert found_in(ours).reasons == []


class Sources(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GraphConv((4, 4), 4)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        return self.conv((x, None), edge_index, edge_weight)


def test_an_edge_index_that_says_other_numbers_of_nodes() -> None:
    ours, plain = pair(Sources())
    ends = torch.tensor([[0, 1, 2, 3], [0, 0, 1, 1]])
    edges = EdgeIndex(ends, sparse_size=(4, 2), sort_order="col")
    x, weight = torch.randn(4, 4).double(), torch.rand(4).double()
    wanted = plain(x, edges, weight)
    assert_close(ours(x, edges, weight), wanted)
    assert len(wanted) == 2


class Pairs(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv(FEATURES, CLASSES)
        self.prototypes = torch.nn.Parameter(torch.randn(GRAPH.num_nodes, 3))

    def forward(self, x: Tensor, edge_index: Tensor, edge_label_index: Tensor) -> Any:
        z = self.conv(x, edge_index)
        scores = (z[edge_label_index[0]] * z[edge_label_index[1]]).sum(dim=-1)
        return scores, z[edge_index[0]].sum(dim=-1), self.prototypes * 1.0, z


def test_scores_and_tables_are_not_cut_though_their_number_is_that_of_nodes() -> None:
    """A ring has as many edges as nodes, and as many links are asked for."""
    nodes = GRAPH.num_nodes
    ring = torch.stack([torch.arange(nodes), torch.arange(nodes).roll(1)])
    data = Data(x=GRAPH.x.double(), edge_index=ring)
    loader = MacrobatchLinkNeighborLoader(data, [1], edge_label_index=ring, batch_size=nodes)
    ours, plain = pair(Pairs())
    for batch in loader:
        found, wanted = ours(batch), plain(batch.x, batch.edge_index, batch.edge_label_index)
        seeds = batch.edge_label_index.unique().numel()
        for one, other in zip(found[:3], wanted[:3], strict=True):
            assert_close(one, other)
        assert_close(found[3], wanted[3][:seeds])


# The comparison ###################################################################################


def gate() -> Net:
    model = Net(lambda model, _, h: h + model.gate * h.roll(1, 0) + model.alpha * h.roll(1, 0))
    model.gate, model.alpha = torch.nn.Parameter(torch.zeros(())), 0.0
    return model.double()


@pytest.mark.parametrize("name", ["rows", "gradients"])
def test_a_rule_that_is_wrong_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wrong rows are multiplied by zero, or the wrong gradients are those of equal rows."""
    by_row = rules.is_by_row

    def wrong(function: Any, *given: Any) -> bool:
        return function is Tensor.roll or by_row(function, *given)

    monkeypatch.setattr(rules, "is_by_row", wrong)
    plain = gate()
    torch.nn.init.constant_(plain.gate, 0.1 if name == "gradients" else 0.0)
    ours = accelerate(copy.deepcopy(plain))
    with said("called plainly"):
        compare(ours, plain)
    assert any("differed from" in one or "by themselves" in one for one in found_in(ours).reasons)


@pytest.mark.parametrize(("check", "right"), [("once", [True, False, False]), ("often", [True, True, True])])
def test_a_program_that_goes_wrong_later(
    check: str, right: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second call compares again, if it is asked to."""
    ours, plain = pair(after_a_product(pyg.SAGEConv(HIDDEN, CLASSES)), check=check)
    found, multiply = [], execution._multiply
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for batch in batches():
            wanted = plain(batch.x, batch.edge_index)[: batch.batch_size]
            found.append(torch.allclose(ours(batch), wanted))
            monkeypatch.setattr(execution, "_multiply", lambda *given: (multiply(*given)[0] * 2, True))
    assert found == right
    assert any("its result differed" in str(one.message) for one in caught) == (check == "often")


def after_a_product(conv: torch.nn.Module) -> torch.nn.Module:
    return Written(lambda m, x, edges: m.conv(m.lin(x), edges), lin=Linear(FEATURES, HIDDEN), conv=conv)


@pytest.mark.parametrize("kind", [pyg.APPNP, pyg.GCNConv, pyg.SGConv])
def test_layers_cache_the_edges_of_calls_alone(kind: Any) -> None:
    """What finds the columns of a result, and the comparison, call layers with other edges."""
    given = (1, 0.1) if kind is pyg.APPNP else (HIDDEN, CLASSES)
    ours, plain = pair(after_a_product(kind(*given, cached=True)))
    batch = batches()[0]
    for training in (True, True, False):
        ours.train(training), plain.train(training)
        assert_as_plain(ours, plain, *(model(batch.x, batch.edge_index) for model in (ours, plain)))


# What is said #####################################################################################


@pytest.mark.parametrize(
    "middle", [lambda _, __, h: h * 2 if h.sum() > 0 else h, lambda _, __, h: (torch.manual_seed(3), h)[1]]
)
def test_what_cannot_be_captured_is_said_once_and_returns_all_rows(middle: Middle) -> None:
    ours, plain = pair(Net(middle))
    with said("called plainly, for all rows"):
        for batch in (*batches(), *batches()):
            assert_close(ours(batch), plain(batch.x, batch.edge_index))


class Weighted(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = pyg.GraphConv(FEATURES, CLASSES), torch.nn.BatchNorm1d(CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return self.norm(self.conv(x, edge_index, edge_weight))


def test_weights_that_are_left_out_and_norms_of_fewer_rows_are_said() -> None:
    ours, _ = pair(Weighted())
    with said("is called without edge_weight of the batch", "norm takes statistics of the rows"):
        for batch in batches():
            ours(batch)


def test_edges_of_another_form_are_said() -> None:
    ours, plain = pair(Weighted())
    ours.eval(), plain.eval()
    sizes = (GRAPH.num_nodes, GRAPH.num_nodes)
    ones = torch.ones(GRAPH.num_edges, dtype=torch.float64)
    sparse = torch.sparse_coo_tensor(GRAPH.edge_index, ones, sizes).coalesce()
    with said("give edge_index, without ToSparseTensor"):
        for _ in range(2):
            assert_close(ours(GRAPH.x.double(), sparse), plain(GRAPH.x.double(), sparse))


def test_a_forward_of_an_instance_is_said() -> None:
    ours, plain = pair(Net(lambda _, __, h: h))
    with said("a forward of its own instance"):
        for model in (plain, ours):
            model.forward = lambda batch: batch.x
    with said("a forward of its own instance"):
        assert len(accelerate(plain)(batches()[0])) == len(ours(batches()[0])) > BATCH_SIZE


class Normed(Net):
    def forward(self, x: Tensor, edge_index: Tensor, batch_size: int) -> Tensor:  # type: ignore[override]
        return self.second(self.first(x, edge_index), edge_index)[:batch_size].softmax(0)


def test_what_looks_at_the_rows_of_the_seeds_alone_is_no_alarm() -> None:
    ours, plain = pair(Normed(lambda _, __, h: h))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compare(ours, plain, call=lambda model, batch: model(batch.x, batch.edge_index, batch.batch_size))
    assert_trimmed(ours, [1, 0])


# Other tools ######################################################################################


def test_the_users_own_compilation_is_left_alone() -> None:
    """Neither side's graphs, limits or settings are the other's."""
    seen: list[Any] = []

    def backend(module: torch.fx.GraphModule, inputs: Any) -> Any:
        seen.append(module)
        return module.forward

    settings = torch._dynamo.config.get_config_copy()
    compiled = torch.compile(lambda x: x * 2 + 1, backend=backend)
    compiled(torch.ones(3))
    ours, plain = pair(Options())
    compare(ours, plain)
    compiled(torch.ones(3))
    assert len(seen) == 1 and torch._dynamo.config.get_config_copy() == settings
    compare(torch.compile(ours, backend=backend), plain)
    graphs = len(found_in(ours).graphs)
    torch._dynamo.reset()
    compare(ours, plain)
    assert len(found_in(ours).graphs) <= graphs + 1
    with torch._dynamo.config.patch(recompile_limit=1):
        compare(ours.eval(), plain.eval())
    assert found_in(ours).reasons == []


@dataclass
class Out:
    rows: Tensor


def test_results_of_other_forms_are_cut_or_said() -> None:
    batch, conv = batches()[0], pyg.SAGEConv(FEATURES, CLASSES)
    ours, plain = pair(Written(lambda model, *given: OrderedDict(rows=model.conv(*given)), conv=conv))
    wanted = plain(batch.x, batch.edge_index)["rows"][: batch.batch_size]
    assert_close(ours(batch)["rows"][: batch.batch_size], wanted)  # all rows in torch 2.14, with a warning
    ours, plain = pair(Written(lambda model, *given: Out(model.conv(*given)), conv=conv))
    with said("whose rows model(batch) does not cut"):
        assert_close(ours(batch).rows, plain(batch.x, batch.edge_index).rows)
