"""Modules of PyG and torch that `accelerate` makes native: convolutions, norms, perceptrons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.nn.dense.linear import is_uninitialized_parameter
from torch_geometric.utils._trim_to_layer import TrimToLayer

from pyg_batchgnn import nn, ops
from pyg_batchgnn.port.inputs import Accelerated, is_plain, is_symbolic, is_traced, takes, traced
from pyg_batchgnn.port.structure import layer_edges
from pyg_batchgnn.types import Relation


class AcceleratedPart(Accelerated):
    """A module of torch that `accelerate` made native. It stands before the native class among the
    bases. Inputs that the native one does not take go to torch's ``forward``."""

    def forward(self, input: Tensor, key: int | None = None, node: Tensor | None = None) -> Tensor:
        if is_symbolic(input):
            return traced(self, (input,))
        if is_traced() or not self.takes(input):
            return self.stands_for.forward(self, input)
        made: Tensor = super().forward(*(one for one in (input, key, node) if one is not None))  # type: ignore[misc]
        return made

    def takes(self, input: Tensor) -> bool:
        return is_plain(input)


class AcceleratedBatchNorm1d(AcceleratedPart, nn.BatchNorm):
    stands_for = torch.nn.BatchNorm1d
    relu = False

    def takes(self, input: Tensor) -> bool:
        alone = self.training and input.size(0) < 2  # torch raises an error
        frozen = self.running_mean is not None and not self.track_running_stats  # not what it was made with
        return not (alone or frozen) and is_plain(input, None if self.weight is None else self.weight.dtype)

    def extra_repr(self) -> str:
        return torch.nn.BatchNorm1d.extra_repr(self)


class AcceleratedReLU(AcceleratedPart, nn.ReLU):
    stands_for = torch.nn.ReLU


class AcceleratedDropout(AcceleratedPart, nn.Dropout):
    stands_for = torch.nn.Dropout

    def takes(self, input: Tensor) -> bool:
        return is_plain(input) and 0.0 <= self.p < 1 - 2**-16


class AcceleratedTrim(Accelerated, TrimToLayer):
    """The step of PyG's models that leaves out rows and edges, which ``torch.fx`` takes as one."""

    stands_for = TrimToLayer

    def forward(self, *given: Any) -> Any:
        return traced(self, given) if is_symbolic(*given) else super().forward(*given)


class AcceleratedMLP(Accelerated, torch_geometric.nn.MLP):
    """PyG's `MLP`, with the products of the package, if it has ReLU and no norms."""

    stands_for = torch_geometric.nn.MLP

    def forward(self, x: Tensor, *arguments: Any, **options: Any) -> Any:
        simple = not (arguments or options) and self._is_simple()
        if not simple or not is_plain(x, self.lins[0].weight.dtype):
            return super().forward(x, *arguments, **options)
        behind_relu = False
        for place, lin in enumerate(self.lins):
            if is_uninitialized_parameter(lin.weight):
                lin.initialize_parameters(lin, (x,))
            last = place == len(self.lins) - 1
            relu = not (last and self.plain_last)
            x = ops.linear([x], [lin.weight], lin.bias, relu=relu, after_relu=behind_relu)
            behind_relu = relu
        return x

    def _is_simple(self) -> bool:
        norms_and_activation = (*self.norms, self.act)
        return (
            type(self.act) is torch.nn.ReLU
            and len(self.norms) == len(self.lins) - (1 if self.plain_last else 0)
            and all(type(lin) is torch_geometric.nn.Linear for lin in self.lins)
            and all(lin.bias is None or nn.fits_bias(lin) for lin in self.lins)
            and all(type(norm) is torch.nn.Identity for norm in self.norms)
            and not (self.training and any(self.dropout))
            and not is_traced()
            and not any(map(nn.is_watched, norms_and_activation))
            # hooks of a lazy layer find its width
            and not any(
                nn.is_watched(lin) and not is_uninitialized_parameter(lin.weight) for lin in self.lins
            )
        )


class AcceleratedConv(Accelerated, nn.NativeConv):
    """A convolution of PyG that `accelerate` made native. It stands before the native class among
    the bases of each layer. Calls that the native layer does not take go to PyG's ``forward``."""

    stands_for: ClassVar[type[MessagePassing]]

    def forward(self, x: Any, edge_index: Any, *arguments: Any, **options: Any) -> Any:
        if not isinstance(x, Tensor) and is_symbolic(x):
            return self._traced(x, edge_index, arguments, options)
        values = arguments[0] if arguments else options.get(str(self.edge_values)) if options else None
        if len(arguments) > 1 or not self.takes_call(x, edge_index, values):
            return self.stands_for.forward(self, x, edge_index, *arguments, **options)
        sized = options.get("size") is not None or any(isinstance(one, (tuple, list)) for one in arguments)
        if not sized and isinstance(x, Tensor) and isinstance(edge_index, Tensor):
            known = layer_edges(edge_index, x.size(0))
            edge_index = edge_index if known is None else known
        return super().forward(x, edge_index, *arguments, **options)

    def takes_call(self, x: Any, edge_index: Any, values: Any = None) -> bool:
        del values
        return takes(self, x, edge_index)

    def check_call(self) -> None:
        """Looks at nothing, because `takes_call` did."""

    def _traced(self, x: Any, edge_index: Any, arguments: Any, options: Any) -> Any:
        if is_symbolic(arguments, options):  # the layer itself is traced: PyG's code says why it cannot be
            arguments, options = (), {}
        return traced(self, (x, edge_index, *arguments), options)


