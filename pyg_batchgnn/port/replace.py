"""PyG models made fast in place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
import torch_geometric.nn
from torch import Tensor
from torch.nn.utils import parametrize
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.nn.models.basic_gnn import BasicGNN

from pyg_batchgnn import nn
from pyg_batchgnn.port import foreign, modules
from pyg_batchgnn.port.call import Tracing
from pyg_batchgnn.port.layerwise import inference
from pyg_batchgnn.port.modules import NATIVE, Accelerated
from pyg_batchgnn.port.report import AccelerationReport, NotReplaced, Replaced, log_report
from pyg_batchgnn.port.traced import TracedModel, traced_class


class AcceleratedModel(Accelerated, TracedModel, BasicGNN):
    """A model of PyG that `accelerate` made native. It is called as PyG's model, with the same
    results, or as ``model(batch)``. Edge attributes of a batch are used only if they are given:
    ``model(batch, edge_weight=batch.edge_weight)``."""

    stands_for: ClassVar[type[BasicGNN]]
    bound_names = ("x", "edge_index")

    def inference(
        self,
        loader: Any,
        device: Any = None,
        embedding_device: Any = "cpu",
        progress_bar: bool = False,
        cache: bool = False,
        memory_budget: int | str | None = None,
        scratch: str | Path | None = None,
        edge_values: Sequence[str] = (),
    ) -> Tensor:
        """Returns the output for the nodes of this process, [n, out_channels], layer by layer.

        ``memory_budget``, ``scratch`` and ``edge_values`` are as in `pyg_batchgnn.inference`. PyG's
        method is called for other loaders, with ``device``, ``embedding_device`` and ``cache``.

        Raises:
            TypeError: ``loader`` is no loader.
            ValueError: as in `pyg_batchgnn.inference`.
        """
        if hasattr(loader, "all_nodes"):
            nn.check_cpu(device, embedding_device)
            return inference(self, loader, memory_budget, progress_bar, scratch, edge_values)
        if not isinstance(loader, NeighborLoader):
            raise TypeError(
                f"inference takes a MacrobatchNeighborLoader or PyG's NeighborLoader, got "
                f"{type(loader).__name__}"
            )
        return super().inference(loader, device, embedding_device, progress_bar, cache)


for _name in ("GraphSAGE", "GCN", "GIN", "GAT"):
    _kind = getattr(torch_geometric.nn, _name)
    modules.make_native(_kind, (AcceleratedModel, _kind), globals())

Module = torch.nn.Module
Report = Callable[[AccelerationReport], None]

CONVS = tuple(pygs for pygs, native in NATIVE.items() if issubclass(native, modules.AcceleratedConv))


def concerns(module: Module) -> bool:
    norm = type(module).__module__.startswith("torch_geometric.nn.norm")
    wraps = type(module) is torch_geometric.nn.BatchNorm  # its inner module is replaced
    return isinstance(module, (*NATIVE, MessagePassing)) or (norm and not wraps)


def reason_against(module: Module, places: int) -> str | None:
    """Returns why a module that `concerns` accepts cannot be replaced; None if it can. ``places``:
    how often it occurs in the model."""
    kind = type(module)
    if parametrize.is_parametrized(module):
        return "it has parametrisations"
    if kind not in NATIVE:
        known = next((pygs for pygs in NATIVE if isinstance(module, pygs)), None)
        return "there is no native one" if known is None else f"it is a subclass of {known.__name__}"
    if places > 1:
        return f"the same instance stands in {places} places"
    if foreign.is_hooked(module):
        return "it has hooks"
    for place, part in enumerate(module.lins if isinstance(module, torch_geometric.nn.MLP) else ()):
        if parametrize.is_parametrized(part):
            return f"lins.{place} has parametrisations"
        if type(part) is not torch_geometric.nn.Linear:
            return f"lins.{place} is a {type(part).__name__}, not PyG's Linear"
        if foreign.is_hooked(part):
            return f"lins.{place} has hooks"
    try:
        if kind in CONVS:
            NATIVE[kind].check(module)
    except ValueError as error:
        return str(error)
    except (AttributeError, TypeError, KeyError) as error:  # of attributes that were deleted
        return f"it is not as PyG made it: {error}"
    return None


Model = TypeVar("Model", bound=torch.nn.Module)


def accelerate(
    model: Model,
    report: Callable[[AccelerationReport], None] = log_report,
    *,
    trims: Sequence[type[Module]] = (),
    rows: str | None = None,
    check: str = "once",
    share_dropout: bool = False,
) -> Model:
    """Makes a model faster, in place: its layers become native, and its ``forward`` is captured.

    >>> model = accelerate(model)
    >>> for batch in loader:
    ...     out = model(batch)  # the rows of the seeds alone
    ...     loss = torch.nn.functional.cross_entropy(out, batch.y[: batch.batch_size])

    Replaced are `GraphSAGE`, `GCN`, `GIN` and `GAT` of PyG's models, and in any module `SAGEConv`,
    `GraphConv`, `GCNConv`, `GINConv`, `GINEConv`, `NNConv`, `GATConv`, `GATv2Conv`,
    `TransformerConv`, `MLP`, ``BatchNorm1d`` (also inside PyG's `BatchNorm`), ``ReLU`` and
    ``Dropout``. In models of PyG's `to_hetero` modules are replaced one by one. Parameters stay the
    same objects, so that an optimizer made before still works. The keys of the ``state_dict`` are
    the same. Lazy modules stay lazy.

    The first call of a model captures ``forward`` with TorchDynamo, PyTorch's own tracer, which
    guards the values it read. Then ``model(batch)`` computes the rows that the seeds need, and
    ``model(x, edge_index)`` all rows in fewer passes. The arguments of ``forward`` are the batch's
    attributes of the same names. The rewritten graph is compared with the captured one, in rows and
    gradients. A part that cannot be captured is called as before; a warning says where and why.

    Modules with hooks or parametrisations, subclasses, instances that stand in several places and
    options that native layers do not know are left as they are.

    Args:
        model: the model, which is changed.
        report: a function, for instance ``print``. It is called with the replaced modules, and the
            others with the reason; and again when ``forward`` is captured.
        trims: classes of the user's own layers that may compute the first rows alone: row i of
            their result depends on row i of the input and the in-edges of node i, nothing else.
        rows: "seeds" lets a ``forward`` that takes the batch itself return the rows of the seeds
            alone. None: all rows.
        check: "once" compares rows and gradients in the first call of each captured graph, "often"
            in call 1, 2, 4, 8, ... After a difference ``forward`` is called as it was before
            `accelerate`, with a warning.
        share_dropout: True lets copies of a node in a batch (see `encoded_rows`) have the same
            dropout mask, so that they are computed once behind a dropout, too.

    Returns:
        The model itself.

    Raises:
        TypeError: ``model`` is not a module, ``report`` no function, or ``trims`` no classes.
        ValueError: ``rows`` is neither None nor "seeds", or ``check`` neither "once" nor "often".
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"accelerate takes a torch.nn.Module, got {type(model).__name__}")
    if not callable(report):
        raise TypeError(f"report takes a function such as print, got {report!r}")
    for one in trims:
        if not (isinstance(one, type) and issubclass(one, Module)):
            raise TypeError(f"trims holds classes of layers, got {one!r}")
    if rows not in (None, "seeds"):
        raise ValueError(f"rows must be None or 'seeds', got {rows!r}")
    if check not in ("once", "often"):
        raise ValueError(f"check must be 'once' or 'often', got {check!r}")
    places = Counter(id(module) for _, module in model.named_modules(remove_duplicate=False))
    found = AccelerationReport()
    _visit(model, "", places, found, report)
    _trace(model, tuple(trims), rows, report, check)
    for module in model.modules():
        if isinstance(module, TracedModel):
            module._batchgnn.share_dropout = share_dropout
    report(found)
    return model


