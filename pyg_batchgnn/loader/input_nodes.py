"""PyG's forms of ``input_nodes``, ``input_id`` and ``input_time``, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn.data import Schema
from pyg_batchgnn.loader.inputs import GraphShape, GraphTimes
from pyg_batchgnn.loader.node_inputs import NodeInputs, TypeInputs
from pyg_batchgnn.ops import check_range, check_vector
from pyg_batchgnn.sample import Names


@dataclass(frozen=True, eq=False)
class InputRequest:
    """The user's input nodes, as given to the loader.

    Attributes:
        nodes: ``input_nodes``.
        ids: ``input_id``, or None.
        times: ``input_time``, or None.
    """

    nodes: Any
    ids: Any = None
    times: Any = None

    def inputs(self, graph: GraphShape, times: GraphTimes | None, names: Names) -> NodeInputs:
        """Returns the input nodes, checked; see `InputsRequest`."""
        if names is Names.TYPES:
            return typed_inputs(self, graph.schema, graph.num_nodes, times)
        return untyped_inputs(self, graph.schema, graph.num_nodes[0], times)


def untyped_inputs(
    request: InputRequest, schema: Schema, num_nodes: int, times: GraphTimes | None = None
) -> NodeInputs:
    """Returns the input nodes of a homogeneous graph.

    Args:
        request: nodes are None for all, a mask or ids.
        schema: the schema of the graph.
        num_nodes: the number of nodes.
        times: the nodes' own times if sampling is temporal.

    Raises:
        TypeError, ValueError, IndexError: no node ids, or ids outside the graph.
    """
    if _names_a_type(request.nodes):
        raise ValueError(
            f"input_nodes={request.nodes!r} names a node type, but the graph is homogeneous; give a mask or "
            f"node ids"
        )
    name = schema.node_types[0]
    part = _type_inputs("input_nodes", name, request.nodes, request.ids, request.times, num_nodes)
    return _inputs(schema, [part], times, Names.NONE)


def typed_inputs(
    request: InputRequest, schema: Schema, num_nodes: Sequence[int], times: GraphTimes | None = None
) -> NodeInputs:
    """Returns the input nodes of a graph with named node types.

    Args:
        request: nodes are "type", ("type", None | mask | ids), or a dict of such by type; ids and
            times of a dict are dicts as well.
        schema: the schema of the graph.
        num_nodes: the number of nodes of each type.
        times: the nodes' own times if sampling is temporal.

    Raises:
        TypeError, ValueError, IndexError: another form, an unknown type, or ids outside the graph.
    """
    if isinstance(request.nodes, Mapping):
        by_type = dict(request.nodes)
        ids, input_times = (
            _by_type(name, given, by_type)
            for name, given in (("input_id", request.ids), ("input_time", request.times))
        )
    else:
        name, nodes = _type_and_nodes(request.nodes, schema)
        by_type, ids, input_times = {name: nodes}, {name: request.ids}, {name: request.times}
    if not by_type:
        raise ValueError(f"input_nodes names no node type; the graph has {', '.join(schema.node_types)}")
    parts = []
    for name, nodes in by_type.items():
        if name not in schema.node_types:
            raise ValueError(
                f"input_nodes names the node type {name!r}; the graph has {', '.join(schema.node_types)}"
            )
        count = num_nodes[schema.type_number(name)]
        what = f"input_nodes of type {name!r}"
        parts.append(_type_inputs(what, name, nodes, ids.get(name), input_times.get(name), count))
    return _inputs(schema, parts, times, Names.TYPES)


def _inputs(
    schema: Schema, parts: Sequence[TypeInputs], times: GraphTimes | None, names: Names
) -> NodeInputs:
    inputs = NodeInputs(schema, parts, None, names)
    return inputs if times is None else inputs.with_times(times)


def _names_a_type(nodes: Any) -> bool:
    is_list = isinstance(nodes, (list, tuple)) and len(nodes) > 0
    return isinstance(nodes, (str, Mapping)) or (is_list and isinstance(nodes[0], str))


def _type_and_nodes(nodes: Any, schema: Schema) -> tuple[str, Any]:
    if isinstance(nodes, str):
        return nodes, None
    if _names_a_type(nodes) and len(nodes) == 2:
        return nodes[0], nodes[1]
    known = ", ".join(map(repr, schema.node_types))
    raise ValueError(
        f"input_nodes must name a node type of the graph ({known}): give 'type', ('type', ids or mask) or a "
        f"dict of several types, got {_described(nodes)}"
    )


def _described(nodes: Any) -> str:
    return f"a {type(nodes).__name__}" if isinstance(nodes, (Tensor, list)) else repr(nodes)


def _by_type(name: str, given: Any, by_type: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns an argument that goes with a dict of input nodes, by type."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(f"{name} must be a dict by node type, as input_nodes is, got {type(given).__name__}")
    if unknown := set(given) - set(by_type):
        raise ValueError(f"{name} names the node type {min(unknown)!r}, which input_nodes does not")
    if name == "input_time" and (missing := set(by_type) - set(given)):
        raise ValueError(f"input_time lacks the node type {min(missing)!r}: give times for all input_nodes")
    return given


def _type_inputs(what: str, name: str, nodes: Any, ids: Any, times: Any, num_nodes: int) -> TypeInputs:
    if nodes is None:
        node, own_ids = torch.arange(num_nodes), None
    else:
        node, own_ids = _node_ids(what, nodes, num_nodes)
    count = node.numel()
    if ids is not None:
        own_ids = _aligned("input_id", torch.as_tensor(ids), count, what)
    if times is not None:
        times = _aligned("input_time", torch.as_tensor(times), count, what)
        if times.dtype is not torch.int64:
            raise TypeError(
                f"input_time must be torch.int64, as the times of the graph are, got {times.dtype}; use "
                f".to(torch.int64) in the same unit"
            )
    return TypeInputs(name, node, own_ids, times)


def _aligned(name: str, values: Tensor, count: int, what: str) -> Tensor:
    if values.dim() != 1 or values.numel() != count:
        entries = values.numel() if values.dim() == 1 else f"shape {list(values.shape)}, not {values.numel()}"
        raise ValueError(f"{name} has {entries} entries for {count} {what}; give one for each")
    return values.cpu().contiguous()


def _node_ids(what: str, given: Any, num_nodes: int) -> tuple[Tensor, Tensor | None]:
    """Returns node ids, and ``input_id`` if it does not hold positions.

    A mask's are the node ids, as PyG has it.
    """
    nodes = given if isinstance(given, Tensor) else torch.as_tensor(given)
    if nodes.numel() == 0 and nodes.dtype.is_floating_point:
        nodes = nodes.long()  # an empty list
    if nodes.dtype is torch.bool:
        if list(nodes.shape) != [num_nodes]:
            raise ValueError(
                f"{what} is a mask of shape {list(nodes.shape)} for a graph of {num_nodes} nodes"
            )
        ids = nodes.cpu().nonzero().view(-1)
        return ids, ids
    if nodes.dtype.is_floating_point or nodes.dtype.is_complex:
        raise TypeError(
            f"{what} must be a mask or integer node ids, got {nodes.dtype}; use .long() or .bool()"
        )
    ids = nodes.to("cpu", torch.int64).contiguous()
    check_vector(what, ids)
    check_range(what, ids, num_nodes)
    return ids, None
