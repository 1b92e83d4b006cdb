"""Own models beside their accelerated copies: batches, what is compared, and what was recorded."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric.data import Data

from pyg_batchgnn import MacrobatchNeighborLoader
from pyg_batchgnn.port import accelerate
from pyg_batchgnn.port.call import Graph
from tests.support.ported_models import CLASSES, FEATURES, GRAPH, stirred

#: Seeds with duplicates and isolated nodes. The last batch is smaller.
SEEDS = torch.tensor([*range(0, 60, 3), 3, 3, 185, 9, 190, 12, 199, 14, 17, 19, 21])
BATCH_SIZE = 12


@cache
def batches(
    fanouts: Sequence[int] = (4, 3), dtype: torch.dtype = torch.float64, export: str = "pyg", **options: Any
) -> list[Any]:
    data = GRAPH.clone()
    for name in ("x", "edge_weight", "edge_attr"):
        data[name] = data[name].to(dtype)
    loader = MacrobatchNeighborLoader(
        data, list(fanouts), SEEDS, batch_size=BATCH_SIZE, seed=5, export=export, **options
    )
    return list(loader)


def pair(model: torch.nn.Module, dtype: torch.dtype = torch.float64, **options: Any) -> tuple[Any, Any]:
    plain = stirred(model.to(dtype))
    return accelerate(copy.deepcopy(plain), **options), plain


def tensors(tree: Any) -> list[Tensor]:
    if isinstance(tree, Tensor):
        return [tree]
    if isinstance(tree, Mapping):
        return [found for one in tree.values() for found in tensors(one)]
    if isinstance(tree, (tuple, list)):
        return [found for one in tree for found in tensors(one)]
    return []


def cut(tree: Any, rows: int) -> Any:
    if isinstance(tree, Tensor):
        return tree[:rows]
    if isinstance(tree, Mapping):
        return {name: cut(one, rows) for name, one in tree.items()}
    if isinstance(tree, (tuple, list)):
        return type(tree)(cut(one, rows) for one in tree)
    return tree


def gradients(model: torch.nn.Module, output: Any, inputs: Sequence[Tensor] = ()) -> dict[str, Tensor]:
    """The gradients of a sum that weighs every element of the output differently, by parameter."""
    leaves = {name: one for name, one in model.named_parameters() if one.requires_grad}
    leaves |= {f"input {number}": one for number, one in enumerate(inputs)}
    outputs = [one for one in tensors(output) if one.requires_grad]
    if not outputs:
        return {}
    total = sum((one * torch.linspace(0.1, 1.0, one.numel()).to(one).view_as(one)).sum() for one in outputs)
    found = torch.autograd.grad(total, list(leaves.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(leaves, found, strict=True))


def assert_close(found: Any, wanted: Any, tolerance: float = 1e-10) -> None:
    """Fails unless both have the same form, and every tensor differs by little."""
    assert type(found) is type(wanted) and _keys(found) == _keys(wanted)
    pairs = list(zip(tensors(found), tensors(wanted), strict=True))
    largest = max((float(one.detach().abs().max()) for _, one in pairs if one.numel()), default=0.0)
    for one, other in pairs:
        assert one.shape == other.shape and one.dtype == other.dtype
        error = (one - other).detach().abs().max() if one.numel() else torch.zeros(())
        assert float(error) <= tolerance * max(1.0, largest), float(error)


def _keys(tree: Any) -> Any:
    return list(tree) if isinstance(tree, Mapping) else len(tree) if isinstance(tree, (tuple, list)) else None


def assert_as_plain(ours: Any, plain: Any, found: Any, wanted: Any, tolerance: float = 1e-10) -> None:
    """Fails unless the results and gradients of an accelerated model are those of the plain one."""
    assert_close(found, wanted, tolerance)
    grads = (list(gradients(*one).values()) for one in ((ours, found), (plain, wanted)))
    assert_close(*grads, tolerance)


def compare(
    ours: torch.nn.Module,
    plain: torch.nn.Module,
    given: Sequence[Any] | None = None,
    call: Callable[[torch.nn.Module, Any], Any] = lambda model, batch: model(batch.x, batch.edge_index),
    tolerance: float = 1e-10,
    **named: Any,
) -> None:
    """Fails unless ``ours(batch)`` gives the plain model's rows of the seeds, and their gradients.
    ``call``: calls the plain model with a batch. ``named``: arguments beside the batch."""
    for batch in batches() if given is None else given:
        found, wanted = ours(batch, **named), cut(call(plain, batch), batch.batch_size)
        assert_as_plain(ours, plain, found, wanted, tolerance)


def compare_plain_calls(ours: torch.nn.Module, plain: torch.nn.Module, tolerance: float = 1e-10) -> None:
    """Fails unless ``ours(x, edge_index)`` gives all rows, with gradients of seeds and of all."""
    for batch in batches():
        for rows in (batch.batch_size, batch.num_nodes):
            found, wanted = (cut(model(batch.x, batch.edge_index), rows) for model in (ours, plain))
            assert_as_plain(ours, plain, found, wanted, tolerance)


@dataclass(frozen=True)
class Found:
    """The graphs that were recorded of an accelerated model's calls, or why there are none."""

    graphs: list[Graph]
    reasons: list[str]

    @property
    def notes(self) -> list[str]:
        return [call.note for one in self.graphs for call in one.recording.calls if call.note]

    @property
    def hops(self) -> list[list[int]]:
        """The hops of the rows that each convolution computes, of each program."""
        programs = (program for one in self.graphs for program in one.programs.values())
        parts = ([part for step in one.steps for part in step.parts or [step]] for one in programs)
        return [[part.hops for part in each if part.call.message_passing] for each in parts]


