"""Hypothesis strategies for models that users could have written, and the models themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor

WIDTH, FEATURES, EDGE_FEATURES = 8, 6, 3


def _perceptron(columns: int) -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Linear(columns, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH)
    )


#: Convolutions from some columns to `WIDTH`, each with the values of edges that it may be given.
CONVS: dict[str, tuple[Callable[[int], torch.nn.Module], str | None]] = {
    "sage": (lambda n: pyg.SAGEConv(n, WIDTH), None),
    "sage, max, projected": (lambda n: pyg.SAGEConv(n, WIDTH, aggr="max", project=True), None),
    "sage, normalised": (lambda n: pyg.SAGEConv(n, WIDTH, normalize=True, root_weight=False), None),
    "gcn": (lambda n: pyg.GCNConv(n, WIDTH), "edge_weight"),
    "gcn, no loops": (lambda n: pyg.GCNConv(n, WIDTH, add_self_loops=False), "edge_weight"),
    "gin": (lambda n: pyg.GINConv(_perceptron(n), train_eps=True), None),
    "gat": (lambda n: pyg.GATConv(n, WIDTH // 2, heads=2), None),
    "gat, features": (lambda n: pyg.GATConv(n, WIDTH, edge_dim=EDGE_FEATURES, residual=True), "edge_attr"),
    "gatv2": (lambda n: pyg.GATv2Conv(n, WIDTH, heads=2, concat=False), None),
    "graph": (lambda n: pyg.GraphConv(n, WIDTH), "edge_weight"),
    "gine": (lambda n: pyg.GINEConv(_perceptron(n), edge_dim=EDGE_FEATURES), "edge_attr"),
    "transformer": (lambda n: pyg.TransformerConv(n, WIDTH // 2, heads=2), None),
    "residual": (lambda n: pyg.ResGatedGraphConv(n, WIDTH), None),
    "general": (lambda n: pyg.GeneralConv(n, WIDTH), None),
    "arma": (lambda n: pyg.ARMAConv(n, WIDTH), "edge_weight"),  # computes all rows
}
#: Those that cannot do without values of edges.
NEEDING = {"gine"}

NORMS: dict[str, Callable[[], torch.nn.Module]] = {
    "layer": lambda: torch.nn.LayerNorm(WIDTH),
    "layer of PyG": lambda: pyg.LayerNorm(WIDTH, mode="node"),
    "batch": lambda: torch.nn.BatchNorm1d(WIDTH),
    "batch of PyG": lambda: pyg.BatchNorm(WIDTH),
    "rms": lambda: torch.nn.RMSNorm(WIDTH),
    "graph": lambda: pyg.GraphNorm(WIDTH),
    "pair": lambda: pyg.PairNorm(),
}
STATISTICS = {"batch", "batch of PyG"}
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "method": lambda x: x.relu(),
    "in place": lambda x: x.add(0.1).relu_(),
    "option": lambda x: F.relu(x + 0, inplace=True),
    "elu": F.elu,
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
    "leaky": lambda x: F.leaky_relu(x, 0.3),
    "none": lambda x: x,
}
MODULES: dict[str, Callable[[], torch.nn.Module]] = {
    "relu": torch.nn.ReLU,
    "prelu": torch.nn.PReLU,
    "silu": torch.nn.SiLU,
    "elu in place": lambda: torch.nn.ELU(inplace=True),
}
JOINS = ("add", "linear", "cat", "gate", "in place", "max", "first columns")
OUTPUTS = ("rows", "tuple", "dict", "jumping cat", "jumping max", "jumping lstm", "softmax")


@dataclass(frozen=True)
class Layer:
    """One layer of a model.

    Attributes:
        conv: the kind of convolution; None for a linear layer alone.
        shares: takes the convolution, norm and the like of the layer of this number.
        reads: which value it reads; 0 is the newest.
        joins: how it is joined with an older value, of number ``older``.
    """

    conv: str | None
    shares: int | None
    reads: int
    norm: str | None
    norm_first: bool
    act: str
    join: str | None
    older: int
    drop: str | None


@dataclass(frozen=True)
class Plan:
    layers: tuple[Layer, ...]
    encode: bool
    output: str
    values: bool

    @property
    def convs(self) -> list[str]:
        found: list[str | None] = []
        for layer in self.layers:
            found.append(layer.conv if layer.shares is None else found[layer.shares])
        return [one for one in found if one is not None]

    @property
    def looks_at_all_rows(self) -> bool:
        norms = {layer.norm for layer in self.layers}
        return "arma" in self.convs or bool(norms & {"graph", "pair"}) or self.output == "jumping lstm"

    @property
    def reads_ends(self) -> bool:
        """Returns whether values of edges follow from the rows of their ends."""
        kinds = [one.conv if one.shares is None else self.layers[one.shares].conv for one in self.layers]
        reads = {kind for kind, (_, name) in CONVS.items() if name == "edge_attr"}
        return self.values and any(
            kind in reads and layer.norm_first for kind, layer in zip(kinds, self.layers, strict=True)
        )

    @property
    def has_statistics(self) -> bool:
        return any(layer.norm in STATISTICS for layer in self.layers)


@st.composite
def layers(draw: st.DrawFn, number: int) -> Layer:
    older = draw(st.integers(0, number))
    return Layer(
        conv=draw(st.one_of(st.sampled_from(list(CONVS)), st.none())),
        shares=draw(st.sampled_from([None, None, *range(1, number)])) if number > 1 else None,
        reads=draw(st.sampled_from([0, 0, 0, older])),
        norm=draw(st.sampled_from([None, None, *NORMS])),
        norm_first=draw(st.booleans()),
        act=draw(st.sampled_from([*ACTIVATIONS, *(f"module {one}" for one in MODULES)])),
        join=draw(st.sampled_from([None, None, *JOINS])),
        older=older,
        drop=draw(st.sampled_from([None, "function", "module"])),
    )


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    count = draw(st.integers(1, 4))
    found = tuple(draw(layers(number)) for number in range(count))
    values = draw(st.booleans())
    plan = Plan(found, draw(st.booleans()), draw(st.sampled_from(OUTPUTS)), values)
    if not set(plan.convs) & NEEDING:
        return plan
    return Plan(found, plan.encode, plan.output, True)


class RandomModel(torch.nn.Module):
    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        self.encoder = torch.nn.Linear(FEATURES, WIDTH) if plan.encode else None
        self.parts = torch.nn.ModuleList(self._part(layer) for layer in plan.layers)
        self.jump = pyg.JumpingKnowledge(plan.output.removeprefix("jumping "), WIDTH, len(plan.layers)) \
            if plan.output.startswith("jumping") else None  # fmt: skip
        self.rate = 0.0

    def _part(self, layer: Layer) -> torch.nn.ModuleDict:
        part = torch.nn.ModuleDict({"wide": torch.nn.Linear(FEATURES, WIDTH)})
        make = None if layer.conv is None else CONVS[layer.conv][0]
        part["conv"] = torch.nn.Linear(WIDTH, WIDTH) if make is None else make(WIDTH)
        if layer.norm is not None:
            part["norm"] = NORMS[layer.norm]()
        if layer.act.startswith("module "):
            part["act"] = MODULES[layer.act.removeprefix("module ")]()
        if layer.join is not None:
            part["skip"] = torch.nn.Linear(WIDTH, WIDTH)
            part["both"] = torch.nn.Linear(2 * WIDTH, WIDTH)
        part["drop"], part["ends"] = torch.nn.Dropout(0.0), torch.nn.Linear(WIDTH, EDGE_FEATURES)
        return part

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
    ) -> Any:
        edges = {"edge_weight": edge_weight, "edge_attr": edge_attr}
        values = [x if self.encoder is None else self.encoder(x)]
        made = []
        for number, layer in enumerate(self.plan.layers):
            values.append(self._layer(number, layer, values, edge_index, edges))
            made.append(values[-1])
        return self._output(made)

    def _wide(self, part: Any, x: Tensor) -> Tensor:
        rows: Tensor = x if x.size(-1) == WIDTH else part["wide"](x)
        return rows

    def _layer(
        self,
        number: int,
        layer: Layer,
        values: Sequence[Tensor],
        edge_index: Tensor,
        edges: Mapping[str, Any],
    ) -> Tensor:
        part: Any = self.parts[number]
        kind, shared = layer.conv, part
        if layer.shares is not None:
            shared, kind = self.parts[layer.shares], self.plan.layers[layer.shares].conv
        h = self._wide(part, values[-1 - layer.reads])
        if kind is None:
            h = shared["conv"](h)
        else:
            name = CONVS[kind][1]
            given = {name: edges[name]} if name is not None and edges[name] is not None else {}
            if "edge_attr" in given and layer.norm_first:  # features of edges follow from their ends
                (source, target), ends = edge_index, part["ends"](h)
                given["edge_attr"] = given["edge_attr"] + torch.tanh(ends[source] - ends[target])
            h = shared["conv"](h, edge_index, **given)
        if layer.norm is not None and layer.norm_first:
            h = part["norm"](h)
        h = part["act"](h) if "act" in part else ACTIVATIONS[layer.act](h)
        if layer.drop == "function":
            h = F.dropout(h, p=self.rate, training=self.training)
        elif layer.drop == "module":
            h = part["drop"](h)
        if layer.join is not None:
            h = self._join(layer.join, part, h, self._wide(part, values[-1 - layer.older]))
        if layer.norm is not None and not layer.norm_first:
            h = part["norm"](h)
        return h

    @staticmethod
    def _join(join: str, part: Any, h: Tensor, older: Tensor) -> Tensor:
        if join == "add":
            return h + older
        if join == "linear":
            return part["skip"](older) + h
        if join == "cat":
            joined: Tensor = part["both"](torch.cat([h, older], dim=-1))
            return joined
        if join == "gate":
            gate = torch.sigmoid(part["both"](torch.cat([older, h], dim=1)))
            return gate * h + (1 - gate) * older
        if join == "in place":
            h = h * 0.5
            h += part["skip"](older)
            return h
        if join == "max":
            return torch.maximum(h, older)
        return torch.cat([h[:, :3], older[:, 3:]], dim=1)

    def _output(self, made: list[Tensor]) -> Any:
        output = self.plan.output
        if output == "tuple":
            return made[-1], made[0]
        if output == "dict":
            return {"last": made[-1], "all": [one * 2 for one in made]}
        if output == "softmax":
            return made[-1].log_softmax(dim=-1)
        return made[-1] if self.jump is None else self.jump(made)
