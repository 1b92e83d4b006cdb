"""The message passing layers of PyG that may be computed for the first nodes of a minibatch alone.

In a sampled minibatch the in-edges of the first D nodes are the first edges, and their sources are
among the first S nodes (design, section 3). So a layer whose rows depend on their own input and
in-edges alone can be asked for D rows. Class, options and parts of a layer tell.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch_geometric.nn as pyg
import torch_geometric.nn.aggr as aggr
import torch_geometric.nn.conv as convs
from torch import Tensor
from torch.nn.utils import parametrize
from torch_geometric.nn.conv import MessagePassing, dna_conv, gen_conv

from pyg_batchgnn.port import rules
from pyg_batchgnn.port.recording import Edges, Recording, refs

Module = torch.nn.Module
#: Says why something looks at other rows or edges, in a clause that begins with a verb, or None.
Rule = Callable[[Any], str | None]
Rows = Tensor | Sequence[Tensor]  # of all nodes, or of sources and of targets


def whole_reason(conv: Module, x: Rows | None = None, trims: Collection[type[Module]] = ()) -> str | None:
    """Returns why a layer must compute all rows; None if `call_trimmed` may compute the first ones,
    as long as options, parts, hooks and ``training`` stay. ``trims``: classes of layers or parts
    that the user declares safe; of these only aggregations and batch norms are checked."""
    kind = kind_of(conv)
    if kind in _WHOLE or not (kind in _LAYERS or kind in trims):
        return f"{kind.__name__} {_WHOLE.get(kind) or f'is not known; {how_to_name(conv)}'}"
    layer = _LAYERS.get(kind, _NAMED)
    why = _why_by_state(conv) or layer.why(conv)
    rows: Any = x if isinstance(x, (tuple, list)) else (x,)
    others = {one.dim() for one in rows if one is not None}.difference(layer.dims)
    if why is None and layer.dims and others:
        why = f"is called with x of {others.pop()} dimensions"
    if why is None and kind in trims:
        aggregation: Any = conv.aggr_module
        why = None if aggregation is None else next(_whys_of_part(aggregation, trims, "aggr_module"), None)
    elif why is None:
        why = _why_by_functions(conv) or next(_whys_of_parts(conv, trims), None)
    if why is None and isinstance(x, (tuple, list)) and layer is not _NAMED and not layer.pairs(conv):
        why = "is called with rows of sources and of targets"
    if why is None and not layer.pairs(conv):
        norms = ((name, one) for name, one in conv.named_modules() if kind_of(one) in _BATCH_NORMS)
        norm = next((name for name, one in norms if one.training or one.running_mean is None), None)
        why = None if norm is None else f"takes statistics of all rows in {norm}, a batch norm"
    return None if why is None else f"{kind.__name__} {why}"


def call_trimmed(
    conv: Module,
    x: Rows,
    edge_index: Tensor,
    num_targets: int,
    edge_values: Mapping[str, Any],
    node_values: Mapping[str, Any],
) -> Tensor:
    """Returns the first ``num_targets`` rows of the result of a layer without a `whole_reason`.

    ``x``: the first S rows of the input, or (rows of sources, rows of targets). ``edge_index``: [2,
    E], the in-edges of the first ``num_targets`` nodes, by target. ``edge_values``: of these edges.
    ``node_values``: of the first S nodes.
    """
    pairs = _LAYERS.get(kind_of(conv), _NAMED).pairs(conv)

    def by_end(rows: Any) -> Any:
        if isinstance(rows, Tensor):
            return (rows, rows[:num_targets]) if pairs else rows
        return rows[0], rows[1][:num_targets]

    beside = {name: by_end(rows) for name, rows in node_values.items()}
    out: Tensor = conv(by_end(x), edge_index=edge_index, **edge_values, **beside)
    return out[:num_targets]


def kind_of(module: Module) -> type[Module]:
    kind: type[Module] = parametrize.type_before_parametrizations(module)
    return vars(kind).get("stands_for", kind)


def _none(conv: Any) -> None:
    del conv


@dataclass(frozen=True)
class Layer:
    #: whether a layer takes a pair (sources, targets) of ``x`` and of other values of nodes
    pairs: Callable[[Any], bool] = lambda _: True
    why: Rule = _none  # why a layer with these options must compute all rows
    #: the numbers of dimensions that ``x`` may have, the first of them the nodes; all if empty
    dims: tuple[int, ...] = (2,)


def _square(why: Rule = _none, dims: tuple[int, ...] = (2,)) -> Layer:
    return Layer(lambda _: False, why, dims)


_DEGREES = "normalises by the degrees of sources, whose in-edges are not among those of the targets"
_NEIGHBOURS = "takes no edges, but finds neighbours among all nodes"
_SELF_LOOPS = "needs one self loop at every node if add_self_loops=False"
_DRAWS = "draws edges and pairs of nodes from all for its loss in training"
_BY_TYPE = "takes rows and edges by type"


def _normalised(conv: Any) -> str | None:
    return f"{_DEGREES}, unless normalize=False" if conv.normalize else None


def _rounds(name: str, normalises: bool = False) -> Rule:
    def why(conv: Any) -> str | None:
        several = f"passes messages {name}={getattr(conv, name)} times" if getattr(conv, name) > 1 else None
        return (_normalised(conv) if normalises else None) or several

    return why


def _egc(conv: Any) -> str | None:
    if "symnorm" in conv.aggregators:
        return f"{_DEGREES}, unless aggregators are others than 'symnorm'"
    until_last = "adds self loops up to the last node that has an edge, unless add_self_loops=False"
    return until_last if conv.add_self_loops else None


_LAYERS: dict[type[Module], Layer] = {
    **dict.fromkeys(
        (
            *(convs.SAGEConv, convs.GraphConv, convs.ResGatedGraphConv, convs.GATConv, convs.GATv2Conv),
            *(convs.TransformerConv, convs.GINConv, convs.GINEConv, convs.MFConv, convs.PointNetConv),
            *(convs.GMMConv, convs.SplineConv, convs.NNConv, convs.CGConv, convs.EdgeConv, convs.PPFConv),
            *(convs.FeaStConv, convs.PointTransformerConv, convs.LEConv, convs.GENConv, convs.FiLMConv),
            *(convs.WLConvContinuous, convs.GeneralConv),
        ),
        Layer(),
    ),
    **dict.fromkeys(
        (convs.AGNNConv, convs.RGATConv, convs.PNAConv, convs.HEATConv, convs.PointGNNConv), _square()
    ),
    **dict.fromkeys(
        (convs.GCNConv, convs.GCN2Conv, convs.LGConv, convs.FAConv, convs.PDNConv), _square(_normalised)
    ),
    **dict.fromkeys((convs.TAGConv, convs.APPNP), _square(_rounds("K", normalises=True))),
    **dict.fromkeys((convs.RGCNConv, convs.FastRGCNConv), Layer(dims=(1, 2))),
    convs.SimpleConv: Layer(lambda conv: conv.combine_root != "self_loop"),
    convs.ChebConv: _square(lambda conv: None if len(conv.lins) == 1 else _DEGREES),
    convs.GatedGraphConv: _square(_rounds("num_layers")),
    convs.DNAConv: _square(_normalised, dims=(3,)),
    convs.ClusterGCNConv: _square(lambda conv: None if conv.add_self_loops else _SELF_LOOPS),
    convs.SuperGATConv: _square(lambda conv: _DRAWS if conv.training else None),
    convs.EGConv: _square(_egc),
}
_NAMED = _square(dims=())
_WHOLE: dict[type[Module], str] = {
    **dict.fromkeys(
        (convs.CuGraphSAGEConv, convs.CuGraphGATConv, convs.CuGraphRGCNConv), "takes edges in cuGraph's form"
    ),
    convs.FusedGATConv: "takes edges in dgNN's form",
    **dict.fromkeys((convs.GravNetConv, convs.DynamicEdgeConv, convs.XConv), _NEIGHBOURS),
    **dict.fromkeys((convs.ARMAConv, convs.SGConv, convs.SSGConv, convs.MixHopConv), _DEGREES),
    convs.SignedConv: "takes edges of two signs",
    convs.HypergraphConv: "passes messages to hyperedges and back",
    convs.PANConv: "multiplies the matrix of all edges with itself",
    convs.WLConv: "numbers colours in the order in which it finds them among all rows",
    convs.MeshCNNConv: "tells edges apart by their places among all edges",
    convs.HGTConv: _BY_TYPE,
    convs.HeteroConv: _BY_TYPE,
    convs.HANConv: f"{_BY_TYPE}, and attends to means of all rows",
    convs.GPSConv: "attends to all rows",
    convs.AntiSymmetricConv: "is no message passing layer itself, but the layers in it may be trimmed",
    convs.DirGNNConv: "passes messages along reversed edges",
}


def is_users(conv: Module) -> bool:
    kind = kind_of(conv)
    return kind not in _WHOLE and kind not in _LAYERS and not kind.__module__.startswith("torch_geometric.")


def how_to_name(conv: Module) -> str:
    """Returns how the user can declare a layer safe in ``trims``."""
    return (
        f"if each row depends on its own input and its in-edges alone, name it in accelerate(model, "
        f"trims=[{kind_of(conv).__name__}])"
    )


def has_message_hooks(conv: MessagePassing) -> bool:
    steps = ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update")
    return any(getattr(conv, f"_{step}_forward_{when}") for step in steps for when in ("pre_hooks", "hooks"))


def _why_by_state(conv: Any) -> str | None:
    if not isinstance(conv, MessagePassing):
        return "is no MessagePassing"
    if conv.flow != "source_to_target":
        return f"passes messages from targets to sources (flow={conv.flow!r})"
    if conv.node_dim not in (-2, 0):
        return f"has its nodes in another dimension than the first (node_dim={conv.node_dim})"
    if conv.explain:
        return "explains its messages"
    if conv.decomposed_layers != 1:
        return f"decomposes its columns (decomposed_layers={conv.decomposed_layers})"
    if has_message_hooks(conv):
        return "has hooks on its messages"
    hooked = next((name for name, part in conv.named_modules() if is_hooked(part)), None)
    return None if hooked is None else f"has hooks on {hooked or 'itself'}"


def is_hooked(module: Any) -> bool:
    """Returns whether a module has hooks, other than PyG's for lazy widths."""
    lazy = [getattr(vars(module).get(name), "id", None) for name in ("_hook", "_initialize_hook")]
    after = (module._forward_hooks, module._backward_hooks, module._backward_pre_hooks)
    before = any(hook not in lazy for hook in module._forward_pre_hooks)
    return before or any(after) or "forward" in vars(module)


