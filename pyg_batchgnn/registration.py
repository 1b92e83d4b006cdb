"""Registers the backend "ccl" with torch.distributed, only in processes that use torch.distributed.

Importing pyg_batchgnn does not import torch. Where torch is imported already, the name is
registered at once. Otherwise it is registered as soon as torch.distributed has been imported. The
backend itself is imported when a group is made.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from datetime import timedelta
from types import ModuleType
from typing import Any

_MODULE = "torch.distributed.distributed_c10d"


def register_ccl() -> None:
    """Registers the backend "ccl" now, or as soon as torch.distributed is imported."""
    if _MODULE in sys.modules:
        _register(sys.modules[_MODULE])
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _register(distributed: ModuleType) -> None:
    backend = distributed.Backend
    if not hasattr(backend, "CCL"):  # another package's stays
        backend.register_backend("ccl", _create, devices=["cpu"])


def _create(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    from pyg_batchgnn.comm.ccl import create

    return create(store, rank, size, timeout)


class _Finder(importlib.abc.MetaPathFinder):
    """An import hook that calls `_register` once torch.distributed is imported."""

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            _after(spec.loader)
        return spec


def _after(loader: Any) -> None:
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        _register(module)

    loader.exec_module = exec_module
