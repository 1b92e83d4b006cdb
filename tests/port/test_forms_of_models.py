"""Models and calls of unusual form: PyG's `Sequential`, layers that read the training flag,
settings outside of modules, batches of one type, counts by type."""

from __future__ import annotations

import copy
import io
import sys
import warnings
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric.data import HeteroData

from pyg_batchgnn import MacrobatchNeighborLoader
from pyg_batchgnn.port import accelerate, inference
from tests.support.ported_models import CLASSES, FEATURES, GRAPH
from tests.support.recorded_models import (
    HIDDEN,
    Written,
    assert_as_plain,
    assert_close,
    assert_trimmed,
    batches,
    compare,
    compare_plain_calls,
    found_in,
    gradients,
    pair,
)
from tests.support.tiers import each

#: Products of options are in `make test-all`.
pytestmark = each


class Pair(torch.nn.Module):
    def __init__(self, kind: Any = pyg.SAGEConv, **options: Any) -> None:
        super().__init__()
        self.conv1 = kind(FEATURES, HIDDEN, **options)
        self.conv2 = kind(HIDDEN, CLASSES, **options)

    def between(self, h: Tensor) -> Tensor:
        return h.relu()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv2(self.between(self.conv1(x, edge_index)), edge_index)


def test_a_sequential_model_of_pyg() -> None:
    """PyG writes a ``forward`` for each and puts the last one on the class as well."""
    names, own = "x, edge_index -> x", {"test_forms_of_models": sys.modules[__name__]}
    first, second = pyg.SAGEConv(FEATURES, HIDDEN), pyg.GraphConv(HIDDEN, CLASSES)
    layers = [(first, names), torch.nn.ReLU(inplace=True), (second, names)]
    # PyG imports the module that makes a `Sequential` by the name of its file, and keeps what it
    # writes under a number that it draws: other tests may have drawn the same.
    with mock.patch.dict(sys.modules, own), mock.patch("random.randrange", side_effect=(1, 2)):
        model = pyg.Sequential("x, edge_index", layers)
        assert "forward" in vars(model)
        ours, plain = pair(model)
        pyg.Sequential("other, edge_index", [(pyg.SAGEConv(3, 3), "other, edge_index -> other")])
    file = io.BytesIO()
    torch.save(ours, file)
    file.seek(0)
    for model in (ours, copy.deepcopy(ours), torch.load(file, weights_only=False)):
        compare(model, plain)
        assert_trimmed(model, [1, 0])
        compare_plain_calls(model, plain)


class AnyArguments(Pair):
    def forward(self, *given: Any) -> Tensor:  # type: ignore[override]
        return super().forward(*given)


def test_arguments_without_names_are_said_once() -> None:
    ours, plain = pair(AnyArguments())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for batch in batches():
            assert_close(ours(batch.x, batch.edge_index), plain(batch.x, batch.edge_index))
    assert len(caught) == 1 and "it takes *args, whose names are not known" in str(caught[0].message)
    with pytest.raises(TypeError, match="edge_index"):
        ours(batches()[0])


class PassesOn(Pair):
    def forward(self, x: Tensor, edge_index: Tensor, **values: Tensor) -> Tensor:
        h = self.between(self.conv1(x, edge_index, **values))
        return self.conv2(h, edge_index, **values)


