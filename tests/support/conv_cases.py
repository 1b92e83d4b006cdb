"""PyG's message passing layers with options, and the modes in which each of them is trimmed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch.nn import BatchNorm1d, Linear, Module, ReLU, Sequential
from torch_geometric.nn import aggr

#: The columns of inputs and outputs, and the number of types of nodes and edges.
COLUMNS, OUT, RELATIONS = 6, 8, 3
TRAINING, EVALUATION = True, False
A = COLUMNS


@dataclass(frozen=True)
class Case:
    """A layer with options.

    Attributes:
        make: makes the layer.
        given: the further arguments of its call.
        trimmed: the values of ``training`` in which it is trimmed.
        x: the form of its input: "rows", of larger numbers ("huge"), "ids", or of several "layers";
            "late edges" for a batch of its own.
        untried: the reason if no call tells that it must be whole.
    """

    make: Callable[[], Module]
    given: tuple[str, ...] = ()
    trimmed: tuple[bool, ...] = (TRAINING, EVALUATION)
    x: str = "rows"
    untried: str | None = None


def trimmed(make: Callable[[], Module], *given: str, x: str = "rows") -> Case:
    return Case(make, given, x=x)


def whole(make: Callable[[], Module], *given: str, x: str = "rows", untried: str | None = None) -> Case:
    return Case(make, given, (), x, untried)


def evaluated(make: Callable[[], Module], *given: str, untried: str | None = None) -> Case:
    return Case(make, given, (EVALUATION,), untried=untried)


def mlp(columns: int = COLUMNS, out: int = OUT, norm: Module | None = None) -> Sequential:
    return Sequential(Linear(columns, OUT), norm or torch.nn.Identity(), ReLU(), Linear(OUT, out))


def pna(**options: Any) -> Module:
    degrees = torch.tensor([2, 5, 9, 3])
    scalers = ["identity", "amplification", "attenuation", "linear", "inverse_linear"]
    return pyg.PNAConv(COLUMNS, OUT, ["mean", "min", "max", "std", "var"], scalers, degrees, **options)


AGGREGATIONS: dict[str, Callable[[], Any]] = {
    **{name: lambda name=name: name for name in ("sum", "mean", "max", "min", "mul", "var", "std", "median")},
    "softmax": lambda: aggr.SoftmaxAggregation(learn=True),
    "powermean": lambda: aggr.PowerMeanAggregation(learn=True),
    "quantiles": lambda: aggr.QuantileAggregation([0.1, 0.7]),
    "set2set": lambda: aggr.Set2Set(A, 2),
    "deep sets": lambda: aggr.DeepSetsAggregation(mlp(A, A), pyg.MLP([A, A, A], norm=None)),
    "attention": lambda: aggr.AttentionalAggregation(mlp(A, 1), mlp(A, A)),
    "variance preserving": aggr.VariancePreservingAggregation,
    "perceptron": lambda: aggr.MLPAggregation(A, A, 3, num_layers=1),
    "set transformer": lambda: aggr.SetTransformerAggregation(A, 2, 2, 2, heads=2, layer_norm=True),
    "multiset transformer": lambda: aggr.GraphMultisetTransformer(A, 3, heads=2),
    "scaled": lambda: aggr.DegreeScalerAggregation(
        ["mean", "median"], ["linear"], torch.tensor([1, 4, 2]), True
    ),
    "several": lambda: ["sum", "std", aggr.SoftmaxAggregation(), aggr.MedianAggregation()],
    "their maximum": lambda: aggr.MultiAggregation(["sum", "mean"], mode="max"),
    "projected": lambda: aggr.MultiAggregation(
        ["sum", "mean"], mode="proj", mode_kwargs={"in_channels": A, "out_channels": A}
    ),
    "attended": lambda: aggr.MultiAggregation(
        ["sum", "mean"], mode="attn", mode_kwargs={"in_channels": A, "out_channels": A, "num_heads": 2}
    ),
}
PADDED: dict[str, Callable[[], Any]] = {
    "lstm": lambda: aggr.LSTMAggregation(A, A),
    "gru": lambda: aggr.GRUAggregation(A, A),
    "lcm": lambda: aggr.LCMAggregation(A, A),
    "patches": lambda: aggr.PatchTransformerAggregation(A, A, 1, A),
    "equilibrium": lambda: aggr.EquilibriumAggregation(A, A, [4]),
    "lstm among others": lambda: ["mean", aggr.LSTMAggregation(A, A)],
    "scaled gru": lambda: aggr.DegreeScalerAggregation(
        aggr.GRUAggregation(A, A), ["linear"], torch.tensor([1, 4])
    ),
}

SCALED = {"normalize": False}
#: Classes that take other arguments than rows and edges: they are whole.
OTHER_CALLS = (
    *("CuGraphSAGEConv", "CuGraphGATConv", "CuGraphRGCNConv", "FusedGATConv"),
    *("GravNetConv", "DynamicEdgeConv", "XConv", "SignedConv", "PANConv"),
    *("HGTConv", "HeteroConv", "HANConv", "WLConv"),
)
CASES: dict[str, dict[str, Case]] = {
    "SimpleConv": {
        **{
            f"{root}, {weight}": trimmed(lambda root=root: pyg.SimpleConv("mean", root), *weight)
            for root in ("sum", "cat", "self_loop", None)
            for weight in ((), ("edge_weight",))
        },
        **{name: trimmed(lambda make=make: pyg.SimpleConv(make())) for name, make in AGGREGATIONS.items()},
        **{name: whole(lambda make=make: pyg.SimpleConv(make())) for name, make in PADDED.items()},
        "sorted": whole(lambda: pyg.SimpleConv(aggr.SortAggregation(2)), x="huge"),
        "graph norm": whole(
            lambda: pyg.SimpleConv(aggr.DeepSetsAggregation(global_nn=pyg.GraphNorm(A))), x="rows"
        ),
    },
    "GCNConv": {
        "": whole(lambda: pyg.GCNConv(A, OUT), "edge_weight"),
        "no loops": whole(lambda: pyg.GCNConv(A, OUT, add_self_loops=False)),
        "not normalised": trimmed(lambda: pyg.GCNConv(A, OUT, **SCALED), "edge_weight"),
    },
    "ChebConv": {
        "1": trimmed(lambda: pyg.ChebConv(A, OUT, 1), "edge_weight"),
        "2": whole(lambda: pyg.ChebConv(A, OUT, 2), "edge_weight"),
        "3": whole(lambda: pyg.ChebConv(A, OUT, 3, normalization=None)),
    },
    "SAGEConv": {
        "": trimmed(lambda: pyg.SAGEConv(A, OUT)),
        "all options": trimmed(
            lambda: pyg.SAGEConv(A, OUT, "max", normalize=True, project=True, root_weight=False)
        ),
        "lazy": trimmed(lambda: pyg.SAGEConv(-1, OUT)),
        "lstm": whole(lambda: pyg.SAGEConv(A, OUT, "lstm")),
        "reversed": whole(lambda: pyg.SAGEConv(A, OUT, flow="target_to_source")),
        "nodes second": whole(lambda: pyg.SAGEConv(A, OUT, node_dim=1), untried="its rows are columns"),
    },
    "GraphConv": {"": trimmed(lambda: pyg.GraphConv(A, OUT), "edge_weight")},
    "GatedGraphConv": {
        "1": trimmed(lambda: pyg.GatedGraphConv(OUT, 1), "edge_weight"),
        "2": whole(lambda: pyg.GatedGraphConv(OUT, 2)),
    },
    "ResGatedGraphConv": {
        "": trimmed(lambda: pyg.ResGatedGraphConv(A, OUT)),
        "edges": trimmed(lambda: pyg.ResGatedGraphConv(A, OUT, torch.tanh, edge_dim=3), "edge_attr"),
        "softmax": whole(lambda: pyg.ResGatedGraphConv(A, OUT, torch.nn.Softmax(0))),
        "a function": whole(lambda: pyg.ResGatedGraphConv(A, OUT, lambda x: x - x.mean(0))),
    },
    "GATConv": {
        "": trimmed(lambda: pyg.GATConv(A, OUT, 2)),
        "pair": trimmed(lambda: pyg.GATConv((A, A), OUT, 2, concat=False, residual=True)),
        "no loops": trimmed(lambda: pyg.GATConv(A, OUT, edge_dim=3, add_self_loops=False), "edge_attr"),
        **{
            f"loops of {fill}": trimmed(
                lambda fill=fill: pyg.GATConv(A, OUT, edge_dim=3, fill_value=fill), "edge_attr"
            )
            for fill in ("mean", "max", 0.5)
        },
    },
    "GATv2Conv": {
        "": trimmed(lambda: pyg.GATv2Conv(A, OUT, 2, share_weights=True)),
        "edges": trimmed(lambda: pyg.GATv2Conv(A, OUT, edge_dim=3, residual=True), "edge_attr"),
    },
    "TransformerConv": {
        "": trimmed(lambda: pyg.TransformerConv(A, OUT, 2)),
        "edges": trimmed(lambda: pyg.TransformerConv(A, OUT, 2, False, True, edge_dim=3), "edge_attr"),
    },
    "AGNNConv": {"": trimmed(pyg.AGNNConv), "no loops": trimmed(lambda: pyg.AGNNConv(add_self_loops=False))},
    "TAGConv": {
        "": whole(lambda: pyg.TAGConv(A, OUT)),
        "once": trimmed(lambda: pyg.TAGConv(A, OUT, 1, **SCALED), "edge_weight"),
        "twice": whole(lambda: pyg.TAGConv(A, OUT, 2, **SCALED)),
    },
    "GINConv": {
        "": trimmed(lambda: pyg.GINConv(mlp(), train_eps=True)),
        "a function": trimmed(lambda: pyg.GINConv(torch.relu)),
        "layer norm of PyG": trimmed(lambda: pyg.GINConv(mlp(norm=pyg.LayerNorm(OUT, mode="node")))),
        "of the graph": whole(lambda: pyg.GINConv(mlp(norm=pyg.LayerNorm(OUT)))),
        "instance norm": whole(lambda: pyg.GINConv(mlp(norm=pyg.InstanceNorm(OUT)))),
        "perceptron": trimmed(
            lambda: pyg.GINConv(pyg.MLP([A, OUT, OUT], norm="layer_norm", norm_kwargs={"mode": "node"}))
        ),
        "perceptron of a graph": whole(lambda: pyg.GINConv(pyg.MLP([A, OUT, OUT], norm="graph_norm"))),
    },
    "GINEConv": {"": trimmed(lambda: pyg.GINEConv(mlp(), edge_dim=3), "edge_attr")},
    "ARMAConv": {"": whole(lambda: pyg.ARMAConv(A, OUT)), "2": whole(lambda: pyg.ARMAConv(A, OUT, 2, 2))},
    "SGConv": {"": whole(lambda: pyg.SGConv(A, OUT)), "2": whole(lambda: pyg.SGConv(A, OUT, 2))},
    "SSGConv": {"": whole(lambda: pyg.SSGConv(A, OUT, 0.3)), "2": whole(lambda: pyg.SSGConv(A, OUT, 0.3, 2))},
    "APPNP": {
        "": whole(lambda: pyg.APPNP(1, 0.1)),
        "once": trimmed(lambda: pyg.APPNP(1, 0.1, **SCALED), "edge_weight"),
    },
    "MFConv": {"": trimmed(lambda: pyg.MFConv(A, OUT, max_degree=2))},
    "RGCNConv": {
        "": trimmed(lambda: pyg.RGCNConv(A, OUT, RELATIONS), "edge_type"),
        "bases": trimmed(lambda: pyg.RGCNConv(A, OUT, RELATIONS, num_bases=2, aggr="max"), "edge_type"),
        "ids": trimmed(lambda: pyg.RGCNConv(100, OUT, RELATIONS), "edge_type", x="ids"),
    },
    "FastRGCNConv": {
        "": trimmed(lambda: pyg.FastRGCNConv(A, OUT, RELATIONS), "edge_type"),
        "ids": trimmed(lambda: pyg.FastRGCNConv(100, OUT, RELATIONS), "edge_type", x="ids"),
    },
    "RGATConv": {
        **{
            f"{mod}, {mechanism}": trimmed(
                lambda mod=mod, mechanism=mechanism: pyg.RGATConv(
                    A, OUT, RELATIONS, mod=mod, attention_mechanism=mechanism, heads=2, edge_dim=3
                ),
                *("edge_type", "edge_attr"),
            )
            for mod in ("additive", "f-scaled", None)
            for mechanism in ("within-relation", "across-relation")
        },
        "blocks": trimmed(lambda: pyg.RGATConv(A, OUT, RELATIONS, num_blocks=2, concat=False), "edge_type"),
    },
    "DNAConv": {
        "": whole(lambda: pyg.DNAConv(A), x="layers"),
        "not normalised": trimmed(lambda: pyg.DNAConv(A, 2, 2, **SCALED), "edge_weight", x="layers"),
    },
    "PointNetConv": {"": trimmed(lambda: pyg.PointNetConv(mlp(A + 3), mlp(OUT)), "pos")},
    "GMMConv": {
        "": trimmed(lambda: pyg.GMMConv(A, OUT, 3, 2), "edge_attr"),
        "separate": trimmed(lambda: pyg.GMMConv(A, OUT, 3, 2, separate_gaussians=True), "edge_attr"),
    },
    "SplineConv": {"": trimmed(lambda: pyg.SplineConv(A, OUT, 3, 2), "edge_attr")},
    "NNConv": {
        "": trimmed(lambda: pyg.NNConv(A, OUT, mlp(3, A * OUT)), "edge_attr"),
        "pair norm": whole(lambda: pyg.NNConv(A, OUT, mlp(3, A * OUT, pyg.PairNorm())), "edge_attr"),
    },
    "CGConv": {"": trimmed(lambda: pyg.CGConv(A, 3), "edge_attr")},
    "EdgeConv": {
        "": trimmed(lambda: pyg.EdgeConv(mlp(2 * A))),
        "pair norm": whole(lambda: pyg.EdgeConv(mlp(2 * A, norm=pyg.PairNorm()))),
    },
    "PPFConv": {"": trimmed(lambda: pyg.PPFConv(mlp(A + 4), mlp(OUT)), "pos", "normal")},
    "FeaStConv": {"": trimmed(lambda: pyg.FeaStConv(A, OUT, 2))},
    "PointTransformerConv": {
        "": trimmed(lambda: pyg.PointTransformerConv(A, OUT), "pos"),
        "networks": trimmed(lambda: pyg.PointTransformerConv(A, OUT, mlp(3), mlp(OUT), False), "pos"),
    },
    "HypergraphConv": {"": whole(lambda: pyg.HypergraphConv(A, OUT))},
    "LEConv": {"": trimmed(lambda: pyg.LEConv(A, OUT), "edge_weight")},
    "PNAConv": {
        "": trimmed(pna),
        "towers": trimmed(
            lambda: pna(
                edge_dim=3, towers=2, pre_layers=2, post_layers=2, divide_input=True, train_norm=True
            ),
            "edge_attr",
        ),
        "batch norm": evaluated(lambda: pna(act=BatchNorm1d(A), pre_layers=2)),
    },
    "ClusterGCNConv": {
        "": trimmed(lambda: pyg.ClusterGCNConv(A, OUT, diag_lambda=0.5)),
        "no loops": whole(
            lambda: pyg.ClusterGCNConv(A, OUT, add_self_loops=False),
            untried="its plain call fails, because nodes of the last hop have no loops",
        ),
    },
    "GENConv": {
        "layer norm": trimmed(
            lambda: pyg.GENConv(A, OUT, norm="layer", edge_dim=3, learn_t=True), "edge_attr"
        ),
        "instance norm": trimmed(lambda: pyg.GENConv(A, OUT, "power", norm="instance", learn_p=True)),
        "message norm": trimmed(lambda: pyg.GENConv(A, A, ["mean", "max"], msg_norm=True, norm="layer")),
    },
    "GCN2Conv": {
        "": whole(lambda: pyg.GCN2Conv(A, 0.1), "x_0"),
        "not normalised": trimmed(
            lambda: pyg.GCN2Conv(A, 0.1, 0.5, 2, False, **SCALED), "x_0", "edge_weight"
        ),
    },
    "WLConvContinuous": {"": trimmed(pyg.WLConvContinuous)},
    "FiLMConv": {
        "": trimmed(lambda: pyg.FiLMConv(A, OUT)),
        "relations": trimmed(
            lambda: pyg.FiLMConv(A, OUT, RELATIONS, mlp(A, 2 * OUT), torch.tanh), "edge_type"
        ),
    },
    "SuperGATConv": {
        kind: evaluated(
            lambda kind=kind: pyg.SuperGATConv(A, OUT, 2, attention_type=kind),
            untried="its rows are the same, and its loss is not a row",
        )
        for kind in ("MX", "SD")
    },
    "FAConv": {
        "": whole(lambda: pyg.FAConv(A), "x_0"),
        "not normalised": trimmed(lambda: pyg.FAConv(A, **SCALED), "x_0", "edge_weight"),
    },
    "EGConv": {
        "": whole(lambda: pyg.EGConv(A, OUT)),
        "others": trimmed(
            lambda: pyg.EGConv(A, OUT, ["sum", "mean", "min", "max", "var", "std"], add_self_loops=False)
        ),
        "loops": whole(lambda: pyg.EGConv(A, OUT, ["mean"]), x="late edges"),
    },
    "PDNConv": {
        "": whole(lambda: pyg.PDNConv(A, OUT, 3, 4), "edge_attr"),
        "not normalised": trimmed(lambda: pyg.PDNConv(A, OUT, 3, 4, **SCALED), "edge_attr"),
    },
    "GeneralConv": {
        "": trimmed(lambda: pyg.GeneralConv(A, OUT, 3), "edge_attr"),
        "attention": trimmed(
            lambda: pyg.GeneralConv(A, OUT, heads=2, attention=True, directed_msg=False, l2_normalize=True)
        ),
        "dot product": trimmed(
            lambda: pyg.GeneralConv(A, A, heads=2, attention=True, attention_type="dot_product", aggr="max")
        ),
    },
    "HEATConv": {
        root: trimmed(
            lambda root=root: pyg.HEATConv(
                A, OUT, RELATIONS, RELATIONS, 4, 3, 5, heads=2, concat=root == "cat"
            ),
            *("node_type", "edge_type", "edge_attr"),
        )
        for root in ("cat", "mean")
    },
    "LGConv": {"": whole(pyg.LGConv), "not normalised": trimmed(lambda: pyg.LGConv(**SCALED), "edge_weight")},
    "PointGNNConv": {
        "": trimmed(lambda: pyg.PointGNNConv(mlp(A, 3), mlp(A + 3), mlp(OUT, A)), "pos"),
        "batch norm": evaluated(
            lambda: pyg.PointGNNConv(mlp(A, 3), mlp(A + 3), mlp(OUT, A, BatchNorm1d(OUT))), "pos"
        ),
    },
    "GPSConv": {"": whole(lambda: pyg.GPSConv(A, pyg.SAGEConv(A, A), norm=None))},
    "AntiSymmetricConv": {"": whole(lambda: pyg.AntiSymmetricConv(A))},
    "DirGNNConv": {"": whole(lambda: pyg.DirGNNConv(pyg.SAGEConv(A, OUT)))},
    "MixHopConv": {"": whole(lambda: pyg.MixHopConv(A, OUT))},
    "MeshCNNConv": {
        "": whole(
            lambda: pyg.MeshCNNConv(A, OUT), untried="its plain call fails on a sample: edges go by four"
        )
    },
}
