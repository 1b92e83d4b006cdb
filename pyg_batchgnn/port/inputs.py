"""The base of what stands for PyG's classes, and the inputs that it takes. PyG's code computes all
others."""

from __future__ import annotations

import operator
import threading
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch._C import _get_tracing_state
from torch.compiler import is_compiling, is_dynamo_compiling
from torch.fx import Proxy
from torch.nn.modules.module import _has_any_global_hook
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch

from pyg_batchgnn import nn
from pyg_batchgnn.nn import LayerGraph, as_made
from pyg_batchgnn.ops import is_transforming

_DTYPES = (torch.float32, torch.float64, torch.bfloat16)
_IDS = (torch.int64, torch.int32)
_strided = torch.strided


class Accelerated:
    """The base of the classes that `accelerate` gives to modules of PyG and torch. They bear the
    name of the class that they stand for. Files find them by their qualified name."""

    stands_for: ClassVar[type[torch.nn.Module]]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "stands_for" in vars(cls):
            cls.__name__ = cls.stands_for.__name__


def is_symbolic(*given: Any) -> bool:
    return any(isinstance(one, Proxy) for one in given)


def traced(module: Any, given: Sequence[Any], named: Mapping[str, Any] | None = None) -> Any:
    """Returns the proxy of a call of a module that ``torch.fx`` traces as one step. torch's own
    tracer does so with torch's modules alone. If the module itself is traced, PyG's code is."""
    tracer: Any = next(one for one in given if isinstance(one, Proxy)).tracer
    if tracer.root is module:
        return module.stands_for.forward(module, *given, **(named or {}))
    path = tracer.path_of_module(module)
    return tracer.create_proxy("call_module", path, tuple(given), dict(named or {}))


def is_plain(x: Any, dtype: torch.dtype | None = None) -> bool:
    """Returns whether ``x`` is a dense [rows, columns] tensor on the CPU that native layers read.
    ``dtype``: the dtype of the module's parameters; None if it has none."""
    return (
        isinstance(x, Tensor)
        and x.ndim == 2
        and x.is_cpu
        and x.layout is _strided
        and (found := x.dtype) in _DTYPES
        and (found is dtype or dtype is None or (found is not torch.float64 and _autocasts()))
    )


def _autocasts() -> bool:
    return torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") is torch.bfloat16


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
    """Returns whether an `EdgeIndex` of PyG says no other numbers of nodes, which layers would
    take."""
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
    """Returns the ``batch_size`` of a batch of PyG's form. Raises TypeError or ValueError if it
    says none, or one that cannot be. Of a `Batch` PyG makes it the number of graphs."""
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
    """Returns whether torch compiles, traces or transforms the call: native operators cannot."""
    # While one thread captures, torch says in every thread that it compiles.
    compiles = is_dynamo_compiling() or (
        is_compiling() and (not CAPTURING or CAPTURING[-1] == threading.get_ident())
    )
    return compiles or _get_tracing_state() is not None or is_transforming()


def takes(conv: nn.NativeConv, x: Any, edge_index: Any) -> bool:
    """Returns whether a native convolution computes a call as PyG's would: not if somebody changed
    what PyG's code would read or call. A `LayerGraph` comes from callers that looked before."""
    if isinstance(edge_index, LayerGraph):
        return True
    if not are_plain_edges(edge_index) or is_traced() or _has_any_global_hook():
        return False
    made = as_made(conv)
    if made is None:
        return False
    dtype = None if made.first is None else made.first.dtype
    rows = x if isinstance(x, (tuple, list)) else (x, x)
    if rows[0] is None or not all(part is None or is_plain(part, dtype) for part in rows):
        return False
    ends = [len(rows[0] if one is None else one) for one in rows]
    return type(edge_index) is Tensor or fits(edge_index, *ends)
