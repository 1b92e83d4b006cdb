"""Typed models made of homogeneous ones."""

from __future__ import annotations

from collections.abc import Sequence

from torch_geometric.utils.hetero import check_add_self_loops

from pyg_batchgnn.nn.gcn import GCNConv
from pyg_batchgnn.nn.models.joined import AGGREGATIONS
from pyg_batchgnn.nn.models.native import NativeModel
from pyg_batchgnn.nn.models.typed import TypedModel
from pyg_batchgnn.nn.models.typed_modules import module_key
from pyg_batchgnn.nn.refusals import layer_name
from pyg_batchgnn.nn.sampled import Relation

Metadata = tuple[Sequence[str], Sequence[Relation]]


def to_hetero(model: NativeModel, metadata: Metadata, aggr: str = "sum") -> TypedModel:
    """Returns the model that PyG's `to_hetero` makes of PyG's model, on native layers.

    Every convolution becomes one per relation, and every other module one per node type. A
    ``state_dict`` loads both ways. The weights are drawn anew, as in PyG, if there is more than one
    type or relation.

    Args:
        model: `SAGE`, `GIN`, `GAT`, or `GCN` if all relations are within one type; not changed.
        metadata: the node types and the relations, PyG's ``data.metadata()``.
        aggr: how the results of relations into one type become one: "sum", "mean", "min", "max" or
            "mul".

    Raises:
        TypeError: ``model`` is none of these.
        ValueError: the aggregation is unknown, a layer cannot be used between two types, a type is
            never updated but read again, or two names are the same for PyG.
    """
    if not isinstance(model, NativeModel):
        raise TypeError(
            f"to_hetero takes SAGE, GCN, GIN or GAT of pyg_batchgnn.nn, got {layer_name(model)}; for other "
            f"models use torch_geometric.nn.to_hetero and pyg_batchgnn.accelerate"
        )
    if aggr not in AGGREGATIONS:
        raise ValueError(f"aggr must be one of {', '.join(AGGREGATIONS)}, got {aggr!r}")
    names, relations = list(metadata[0]), [tuple(one) for one in metadata[1]]
    _check(model, names, relations)  # type: ignore[arg-type]
    return TypedModel(model, names, relations, aggr)  # type: ignore[arg-type]


def _check(model: NativeModel, names: Sequence[str], relations: Sequence[Relation]) -> None:
    for kind, keys in (("node types", names), ("relations", relations)):
        if not keys:
            raise ValueError(f"the metadata has no {kind}; give data.metadata()")
        if len(set(map(module_key, keys))) < len(keys):
            raise ValueError(
                f"two of the {kind} {list(keys)} have the same name where ' ', '-' and ':' become '_'; "
                f"rename one"
            )
    for conv in model.convs:
        between = [one for one in relations if one[0] != one[2]]
        if isinstance(conv, GCNConv) and between:
            raise ValueError(
                f"GCNConv does not support relations between two node types, such as {between[0]}; take SAGE"
            )
        check_add_self_loops(conv, list(relations))
    unreached = set(names) - {target for _, _, target in relations}
    if unreached and (model.num_layers > 1 or model.jk_mode is not None):
        raise ValueError(
            f"no relation leads to {sorted(unreached)}, so later layers have no rows of them; add reverse "
            f"relations (torch_geometric.transforms.ToUndirected), or leave them out"
        )
