"""PyG models made fast in place."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

import torch

from pyg_batchgnn.port import modules
from pyg_batchgnn.port.examine import CONVS, NATIVE, concerns, is_fused, reason_against
from pyg_batchgnn.port.report import AccelerationReport, Left, Replaced

Model = TypeVar("Model", bound=torch.nn.Module)

_log = logging.getLogger(__name__)


def log_report(report: AccelerationReport) -> None:
    """Writes a report to the logger of this module, at level INFO."""
    _log.info("%s", report)


def accelerate(model: Model, report: Callable[[AccelerationReport], None] = log_report) -> Model:
    """Replaces PyG's layers of a model by native ones, in place.

    Replaced are `GraphSAGE`, `GCN`, `GIN` and `GAT` of PyG's models, and in any module `SAGEConv`,
    `GCNConv`, `GINConv`, `GATConv`, `GATv2Conv`, `HeteroConv`, `MLP`, ``BatchNorm1d`` (also inside
    PyG's `BatchNorm`), ``ReLU`` and ``Dropout``. Models that PyG's `to_hetero` made keep their
    graph, and their modules are replaced one by one. Parameters are the same objects, so an
    optimizer that was made before still works. The keys of the ``state_dict`` are the same. Lazy
    modules stay lazy.

    Modules with hooks or parametrisations, subclasses, instances that stand in several places and
    options that native layers do not know are left as they are.

    Args:
        model: the model, which is changed.
        report: is called with what was replaced and what was left, for instance ``print``.

    Returns:
        The model itself.

    Raises:
        TypeError: ``model`` is not a module, or ``report`` cannot be called.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"accelerate takes a torch.nn.Module, got {type(model).__name__}")
    if not callable(report):
        raise TypeError(f"report takes a function such as print, got {report!r}")
    places = Counter(id(module) for _, module in model.named_modules(remove_duplicate=False))
    found = AccelerationReport()
    _visit(model, "", places, found)
    report(found)
    return model


def _visit(module: torch.nn.Module, name: str, places: Counter[int], report: AccelerationReport) -> None:
    """Replaces a module and those inside it."""
    kind = type(module)
    if concerns(module) and kind not in NATIVE.values():
        why = reason_against(module, places[id(module)])
        if why is not None:
            report.left.append(Left(name, kind.__name__, why))
            if isinstance(module, CONVS):
                return
        else:
            module.__class__ = NATIVE[kind]
            report.replaced.append(Replaced(name, kind.__name__))
    if kind is modules.AcceleratedTrim.stands_for:
        module.__class__ = modules.AcceleratedTrim
    for key, child in module.named_children():
        if not is_fused(module, key):
            _visit(child, f"{name}.{key}" if name else key, places, report)
