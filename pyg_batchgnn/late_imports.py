"""Imports that wait until a name is used, so that a process loads only the files it needs."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def late_names(module: str) -> Callable[[str], Any]:
    """Returns the ``__getattr__`` of the module named ``module``, which imports a name when it is
    first used. The names are the plain imports under ``if TYPE_CHECKING``, ``from file import name
    as name``, where editors see them. Also sets ``__all__`` and ``__dir__``."""
    here = sys.modules[module]
    homes: dict[str, str] = {}
    names: list[str] = []
    for node in ast.parse(Path(str(here.__file__)).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            names += [one.name for one in node.names if one.asname == one.name]
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for line in node.body:
                if isinstance(line, ast.ImportFrom):
                    homes |= {one.name: str(line.module) for one in line.names}

    def import_name(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(homes[name]), name)
        setattr(here, name, value)
        return value

    here.__dict__.setdefault("__all__", [*names, *homes])
    here.__dict__.setdefault("__dir__", lambda: sorted({*vars(here), *homes}))
    return import_name
