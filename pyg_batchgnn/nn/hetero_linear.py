"""A linear layer per node type: the input projections of typed graphs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.nn.dense.linear import is_uninitialized_parameter

from pyg_batchgnn import ops
from pyg_batchgnn.nn.inputs import Rows
from pyg_batchgnn.nn.linear import is_watched
from pyg_batchgnn.nn.precision import check_input


class HeteroDictLinear(torch_geometric.nn.HeteroDictLinear):
    """PyG's `HeteroDictLinear` with the same arguments, initialisation and ``state_dict``; rows are
    read in place.

    ``project(features_by_type(minibatch))`` brings the features of all types to one width. Nothing
    is gathered before the products.

    Args:
        in_channels: the number of columns of all types, or of each; -1 takes it from the first
            call.
        out_channels: the number of columns of the results.
        types: the names of the types, if ``in_channels`` is a number.
        **kwargs: the other arguments of PyG's `Linear`: ``bias``, ``weight_initializer`` and
            ``bias_initializer``.
    """

    def forward(self, x_dict: Mapping[str, Rows], *, relu: bool = False) -> dict[str, Tensor]:
        """Returns [N, out_channels] by type; types without a layer are left out.

        Args:
            x_dict: [N, F] by type, tensors or `RowView`.
            relu: sets negative elements to zero, in the same pass.
        """
        return {
            name: self._product(lin, x_dict[name], relu) for name, lin in self.lins.items() if name in x_dict
        }

    def _product(self, lin: Any, x: Rows, relu: bool) -> Tensor:
        if is_watched(lin):
            out: Tensor = lin(x if isinstance(x, Tensor) else x.gather())
            return out.relu() if relu else out
        check_input(x, lin.in_channels, ops.compute_dtype(lin.weight))
        return ops.linear([x], [lin.weight], lin.bias, num_rows=x.size(0), relu=relu)

    @torch.no_grad()
    def initialize_parameters(self, module: Any, input: tuple[Mapping[str, Rows], ...]) -> None:
        """Takes unknown numbers of columns from the rows of the first call."""
        del module
        for name, x in input[0].items():
            if name in self.lins and is_uninitialized_parameter(self.lins[name].weight):
                self.lins[name].initialize_parameters(None, (x,))
                self.lins[name].reset_parameters()  # a second time, as PyG does
        if not any(is_uninitialized_parameter(lin.weight) for lin in self.lins.values()):
            self._hook.remove()
            del self._hook
        self.in_channels = {name: lin.in_channels for name, lin in self.lins.items()}