class OfBatch(PassesOn):
    def forward(self, data: Any, **values: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(data.x, data.edge_index, **values)


@pytest.mark.parametrize("names", [(), ("edge_weight",)])
def test_values_that_a_forward_passes_on(names: tuple[str, ...]) -> None:
    for kind in (PassesOn, OfBatch):
        ours, plain = pair(kind(pyg.GraphConv), rows="seeds")
        for batch in batches():
            values = {name: batch[name] for name in names}
            given = (batch.x, batch.edge_index) if kind is PassesOn else (batch,)
            for found in (ours(*given, **values)[: batch.batch_size], ours(batch, **values)):
                assert_as_plain(ours, plain, found, plain(*given, **values)[: batch.batch_size])
        assert found_in(ours).reasons == []


#: Layers that take other values of nodes beside ``x``: of the input, or of the first rows.
BESIDE: dict[str, tuple[Any, Any]] = {
    "GCN2Conv": (lambda: pyg.GCN2Conv(HIDDEN, 0.1, normalize=False), lambda _, h: h),
    "PointNetConv": (
        lambda: pyg.PointNetConv(torch.nn.Linear(HIDDEN + 3, HIDDEN), torch.nn.Linear(HIDDEN, HIDDEN)),
        lambda x, _: x[:, :3],
    ),
}


@pytest.mark.parametrize("name", BESIDE)
def test_layers_that_take_other_values_of_nodes(name: str) -> None:
    def forward(model: Any, x: Tensor, edge_index: Tensor) -> Tensor:
        first = h = model.skip(x)
        for conv in model.convs:
            h = conv(h, BESIDE[name][1](x, first), edge_index).relu()
        return h

    convs = torch.nn.ModuleList([BESIDE[name][0]() for _ in range(2)])
    ours, plain = pair(Written(forward, skip=torch.nn.Linear(FEATURES, HIDDEN), convs=convs))
    compare(ours, plain)
    assert_trimmed(ours, [1, 0])
    compare_plain_calls(ours, plain)
    loader = MacrobatchNeighborLoader(GRAPH.clone(), [2], torch.arange(3))
    found = inference(ours, loader, memory_budget=1)
    assert_close(found, plain.eval()(GRAPH.x, GRAPH.edge_index).detach())


class Difference(pyg.MessagePassing):
    def __init__(self, columns: int, hidden: int) -> None:
        super().__init__(aggr="max")
        self.lin = torch.nn.Linear(columns, hidden)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=self.lin(x))

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        return F.dropout(x_j - x_i, 0.0, training=self.training)

    def update(self, inputs: Tensor) -> Tensor:
        return inputs.relu() if self.training else inputs


class Centred(Difference):
    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        return x_j - x_j.mean(dim=0) if self.training else x_j - x_i


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", [Difference, Centred])
def test_layers_that_read_the_training_flag(kind: type[Difference], training: bool) -> None:
    ours, plain = pair(Pair(kind))
    ours.train(training), plain.train(training)
    compare(ours, plain)
    if kind is not Difference and training:
        assert any("Centred is not known, and mean looks at all rows" in one for one in found_in(ours).notes)
    else:
        assert_trimmed(ours, [1, 0])


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_hooks_on_messages_are_called(after: bool) -> None:
    """PyG leaves them out while torch compiles."""
    ours, plain = pair(Pair(Difference))
    if after:
        compare(ours, plain)
    for model in (ours, plain):
        model.conv1.register_message_forward_hook(lambda *given: given[-1] * 2)
    for batch in batches():
        found, wanted = ours(batch), plain(batch.x, batch.edge_index)
        assert_close(found, wanted[: len(found)])


class Two(Difference):
    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.propagate(edge_index, x=(self.lin(x), self.lin(x)))[0]

    def update(self, inputs: Tensor) -> Any:
        return inputs, inputs


def test_a_layer_whose_propagate_returns_a_tuple() -> None:
    ours, plain = pair(Pair(Two))
    compare(ours, plain)
    assert found_in(ours).notes != []


class TorchsDropout(Pair):
    def between(self, h: Tensor) -> Tensor:
        return F.alpha_dropout(h, 0.5, self.training)


def test_all_rows_of_a_plain_call_belong_to_one_mask() -> None:
    """The gradient of the rows beside the seeds' is computed again, which would drop others."""
    ours, _ = pair(TorchsDropout())
    for batch in batches():
        rows = ours(batch.x, batch.edge_index)
        assert type(rows.grad_fn).__name__ != "_SeedRowsBackward"
    ours.eval()
    rows = ours(batch.x, batch.edge_index)
    assert type(rows.grad_fn).__name__ == "_SeedRowsBackward"