def _trace(
    model: Module, trims: tuple[type[Module], ...], rows: str | None, report: Report, check: str = "once"
) -> None:
    kind = type(model)
    if not isinstance(model, TracedModel):
        of_torch = kind.__module__.startswith("torch.") and not isinstance(model, torch.fx.GraphModule)
        if kind in NATIVE.values() or of_torch or isinstance(model, MessagePassing):
            return
        # PyG writes the forward of an instance, which would stand before that of the class.
        sequential = isinstance(model, torch_geometric.nn.Sequential) and (
            vars(model).pop("forward", None) is not None or kind is torch_geometric.nn.Sequential
        )
        model.__class__ = traced_class(kind)  # type: ignore[arg-type]
    else:
        sequential = model._batchgnn.is_sequential
    model._batchgnn = Tracing(trims, rows, report, check, is_sequential=sequential)  # type: ignore[assignment]
    model.tell_of_own_forward()  # type: ignore[operator]


def _visit(module: Module, name: str, places: Counter[int], report: AccelerationReport, tell: Report) -> None:
    kind = type(module)
    if concerns(module) and kind not in NATIVE.values():
        why = reason_against(module, places[id(module)])
        if why is not None:
            report.left.append(NotReplaced(name, kind.__name__, why))
            if isinstance(module, CONVS):
                return
        else:
            module.__class__ = NATIVE[kind]
            if isinstance(module, TracedModel):
                module._batchgnn = Tracing(report=tell)
            report.replaced.append(Replaced(name, kind.__name__))
    of_users = not kind.__module__.startswith(("torch.", "torch_geometric.", "pyg_batchgnn."))
    is_layer = isinstance(module, (MessagePassing, torch.nn.ModuleList, torch.nn.ModuleDict))
    has_layers = any(isinstance(one, MessagePassing) for one in module.modules())
    if name and of_users and not is_layer and has_layers:  # to capture by itself
        _trace(module, (), None, tell)
    fuses = isinstance(module, (AcceleratedModel, modules.AcceleratedMLP))
    for key, child in module.named_children():
        if not fuses or key not in ("act", "dropout"):
            _visit(child, f"{name}.{key}" if name else key, places, report, tell)