class AcceleratedSAGEConv(AcceleratedConv, nn.SAGEConv):
    stands_for = torch_geometric.nn.SAGEConv


class AcceleratedGraphConv(AcceleratedConv, nn.GraphConv):
    stands_for = torch_geometric.nn.GraphConv

    def takes_call(self, x: Any, edge_index: Any, values: Any = None) -> bool:
        return _are_weights(values) and takes(self, x, edge_index)


class AcceleratedGCNConv(AcceleratedConv, nn.GCNConv):
    stands_for = torch_geometric.nn.GCNConv

    def takes_call(self, x: Any, edge_index: Any, values: Any = None) -> bool:
        return _are_weights(values) and not isinstance(x, (tuple, list)) and takes(self, x, edge_index)


def _are_weights(values: Any) -> bool:
    return values is None or (isinstance(values, Tensor) and values.dim() == 1)


class AcceleratedGINConv(AcceleratedConv, nn.GINConv):
    stands_for = torch_geometric.nn.GINConv


class AcceleratedGINEConv(AcceleratedConv, nn.GINEConv):
    stands_for = torch_geometric.nn.GINEConv


class AcceleratedNNConv(AcceleratedConv, nn.NNConv):
    stands_for = torch_geometric.nn.NNConv

    def takes_call(self, x: Any, edge_index: Any, values: Any = None) -> bool:
        return super().takes_call(x, edge_index, values) and self.reason_against(self) is None


class AcceleratedGATConv(AcceleratedConv, nn.GATConv):
    stands_for = torch_geometric.nn.GATConv

    def takes_call(self, x: Any, edge_index: Any, values: Any = None) -> bool:
        return (values is None or self.lin_edge is not None) and takes(self, x, edge_index)


class AcceleratedGATv2Conv(AcceleratedConv, nn.GATv2Conv):
    stands_for = torch_geometric.nn.GATv2Conv


class AcceleratedTransformerConv(AcceleratedConv, nn.TransformerConv):
    stands_for = torch_geometric.nn.TransformerConv

    def takes_call(self, x: Any, edge_index: Any, values: Any = None) -> bool:
        # Without a weight PyG's layer adds them to the values.
        fits = values is None or (isinstance(values, Tensor) and values.dim() == 2)
        lacks_targets = isinstance(x, (tuple, list)) and x[1] is None
        is_given = (values is None) == (self.lin_edge is None)
        return fits and is_given and not lacks_targets and takes(self, x, edge_index)


class AcceleratedHeteroConv(Accelerated, nn.HeteroConv):
    """A `HeteroConv` of PyG that `accelerate` made native, which is also called as ``conv(x_dict,
    minibatch, layer)``. If a part of a call is left to PyG, relations are computed one by one."""

    stands_for = torch_geometric.nn.HeteroConv

    def forward(self, *args_dict: Any, **kwargs_dict: Any) -> dict[str, Tensor]:
        found: dict[str, Tensor]
        if is_symbolic(args_dict):  # the layer itself is traced: PyG's code says why it cannot be
            found = torch_geometric.nn.HeteroConv.forward(self, *args_dict)
        elif is_symbolic(*args_dict):
            found = traced(self, args_dict, kwargs_dict)
        elif self._is_of_layer(*args_dict[1:2]) or self._takes(args_dict, kwargs_dict):
            found = super().forward(*args_dict, **kwargs_dict)
        else:
            found = torch_geometric.nn.HeteroConv.forward(self, *args_dict, **kwargs_dict)
        return found

    @staticmethod
    def _is_of_layer(edges: Any = None) -> bool:
        return nn.is_typed(edges) or isinstance(edges, nn.TypedEdges)

    def _takes(self, args_dict: tuple[Any, ...], kwargs_dict: Mapping[str, Any]) -> bool:
        """Returns whether the native layer takes a call: rows by node type, edges by relation, and
        values of these edges. PyG's layer takes any dicts by either."""
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
        self, relation: Relation, x: Mapping, edges: Mapping, third: tuple[Mapping, ...], named: Mapping
    ) -> bool:
        conv, (source, _, target) = self.convs[relation], relation
        if not isinstance(conv, AcceleratedConv) or nn.is_watched(conv) or source not in x or target not in x:
            return False
        values = {name.removesuffix("_dict"): one[relation] for name, one in named.items() if relation in one}
        values |= {str(conv.edge_values): one[relation] for one in third if relation in one}
        if any(name != conv.edge_values for name in values):
            return False
        rows = x[source] if source == target else (x[source], x[target])
        return conv.takes_call(rows, edges[relation], *values.values())
