"""The imports of a package, read from its source: which file imports which, and the circles."""

from __future__ import annotations

import ast
import functools
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Import:
    """One name that a module imports.

    Attributes:
        module: the module whose name is imported, such as ``package.room.file``.
        name: the name; None for ``import package.room.file``.
        line: the line of the statement.
    """

    module: str
    name: str | None
    line: int


@functools.cache
def imports_of(source: str, module: str, is_package: bool = False) -> list[Import]:
    """Returns what a module imports, at the top, inside functions or for type checking.

    Args:
        source: the module's text.
        module: its name; relative imports start there.
        is_package: whether it is an ``__init__.py``.
    """
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [Import(alias.name, None, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                up = node.level - is_package
                base = ".".join([*module.split(".")[: -up or None], base]).rstrip(".")
            found += [Import(base, alias.name, node.lineno) for alias in node.names]
    return found


@dataclass(frozen=True)
class Package:
    """The source of a package.

    Attributes:
        name: the name of the package.
        files: the path of each module, by its full name; a package's own is its ``__init__.py``.
    """

    name: str
    files: dict[str, Path]

    @classmethod
    def read(cls, folder: Path) -> Package:
        """Finds the modules in a folder."""
        files = {}
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder.parent).with_suffix("").parts
            files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
        return cls(folder.name, files)

    def imports(self, module: str) -> list[Import]:
        """Returns what a module imports of the package."""
        path = self.files[module]
        found = imports_of(path.read_text(), module, path.name == "__init__.py")
        return [item for item in found if item.module.split(".")[0] == self.name]

    def target(self, item: Import) -> str:
        """Returns the module that an import reads: a submodule where the name is one."""
        inner = f"{item.module}.{item.name}"
        return inner if inner in self.files else item.module

    def graph(self) -> dict[str, set[str]]:
        """Returns for each module the modules that it imports.

        A module that imports from its own front door makes a circle: the front door imports it.
        """
        return {
            module: {
                target
                for item in self.imports(module)
                if (target := self.target(item)) in self.files and target != module
            }
            for module in self.files
        }


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Returns the strongly connected components of several nodes, each sorted (Tarjan, 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            component = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(component) > 1:
                found.append(sorted(component))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def classes(source: str) -> list[str]:
    """Returns the names of the public classes at the top of a module."""
    body = ast.parse(source).body
    return [node.name for node in body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