def _why_by_functions(module: Any, path: str = "") -> str | None:
    back = [getattr(type(module), name, None) for name in ("_jinja_propagate", "_orig_propagate")]
    for name, value in vars(module).items():
        if not callable(value) or (isinstance(value, Hashable) and value in rules.ACTIVATIONS):
            continue
        # PyG itself puts this on an instance when an explanation ends.
        if name == "propagate" and getattr(value, "__func__", None) in back:
            continue
        return f"has a function {path}{name} that is not known"
    return None


def _whys_of_parts(module: Module, trims: Collection[type[Module]], path: str = "") -> Iterator[str]:
    for name, part in module.named_children():
        if name != "parametrizations":  # of parameters, which have no rows of nodes
            yield from _whys_of_part(part, trims, f"{path}{name}")


def _whys_of_part(part: Module, trims: Collection[type[Module]], path: str) -> Iterator[str]:
    kind = kind_of(part)
    if kind in trims:
        return
    unknown = f"may look at other rows; if it does not, name it in accelerate(model, trims=[{kind.__name__}])"
    rule = _PARTS.get(kind, unknown)
    clause = rule if isinstance(rule, str) else rule(part)
    if clause is None and kind is not aggr.MultiAggregation:  # it combines by a function of torch
        clause = _why_by_functions(part, f"{path}.")
    if clause is not None:
        yield f"has {path} ({kind.__name__}), which {clause}"
    elif kind is aggr.MultiAggregation:
        yield from _whys_of_parts(part.get_submodule("aggrs"), trims, f"{path}.aggrs.")
    elif kind not in _CLOSED:
        yield from _whys_of_parts(part, trims, f"{path}.")


