"""What stands for modules of PyG and torch: native convolutions, norms, perceptrons; and the inputs
that they take. PyG's code computes all others."""

from __future__ import annotations

import operator
import threading
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch_geometric.nn
from torch import Tensor
from torch._C import _get_tracing_state
from torch.compiler import is_compiling, is_dynamo_compiling
from torch.fx import Proxy
from torch.nn.modules.module import _has_any_global_hook
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.nn.dense.linear import is_uninitialized_parameter

from pyg_batchgnn import nn, ops
from pyg_batchgnn.port.structure import FLOATS, layer_edges

_IDS, _strided = (torch.int64, torch.int32), torch.strided


class Accelerated:
    """The base of the classes that `accelerate` gives to modules of PyG and torch. Each has the
    name of the class that it replaces. Pickles find it by its qualified name."""

    stands_for: ClassVar[type[torch.nn.Module]]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "stands_for" in vars(cls):
            cls.__name__ = cls.stands_for.__name__
            NATIVE[cls.stands_for] = cls


#: The class that each class becomes. An instance keeps its parameters and attributes.
NATIVE: dict[type[torch.nn.Module], Any] = {}


def make_native(
    kind: type, bases: tuple[type, ...], home: dict[str, Any], body: Mapping[str, Any] | None = None
) -> None:
    """Makes the class that a class of PyG becomes. ``home``: the names of the file that calls this,
    where pickles find it."""
    name = f"Accelerated{kind.__name__}"
    home[name] = type(name, bases, {"stands_for": kind, "__module__": home["__name__"], **(body or {})})


def is_symbolic(*given: Any) -> bool:
    return any(isinstance(one, Proxy) for one in given)


def traced(module: Any, given: Sequence[Any], named: Mapping[str, Any] | None = None) -> Any:
    """Returns the proxy for a call of a module that ``torch.fx`` traces as one step, which torch's
    tracer does for torch's modules alone. If the module itself is traced, PyG's code is."""
    tracer: Any = next(one for one in given if isinstance(one, Proxy)).tracer
    if tracer.root is module:
        return module.stands_for.forward(module, *given, **(named or {}))
    path = tracer.path_of_module(module)
    return tracer.create_proxy("call_module", path, tuple(given), dict(named or {}))


def is_plain(x: Any, dtype: torch.dtype | None = None) -> bool:
    """Returns whether ``x`` is a dense [rows, columns] tensor on the CPU that native layers read.
    ``dtype``: the dtype of the module's parameters; None if it has none."""
    if not (isinstance(x, Tensor) and x.ndim == 2 and x.is_cpu and x.layout is _strided):
        return False
    if (found := x.dtype) not in FLOATS or found is dtype or dtype is None:
        return found in FLOATS
    casts = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") is torch.bfloat16
    return casts and found is not torch.float64


def are_plain_edges(edge_index: Any) -> bool:
    return (
        isinstance(edge_index, Tensor)
        and edge_index.layout is _strided
        and edge_index.is_cpu
        and len(shape := edge_index.shape) == 2
        and shape[0] == 2
        and edge_index.dtype in _IDS
    )


def fits(edge_index: Tensor, sources: int, targets: int) -> bool:
    """Returns whether an `EdgeIndex` has no other numbers of nodes than the rows say."""
    known = edge_index.sparse_size() if isinstance(edge_index, EdgeIndex) else (None, None)
    return all(one is None or one == count for one, count in zip(known, (sources, targets), strict=True))


def refuse_batch(x: Any, edge_index: Any) -> None:
    if not isinstance(x, Tensor) and (hasattr(x, "edge_index") or nn.is_sampled(x)):
        raise TypeError(
            f"model(batch) reads the edges of the batch, but {type(edge_index).__name__} was given as "
            f"edge_index beside a {type(x).__name__}; call model(batch), or model(batch.x, batch.edge_index)"
        )


def refuse_on_device(batch: Any) -> None:
    edges = [store.get("edge_index") for store in getattr(batch, "stores", ())]
    there = [one.device for one in edges if isinstance(one, Tensor) and not one.is_cpu]
    if there:
        by_type = "_dict" if hasattr(batch, "edge_types") else ""
        raise TypeError(
            f"model(batch) is computed by native layers on the CPU, but the batch is on {there[0]}; call "
            f"model(batch.x{by_type}, batch.edge_index{by_type}), which PyG's own layers compute there"
        )


def seeds_of(batch: Any, nodes: int) -> int:
    """Returns ``batch_size`` of a batch of PyG's form. Raises TypeError or ValueError if it is
    missing or impossible, as in a `Batch`, where it is the number of graphs."""
    if isinstance(batch, Batch) and "batch_size" not in batch:
        raise ValueError(
            f"a Batch of {batch.num_graphs} graphs has no seed nodes; call model(batch.x, batch.edge_index), "
            f"or set batch.batch_size if its first nodes are seeds"
        )
    seeds = batch["batch_size"] if isinstance(batch, Batch) else getattr(batch, "batch_size", None)
    if seeds is None:
        raise ValueError("the batch does not say its batch_size; call model(x, edge_index)")
    if isinstance(seeds, Tensor) and seeds.numel() != 1:
        raise ValueError(
            f"batch_size is a tensor of {seeds.numel()} numbers, so that the seed nodes are not the first "
            f"nodes; call model(batch.x, batch.edge_index)"
        )
    found = operator.index(seeds)
    if not 0 <= found <= nodes:
        raise ValueError(f"batch_size is {found}, but the batch has {nodes} nodes")
    return found


