"""PyG's `HeteroConv` on native layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch_geometric.nn
from torch import Tensor

from pyg_batchgnn import nn
from pyg_batchgnn.port.convs import AcceleratedConv
from pyg_batchgnn.port.inputs import Accelerated, is_symbolic, is_traced, traced


class AcceleratedHeteroConv(Accelerated, nn.HeteroConv):
    """A `HeteroConv` of PyG that `accelerate` made native.

    Calls are those of PyG, with the same results, or ``conv(x_dict, minibatch, layer)``. A call of
    which a part is left to PyG is computed relation by relation.
    """

    stands_for = torch_geometric.nn.HeteroConv

    def forward(self, *args_dict: Any, **kwargs_dict: Any) -> dict[str, Tensor]:
        """Returns what PyG's layer does; the arguments are those of PyG."""
        found: dict[str, Tensor]
        if is_symbolic(args_dict):  # the layer itself is traced: PyG's code says why it cannot be
            found = torch_geometric.nn.HeteroConv.forward(self, *args_dict)
        elif is_symbolic(*args_dict):
            found = traced(self, args_dict, kwargs_dict)
        elif (len(args_dict) > 1 and nn.is_typed(args_dict[1])) or self._takes(args_dict, kwargs_dict):
            found = super().forward(*args_dict, **kwargs_dict)
        else:
            found = torch_geometric.nn.HeteroConv.forward(self, *args_dict, **kwargs_dict)
        return found

    def _takes(self, args_dict: tuple[Any, ...], kwargs_dict: Mapping[str, Any]) -> bool:
        """Returns whether the native layer takes a call.

        These are rows by node type, edges by relation, and values of these edges. PyG's layer takes
        any dicts by either.
        """
        if not 2 <= len(args_dict) <= 3 or not all(isinstance(one, Mapping) for one in args_dict):
            return False
        (x, edges), third, values = args_dict[:2], args_dict[2:], kwargs_dict.values()
        if is_traced() or self.aggr not in ("sum", "mean"):
            return False
        names = {name for relation, _ in self.convs.items() for name in (relation[0], relation[2])}
        found = [relation for relation, _ in self.convs.items() if relation in edges]
        return (
            bool(found)
            and not any(name in edges for name in names)
            and not any(relation in x for relation, _ in self.convs.items())
            and all(isinstance(one, Mapping) and set(one) <= set(found) for one in (*third, *values))
            and all(self._takes_relation(relation, x, edges, third, kwargs_dict) for relation in found)
        )

    def _takes_relation(
        self,
        relation: tuple[str, str, str],
        x: Mapping[str, Any],
        edges: Mapping[Any, Any],
        third: tuple[Mapping[Any, Any], ...],
        named: Mapping[str, Mapping[Any, Any]],
    ) -> bool:
        """Returns whether a native layer takes the edges of a relation."""
        conv, (source, _, target) = self.convs[relation], relation
        if not isinstance(conv, AcceleratedConv) or nn.is_watched(conv) or source not in x or target not in x:
            return False
        values = {name.removesuffix("_dict"): one[relation] for name, one in named.items() if relation in one}
        values |= {str(conv.edge_values): one[relation] for one in third if relation in one}
        if any(name != conv.edge_values for name in values):
            return False
        rows = x[source] if source == target else (x[source], x[target])
        return conv.takes_call(rows, edges[relation], *values.values())