def found_in(model: Any) -> Found:
    tracing = model._batchgnn
    graphs = [one for one in tracing.graphs if not one.wrong]
    refused = [why for entry in tracing.entries.values() for why in entry.refused.values()]
    return Found(graphs, [one.wrong for one in tracing.graphs if one.wrong] + refused)


def assert_recorded(model: torch.nn.Module, graphs: int = 1) -> None:
    """Fails unless all calls so far ran by graphs, of which there are at most this number."""
    found = found_in(model)
    assert found.reasons == [] and 0 < len(found.graphs) <= graphs, found.reasons or len(found.graphs)


def assert_trimmed(model: torch.nn.Module, hops: list[int] | None = None) -> None:
    """Fails unless nothing computes all rows. ``hops``: of the rows of each convolution."""
    found = found_in(model)
    assert found.reasons == [] and found.notes == [], (found.reasons, found.notes)
    assert found.graphs
    if hops is not None:
        assert all(one == hops for one in found.hops), found.hops


def as_data(x: Tensor, edge_index: Tensor, nodes: list[int], edges: list[int], **values: Any) -> Data:
    counts = {"num_sampled_nodes": nodes, "num_sampled_edges": edges, "batch_size": nodes[0]}
    return Data(x=x, edge_index=edge_index, **counts, **values)


#: What a model does with the rows between its convolutions: of the model, the input and the rows.
Middle = Callable[[Any, Tensor, Tensor], Tensor]
HIDDEN = 8


class Net(torch.nn.Module):
    def __init__(self, middle: Middle) -> None:
        super().__init__()
        self.first = pyg.SAGEConv(FEATURES, HIDDEN)
        self.second = pyg.SAGEConv(HIDDEN, CLASSES)
        self.register_buffer("table", torch.linspace(0, 1, HIDDEN))
        self.register_buffer("average", torch.zeros(HIDDEN))
        self.alpha, self.held, self.seen = 0.5, {"rate": 0.5}, []
        self.middle = middle

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.first(x, edge_index)
        h = self.middle(self, x, h)
        return self.second(h, edge_index)


class Written(torch.nn.Module):
    """Parts, and a function of the model, the rows and the edges that is its ``forward``."""

    def __init__(self, written: Callable[[Any, Tensor, Tensor], Any], **parts: Any) -> None:
        super().__init__()
        self.written = written
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.written(self, x, edge_index)


class Options(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList([pyg.GCNConv(FEATURES, HIDDEN), pyg.GCNConv(HIDDEN, CLASSES)])
        self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(HIDDEN)])
        self.act, self.rates, self.option = "relu", [0.5, 2.0], SimpleNamespace(scale=0.5)

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None, power: int = 1
    ) -> Tensor:
        x = x**power
        for number, conv in enumerate(self.convs):
            x = conv(x, edge_index, edge_weight) if edge_weight is not None else conv(x, edge_index)
            if number < len(self.convs) - 1:
                x = getattr(self.norms[number](x), self.act)() * self.rates[1] * self.option.scale
        return x
