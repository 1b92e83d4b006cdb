"""Linear layers on the matrix products of the package: torch's, and PyG's one per node type."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.nn.dense.linear import is_uninitialized_parameter

from pyg_batchgnn import ops
from pyg_batchgnn.nn.inputs import Rows, check_input


class Linear(torch.nn.Linear):
    """A ``torch.nn.Linear`` with the same constructor, initialisation and ``state_dict``, computed
    by `ops.linear`.

    Its bits do not depend on the number of threads. Under ``torch.autocast("cpu",
    torch.bfloat16)`` products and results are bfloat16, with float32 sums. Otherwise they have the
    dtype of the weights; the input may be float32, bfloat16 or float16.
    """

    @classmethod
    def sharing(cls, linear: torch.nn.Linear) -> Linear:
        made = cls(linear.in_features, linear.out_features, linear.bias is not None, device="meta")
        made.weight, made.bias = linear.weight, linear.bias
        return made

    def forward(self, input: Tensor) -> Tensor:
        """Returns the product, [..., out_features], of an input [..., in_features]."""
        return self._product(input)

    def with_relu(self, input: Tensor) -> Tensor:
        """Returns ``relu(self(input))``, in one pass if the layer has no hooks."""
        return self(input).relu() if is_watched(self) else self._product(input, relu=True)

    def after_relu(self, input: Tensor) -> Tensor:
        """Returns ``self(input)`` for a ReLU's result, without gradients of its zeros."""
        result: Tensor = self(input) if is_watched(self) else self._product(input, after_relu=True)
        return result

    def _product(self, input: Tensor, *, relu: bool = False, after_relu: bool = False) -> Tensor:
        if input.size(-1) != self.in_features:
            raise ValueError(
                f"the input has {input.size(-1)} columns (shape {list(input.shape)}), the layer takes "
                f"{self.in_features}"
            )
        matrix = input if input.dim() == 2 else input.reshape(-1, self.in_features)
        rows = math.prod(input.shape[:-1])
        y = ops.linear([matrix], [self.weight], self.bias, num_rows=rows, relu=relu, after_relu=after_relu)
        return y.view(*input.shape[:-1], self.out_features)


def is_watched(module: torch.nn.Module) -> bool:
    """Returns whether a module must be called, and not fused: it (or torch as a whole) has hooks,
    it was compiled, or its ``forward`` was replaced."""
    hooks = (
        torch.nn.modules.module._has_any_global_hook(),
        "forward" in vars(module),
        vars(module).get("_compiled_call_impl"),
        module._forward_hooks,
        module._forward_pre_hooks,
        module._backward_hooks,
        module._backward_pre_hooks,
    )
    return any(hooks)


class LazyLinear(torch.nn.LazyLinear, Linear):
    """A `Linear` that learns its number of input columns from the first call."""

    cls_to_become = Linear


def linear_of(in_features: int, out_features: int) -> Linear:
    """Returns a new `Linear`, or for -1 a `LazyLinear`."""
    return LazyLinear(out_features) if in_features == -1 else Linear(in_features, out_features)


def set_width(rows: Rows | None, *linears: Any) -> None:
    """Initialises lazy linear layers of PyG for input ``rows``, as PyG does at the first call."""
    for linear in linears:
        if linear is not None and rows is not None and is_uninitialized_parameter(linear.weight):
            linear.initialize_parameters(linear, (rows,))


def widest(module: torch.nn.Module) -> int:
    """Returns the largest number of columns of a product in a module."""
    found = [1]
    for part in module.modules():
        unknown = getattr(part, "out_channels", getattr(part, "out_features", 1))
        for one in part.parameters(recurse=False):
            found += [unknown] if is_uninitialized_parameter(one) else list(one.shape[:1])
    return max(found)


class HeteroDictLinear(torch_geometric.nn.HeteroDictLinear):
    """PyG's `HeteroDictLinear` with the same arguments, initialisation and ``state_dict``. It
    brings the features of all node types to one width, and reads those of a native minibatch in
    place: ``project(features_by_type(minibatch))``.

    >>> project = HeteroDictLinear({"paper": 4, "author": 4}, 16)
    >>> project(typed.x_dict)["author"].shape
    torch.Size([50, 16])

    Args:
        in_channels: columns of all types, or a dict by type; -1 takes them from the first call.
        out_channels: columns of the results.
        types: the names of the types, if ``in_channels`` is a number.
        **kwargs: of PyG's `Linear`: ``bias``, ``weight_initializer``, ``bias_initializer``.
    """

    def forward(self, x_dict: Mapping[str, Rows], *, relu: bool = False) -> dict[str, Tensor]:
        """Returns [N, out_channels] by type that has a layer, from [N, F] tensors or `RowView`."""
        lins = self.lins.items()
        return {name: self._product(lin, x_dict[name], relu) for name, lin in lins if name in x_dict}

    def _product(self, lin: Any, x: Rows, relu: bool) -> Tensor:
        if is_watched(lin):
            out: Tensor = lin(x if isinstance(x, Tensor) else x.gather())
            return out.relu() if relu else out
        check_input(x, lin.in_channels, ops.compute_dtype(lin.weight))
        return ops.linear([x], [lin.weight], lin.bias, num_rows=x.size(0), relu=relu)

    @torch.no_grad()
    def initialize_parameters(self, module: Any, input: tuple[Mapping[str, Rows], ...]) -> None:
        del module
        for name, x in input[0].items():
            if name in self.lins and is_uninitialized_parameter(self.lins[name].weight):
                self.lins[name].initialize_parameters(None, (x,))
                self.lins[name].reset_parameters()  # a second time, as PyG does
        if not any(is_uninitialized_parameter(lin.weight) for lin in self.lins.values()):
            self._hook.remove()
            del self._hook
        self.in_channels = {name: lin.in_channels for name, lin in self.lins.items()}
