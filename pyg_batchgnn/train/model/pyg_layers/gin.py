"""GIN (Xu et al. 2019) of PyG's `GINConv`."""

from __future__ import annotations

from typing import Any

from torch_geometric.nn import GINConv

from pyg_batchgnn.nn.models import GINStack, Perceptron
from pyg_batchgnn.train.model.pyg_layers.pyg_model import PygModel


class PygGIN(GINStack, PygModel):
    """GIN of PyG's layers, with batch normalisation inside the perceptrons and after each layer but
    the last.

    The statistics are those of exactly the rows that a layer computes. A minibatch of one row is
    normalised by the running statistics.
    """

    conv = GINConv
    perceptron = Perceptron

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        norm = {"norm": "batch_norm", "norm_kwargs": {"allow_single_element": True}}
        super().__init__(*args, **{**norm, **kwargs})