_BATCH_NORMS = (torch.nn.BatchNorm1d, torch.nn.SyncBatchNorm)


def _over_rows(part: Any) -> str | None:
    return None if part.dim in (None, 1, -1) else f"may look at other rows with dim={part.dim}"


_KEEPS = "keeps statistics of all rows with track_running_stats=True"
_OF_ALL = "looks at all rows"
_PADS = "pads the in-edges of each node to the most that a node has, and reads the padding"
_ELEMENTWISE = (
    *(torch.nn.ReLU, torch.nn.LeakyReLU, torch.nn.ELU, torch.nn.SELU, torch.nn.CELU, torch.nn.GELU),
    *(torch.nn.SiLU, torch.nn.Mish, torch.nn.Tanh, torch.nn.Sigmoid, torch.nn.Softplus, torch.nn.ReLU6),
    *(torch.nn.Hardtanh, torch.nn.Hardswish, torch.nn.Hardsigmoid, torch.nn.LogSigmoid, torch.nn.Identity),
    *(torch.nn.Softsign, torch.nn.Softshrink, torch.nn.Hardshrink, torch.nn.Tanhshrink, torch.nn.Threshold),
    *(torch.nn.Dropout, torch.nn.AlphaDropout, torch.nn.RReLU, torch.nn.PReLU),
)
#: Parts that compute each row by itself, as far as their own parts do.
_BY_ROW = (
    *(torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.ParameterList),
    *(torch.nn.Linear, torch.nn.LazyLinear, pyg.Linear, pyg.HeteroLinear, pyg.HeteroDictLinear),
    *(torch.nn.GRUCell, torch.nn.GroupNorm),
    *(pyg.MLP, pyg.MessageNorm, pyg.BatchNorm, gen_conv.MLP, dna_conv.MultiHead),
)
#: Aggregations in which a node's result follows from its in-edges.
_AGGREGATIONS = (
    *(aggr.SumAggregation, aggr.MeanAggregation, aggr.MaxAggregation, aggr.MinAggregation),
    *(aggr.MulAggregation, aggr.VarAggregation, aggr.StdAggregation, aggr.SoftmaxAggregation),
    *(aggr.PowerMeanAggregation, aggr.MedianAggregation, aggr.QuantileAggregation, aggr.Set2Set),
    *(aggr.MultiAggregation, aggr.DegreeScalerAggregation, aggr.DeepSetsAggregation),
    *(aggr.AttentionalAggregation, aggr.VariancePreservingAggregation, aggr.MLPAggregation),
    *(aggr.SetTransformerAggregation, aggr.GraphMultisetTransformer),
)
_PARTS: dict[type[Module], Rule | str] = {
    **dict.fromkeys((*_ELEMENTWISE, *_BY_ROW, *_AGGREGATIONS, *_BATCH_NORMS), _none),
    **dict.fromkeys((torch.nn.Softmax, torch.nn.LogSoftmax, torch.nn.Softmin), _over_rows),
    **dict.fromkeys(
        (torch.nn.LayerNorm, torch.nn.RMSNorm),
        lambda part: None if len(part.normalized_shape) == 1 else "may look at other rows",
    ),
    torch.nn.GLU: _over_rows,
    torch.nn.Embedding: lambda part: "changes its table" if part.max_norm else None,
    torch.nn.InstanceNorm1d: lambda part: _KEEPS if part.track_running_stats else None,
    pyg.LayerNorm: lambda part: None if part.mode == "node" else f"looks at all rows with mode={part.mode!r}",
    **dict.fromkeys((pyg.GraphNorm, pyg.GraphSizeNorm, pyg.InstanceNorm, pyg.PairNorm), _OF_ALL),
    **dict.fromkeys((pyg.MeanSubtractionNorm, pyg.DiffGroupNorm), _OF_ALL),
    **dict.fromkeys((aggr.LSTMAggregation, aggr.GRUAggregation, aggr.LCMAggregation), _PADS),
    aggr.PatchTransformerAggregation: _PADS,
    aggr.SortAggregation: "pads with a value below those of all edges",
    aggr.EquilibriumAggregation: "takes a mean over all nodes",
}
#: Parts whose own parts PyG makes, and calls in a way that their classes do not tell.
_CLOSED = {
    *(aggr.Set2Set, aggr.SetTransformerAggregation, aggr.GraphMultisetTransformer),
    *(aggr.MultiAggregation, dna_conv.MultiHead),
}


