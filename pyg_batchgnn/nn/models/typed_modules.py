"""The modules of a typed model: a copy per type or relation, with the names that PyG gives them."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch

from pyg_batchgnn.nn.sampled import Relation


def copies(module: torch.nn.Module, keys: Iterable[str | Relation]) -> torch.nn.ModuleDict:
    """Returns a copy of a module for each type or relation, with weights of its own."""
    names = [module_key(key) for key in keys]
    made: dict[str, torch.nn.Module] = {}
    for name in names:
        one: Any = copy.deepcopy(module)
        if len(names) > 1 and hasattr(module, "reset_parameters"):
            one.reset_parameters()
        made[name] = one
    return torch.nn.ModuleDict(made)


def module_key(names: str | Relation) -> str:
    """Returns the name of the module of a type or relation, as PyG's `to_hetero` forms it."""
    text = names if isinstance(names, str) else "__".join(names)
    return text.replace(" ", "_").replace("-", "_").replace(":", "_")