def test_a_batch_that_is_given_by_name() -> None:
    ours, plain = pair(OfBatch(), rows="seeds")
    for batch in batches():
        wanted = plain(batch)[: batch.batch_size]
        assert_close(ours(data=batch), wanted)
        assert_close(ours(batch), wanted)
    assert_trimmed(ours, [1, 0])


class OtherNames(Pair):
    def forward(self, features: Tensor, edges: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(features, edges)


def test_attributes_of_the_batch_under_other_names() -> None:
    """They are told by the tensors, not by their sizes or names."""
    ours, plain = pair(OtherNames())
    for batch in batches():
        found = ours(batch, features=batch.x, edges=batch.edge_index)
        assert_close(found, plain(batch.x, batch.edge_index)[: batch.batch_size])
    assert_trimmed(ours, [1, 0])


class Decides(OfBatch):
    def between(self, h: Tensor) -> Tensor:
        return h.relu() if float(h.sum()) != 0.5 else h


@pytest.mark.parametrize("kind", [OfBatch, Decides])
def test_a_batch_that_cannot_be_captured_gives_all_rows(kind: Any) -> None:
    """A warning says so. An object that holds itself has contents that nobody can compare."""
    told: list[str] = []
    said: list[str] = []
    ours, plain = pair(kind(), rows="seeds", report=lambda report: told.append(str(report)))
    for given_now in batches():
        batch = given_now.clone()
        if kind is OfBatch:
            batch.extra = SimpleNamespace()
            batch.extra.own = batch.extra
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = ours(batch)
        said += [str(one.message) for one in caught if "is called plainly" in str(one.message)]
        assert_close(found, plain(batch))
        assert_close(gradients(ours, found), gradients(plain, plain(batch)))
    why = "PyTorch's tracer stopped" if kind is Decides else "in objects that hold each other"
    assert len(told) == 2 and why in told[1]
    assert len(said) == 1 and why in said[0] and "model(batch) returns all of them" in said[0]


def test_a_typed_batch_of_one_type() -> None:
    data = HeteroData()
    data["paper"].x, data["paper", "cites", "paper"].edge_index = GRAPH.x.double(), GRAPH.edge_index
    ours, plain = pair(Pair())
    loader = MacrobatchNeighborLoader(data, [4, 3], ("paper", torch.arange(30)), batch_size=12, seed=1)
    for batch in loader:
        x, edges = batch["paper"].x, batch["paper", "cites", "paper"].edge_index
        assert_as_plain(ours, plain, ours(batch), plain(x, edges)[: batch["paper"].batch_size])
    assert_trimmed(ours, [1, 0])


# Dicts of other kinds #############################################################################


def test_dicts_of_other_kinds_are_taken_as_pyg_takes_them() -> None:
    two = [("a", "to", "a"), ("b", "to", "a")]
    rows = {"a": torch.randn(5, 4), "b": torch.randn(6, 4)}
    edges: dict[Any, Tensor] = {one: torch.tensor([[0, 1, 4, 4], [0, 0, 1, 3]]) for one in two}
    theirs = pyg.HeteroConv({one: pyg.SAGEConv((4, 4), 3) for one in two}, "sum")
    ours = accelerate(copy.deepcopy(theirs))
    sizes, few = {two[0]: (5, 5), two[1]: (6, 5)}, {two[0]: edges[two[0]]}
    odd = ((rows, {**edges, "b": rows["b"]}), (edges, edges), (rows, edges, rows), (rows, few, sizes))
    for given in (*odd, (rows, rows), (rows, rows, edges), (rows,), (rows, {}), ({}, edges)):
        outcomes: list[Any] = []
        for model in (theirs, ours):
            try:
                outcomes.append(model(*given).get("a"))
            except Exception as error:
                outcomes.append(type(error))
        wanted, found = outcomes
        assert torch.allclose(found, wanted, atol=1e-5) if isinstance(wanted, Tensor) else found == wanted
