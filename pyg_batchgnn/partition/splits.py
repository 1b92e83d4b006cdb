"""The splits of the nodes that a rank has read."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import Dataset
from pyg_batchgnn.partition.bounded import own_rounds
from pyg_batchgnn.partition.checks import own_share
from pyg_batchgnn.partition.move import send
from pyg_batchgnn.partition.reading import ReadingSlice


def read_split(comm: Communicator, part: ReadingSlice, dataset: Dataset, name: str, node_type: int) -> Tensor:
    """Returns which of this rank's nodes of a type are in a split, [n_t] bool. Collective."""
    own = part.nodes_of(node_type)
    found = torch.zeros(len(own), dtype=torch.bool)
    mine = own_share(comm, dataset.split(name, part.schema.node_types[node_type]))
    for rows in own_rounds(comm, mine.numel(), 8):
        piece = mine[rows.start : rows.stop]
        found[send(comm, piece, part.group(piece, node_type)).rows - own.start] = True
    return found
