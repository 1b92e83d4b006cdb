"""Rewrites one of PyG's scripts while it is read: ``model(batch)`` instead of tensors of the batch.

The file of the script stays as it is. Dropout is switched off, and batch norms are in evaluation
mode, because their statistics would be those of fewer rows. So two runs can be compared.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, TypeVar

import torch

#: The name under which a rewritten script finds what prepares its model.
PREPARE = "_prepare_model"
#: What the first argument of a call of a model is, if its arguments are those of a batch.
_ROWS = ("x", "x_dict")


class BatchCalls(ast.NodeTransformer):
    """Rewrites a script."""

    def __init__(self, *, calls: bool) -> None:
        self._calls, self.rewritten = calls, 0
        self._batches: set[str] = set()

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if self._calls and _is_named(node.func, "model") and node.args and self._takes_rows(node.args[0]):
            batch = node.args[0].value  # type: ignore[attr-defined]
            self.rewritten += 1
            return ast.Call(node.func, [batch], [])
        if isinstance(node.func, ast.Attribute) and node.func.attr == "dropout":
            for keyword in node.keywords:
                if keyword.arg == "p":
                    keyword.value = ast.Constant(0.0)
        return node

    def _takes_rows(self, node: ast.AST) -> bool:
        rows = isinstance(node, ast.Attribute) and node.attr in _ROWS
        return rows and any(_is_named(node.value, name) for name in self._batches)  # type: ignore[attr-defined]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        loops = (one for one in ast.walk(node) if isinstance(one, ast.For))
        over = {ast.unparse(one.target) for one in loops if "loader" in ast.unparse(one.iter)}
        self._batches = over if node.name == "train" else over & {"batch"}
        self.generic_visit(node)
        self._batches = set()
        return _with_model_prepared(node)

    def visit_Module(self, node: ast.Module) -> ast.Module:
        self.generic_visit(node)
        return _with_model_prepared(node)


Body = TypeVar("Body", ast.Module, ast.FunctionDef)


def _with_model_prepared(node: Body) -> Body:
    made = [place for place, one in enumerate(node.body) if _makes_model(one)]
    if made:
        prepare = ast.Call(ast.Name(PREPARE, ast.Load()), [ast.Name("model", ast.Load())], [])
        node.body.insert(made[-1] + 1, ast.Expr(prepare))
    return node


def _makes_model(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and any(_is_named(one, "model") for one in node.targets)


def _is_named(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def rewritten(source: str, file: str, *, calls: bool) -> tuple[Any, int]:
    rewriter = BatchCalls(calls=calls)
    tree = ast.fix_missing_locations(rewriter.visit(ast.parse(source, file)))
    return compile(tree, file, "exec"), rewriter.rewritten


def preparing(tell: Callable[[str], None] | None) -> Callable[[torch.nn.Module], None]:
    """Returns what prepares a model: its dropout is switched off, and it is accelerated."""

    def train(norm: Any, mode: bool = True) -> Any:
        del mode
        return torch.nn.Module.train(norm, False)

    def prepare(model: torch.nn.Module) -> None:
        torch.nn.BatchNorm1d.train = train  # type: ignore[method-assign, assignment]
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
            for name, value in vars(module).items():
                if "drop" in name and isinstance(value, float):
                    setattr(module, name, 0.0)
        if tell is not None:
            from pyg_batchgnn import accelerate

            accelerate(model, lambda report: tell(str(report)))

    return prepare