#: The threads that capture a model now, at most one at a time.
CAPTURING: list[int] = []


def is_traced() -> bool:
    """Returns whether torch compiles, traces or transforms the call: native operators cannot
    run."""
    # While one thread captures, torch says in every thread that it compiles.
    compiles = is_dynamo_compiling() or (
        is_compiling() and (not CAPTURING or CAPTURING[-1] == threading.get_ident())
    )
    return compiles or _get_tracing_state() is not None or ops.is_transforming()


def takes(conv: nn.NativeConv, x: Any, edge_index: Any) -> bool:
    """Returns whether a native convolution computes a call as PyG's: not if attributes or methods
    that PyG's code uses were changed. Callers with a `LayerGraph` have checked before."""
    if isinstance(edge_index, nn.LayerGraph):
        return True
    if not are_plain_edges(edge_index) or is_traced() or _has_any_global_hook():
        return False
    made = nn.as_made(conv)
    if made is None:
        return False
    dtype = None if made.first is None else made.first.dtype
    rows = x if isinstance(x, (tuple, list)) else (x, x)
    if rows[0] is None or not all(part is None or is_plain(part, dtype) for part in rows):
        return False
    ends = [len(rows[0] if one is None else one) for one in rows]
    return type(edge_index) is Tensor or fits(edge_index, *ends)


class AcceleratedPart(Accelerated):
    """A module of torch that `accelerate` made native. It stands before the native class among the
    bases. Inputs that the native class does not support go to torch's ``forward``."""

    def forward(self, input: Tensor, key: int | None = None, node: Tensor | None = None) -> Tensor:
        if is_symbolic(input):
            return traced(self, (input,))
        if is_traced() or not self.takes(input):
            return self.stands_for.forward(self, input)
        return super().forward(*(one for one in (input, key, node) if one is not None))  # type: ignore[misc]

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


class AcceleratedDropout(AcceleratedPart, nn.Dropout):
    stands_for = torch.nn.Dropout

    def takes(self, input: Tensor) -> bool:
        return is_plain(input) and 0.0 <= self.p < 1 - 2**-16


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
    the bases. Calls that the native class does not support go to PyG's ``forward``."""

    stands_for: ClassVar[type[MessagePassing]]

    def forward(self, x: Any, edge_index: Any, *arguments: Any, **options: Any) -> Any:
        if not isinstance(x, Tensor) and is_symbolic(x):
            if is_symbolic(arguments, options):  # the layer itself is traced: PyG's code says why not
                arguments, options = (), {}
            return traced(self, (x, edge_index, *arguments), options)
        values = arguments[0] if arguments else options.get(str(self.edge_values)) if options else None
        if len(arguments) > 1 or not self.takes_call(x, edge_index, values):
            return self.stands_for.forward(self, x, edge_index, *arguments, **options)
        sized = options.get("size") is not None or any(isinstance(one, (tuple, list)) for one in arguments)
        if not sized and isinstance(x, Tensor) and isinstance(edge_index, Tensor):
            known = layer_edges(edge_index, x.size(0))
            edge_index = edge_index if known is None else known
        return super().forward(x, edge_index, *arguments, **options)

    def takes_call(self, x: Any, edge_index: Any, values: Any = None) -> bool:
        return takes(self, x, edge_index) and self.takes_values(x, values)

    def takes_values(self, x: Any, values: Any) -> bool:
        """Returns whether values of edges, or none, go with the native class."""
        del x, values
        return True

    def check_call(self) -> None:
        """Checks nothing, since `takes_call` has."""


def _are_weights(values: Any) -> bool:
    return values is None or (isinstance(values, Tensor) and values.dim() == 1)


def _of_transformer(conv: Any, x: Any, values: Any) -> bool:
    fits = values is None or (isinstance(values, Tensor) and values.dim() == 2)
    lacks_targets = isinstance(x, (tuple, list)) and x[1] is None
    # Without a weight PyG's layer adds them to the values.
    return fits and (values is None) == (conv.lin_edge is None) and not lacks_targets


make_native(torch.nn.ReLU, (AcceleratedPart, nn.ReLU), globals())
_CONVS = "SAGEConv GraphConv GCNConv GINConv GINEConv NNConv GATConv GATv2Conv TransformerConv"
#: Their `takes_values`, if native classes do not take all that PyG's do.
_TAKES_VALUES: dict[str, Any] = {
    "GraphConv": lambda _conv, _x, values: _are_weights(values),
    "GCNConv": lambda _conv, x, values: _are_weights(values) and not isinstance(x, (tuple, list)),
    "NNConv": lambda conv, _x, _values: conv.reason_against(conv) is None,
    "GATConv": lambda conv, _x, values: values is None or conv.lin_edge is not None,
    "TransformerConv": _of_transformer,
}
for _name in _CONVS.split():
    _body = {"takes_values": _TAKES_VALUES[_name]} if _name in _TAKES_VALUES else {}
    make_native(getattr(torch_geometric.nn, _name), (AcceleratedConv, getattr(nn, _name)), globals(), _body)