# Their ``propagate`` is captured, though it is called as one step: so everything that ``message``,
# ``aggregate`` and ``update`` read is guarded, and each of their calls must compute each edge, or
# each target, by itself.

#: The files of PyG that gather rows of nodes for edges, and aggregate rows of edges for nodes.
_PYGS = (
    *("/nn/conv/message_passing.py", "/nn/aggr/", "/utils/_scatter.py", "/utils/_softmax.py"),
    *("/utils/_segment.py", "/utils/num_nodes.py", "/nn/conv/utils/"),
)
_GATHERS = {*rules.GETITEM, Tensor.index_select}


def reason_of_own(recording: Recording, result: int, begin: Collection[int]) -> str | None:
    """Returns why the messages of a user's layer must be passed for all rows, as a clause, or None.
    ``result``: the value that ``propagate`` returned. ``begin``: the values given to it."""
    makers = {number: call for call in recording.calls for number in call.results}
    seen, open_ones = set(begin), [result]
    while open_ones:
        number = open_ones.pop()
        if number in seen or number not in makers:
            continue
        seen.add(number)
        call = makers[number]
        open_ones += refs((call.args, call.kwargs))
        gathers = call.target in _GATHERS and isinstance(recording.axes[call.results[0]], Edges)
        home = next((one for one in reversed(call.files) if "/torch/" not in one), "")
        pygs = "/torch_geometric/" in home and any(one in home for one in _PYGS)
        pygs = pygs or "_propagate_" in home.rsplit("/", 1)[-1]  # which it generates
        if call.by_row or gathers or pygs or recording.are_fixed(call.results):
            continue
        return f"is not known, and {call.note or 'it looks at all rows or edges'} ({call.where})"
    return None
