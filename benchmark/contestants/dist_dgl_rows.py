"""DistDGL: the embedding part of training steps, by `DistEmbedding` and its `SparseAdam`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import dgl
import dgl.distributed
import numpy as np
import torch
from dgl.distributed import DistEmbedding
from dgl.distributed.optim import SparseAdam

from benchmark.contestants.dist_dgl_parts import NEW_IDS

LEARNING_RATE = 0.01


def embedding(graph: dgl.distributed.DistGraph, options: dict[str, Any]) -> dict[str, Any]:
    """Reads the rows of each minibatch's nodes and updates them; returns the seconds per step of
    each round, and the mean number of rows that other hosts hold.

    The nodes of the minibatches are those in the file ``options["nodes"]`` of this rank, by their
    ids in the whole graph.
    """
    new = torch.from_numpy(np.load(Path(os.environ["DGL_CONF_PATH"]).parent / NEW_IDS))
    own = torch.distributed.get_rank()
    with np.load(options["nodes"].format(rank=own)) as file:
        nodes = [new[torch.from_numpy(file[name])] for name in file.files]
    columns = options["columns"]
    gradients = [torch.rand(len(ids), columns) for ids in nodes]
    (node_type,) = graph.ntypes
    policy = graph.get_node_partition_policy(node_type)
    rows = DistEmbedding(graph.num_nodes(), columns, "rows", init_func=_uniform, part_policy=policy)
    optimiser = SparseAdam([rows], lr=LEARNING_RATE)
    seconds = []
    for _ in range(1 + options["rounds"]):  # the first is not measured
        torch.distributed.barrier()
        begun = time.perf_counter()
        for ids, gradient in zip(nodes, gradients, strict=True):
            optimiser.zero_grad()
            rows(ids).backward(gradient)
            optimiser.step()  # ends with a barrier
        seconds.append((time.perf_counter() - begun) / len(nodes))
    book = graph.get_partition_book()
    remote = [int((book.nid2partid(ids) != book.partid).sum()) for ids in nodes]
    return {"seconds": seconds[1:], "remote": sum(remote) / len(remote)}


def _uniform(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype).uniform_(-1, 1)
