"""DGL: its neighbour sampler, plain and fused, and a GraphSAGE step on blocks."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import dgl
import torch
import torch.nn.functional as F
from dgl.dataloading import NeighborSampler
from dgl.nn import SAGEConv

from graphs import GraphFolder, seed_lists
from jobs import Job, Options, Work

DROPOUT = 0.5
LEARNING_RATE = 0.003


def versions() -> dict[str, str]:
    """What takes part."""
    return {"dgl": dgl.__version__}


def _graph(folder: GraphFolder, dtype: torch.dtype) -> dgl.DGLGraph:
    edges = torch.empty(0, dtype=dtype)  # empty: an edge's id is its position
    return dgl.graph(("csc", (folder.colptr.to(dtype), folder.row.to(dtype), edges)), idtype=dtype)


def _sampler(options: Options, fused: bool) -> NeighborSampler:
    return NeighborSampler(list(reversed(options.fanouts)), fused=fused)  # DGL counts fanouts from the input


def _sampling(fused: bool, dtype: torch.dtype) -> Callable[[Options], Job]:
    def build(options: Options) -> Job:
        folder = GraphFolder.open(options.graph)
        graph, sampler = _graph(folder, dtype), _sampler(options, fused)
        seeds = [s.to(dtype) for s in seed_lists(folder, options.batches, options.batch_size, options.seed)]

        def round_(_: int) -> Work:
            work = Work()
            for batch in seeds:
                nodes, _, blocks = sampler.sample_blocks(graph, batch)
                work.add(nodes.numel(), sum(block.edata[dgl.EID].numel() for block in blocks))
            return work

        return round_

    return build


class Sage(torch.nn.Module):
    """GraphSAGE on blocks, as in DGL's examples."""

    def __init__(self, features: int, hidden: int, classes: int, count: int) -> None:
        super().__init__()
        widths = [features, *[hidden] * (count - 1), classes]
        self.convs = torch.nn.ModuleList(SAGEConv(i, o, "mean") for i, o in pairwise(widths))

    def forward(self, blocks: list[dgl.DGLGraph], x: torch.Tensor) -> torch.Tensor:
        """[batch_size, classes] logits of the seeds."""
        for layer, (conv, block) in enumerate(zip(self.convs, blocks, strict=True)):
            x = conv(block, x)
            if layer + 1 < len(self.convs):
                x = F.dropout(F.relu(x), DROPOUT, self.training)
        return x


def training(options: Options) -> Job:
    """Sample (fused), fetch features, forward, backward, Adam."""
    folder = GraphFolder.open(options.graph)
    graph, sampler = _graph(folder, torch.int64), _sampler(options, fused=True)
    seeds = seed_lists(folder, options.batches, options.batch_size, options.seed)
    x, y = folder.x, folder.y
    torch.manual_seed(options.seed)
    network = Sage(x.size(1), options.hidden, folder.num_classes, len(options.fanouts))
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)

    def round_(_: int) -> Work:
        work = Work()
        for batch in seeds:
            nodes, _, blocks = sampler.sample_blocks(graph, batch)
            features = x[nodes]
            optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(network(blocks, features), y[batch]).backward()
            optimizer.step()
            work.add(nodes.numel(), sum(block.num_edges() for block in blocks), features.nbytes)
        return work

    return round_


JOBS: dict[str, Callable[[Options], Job]] = {
    "sampling": _sampling(fused=False, dtype=torch.int64),
    "sampling-fused": _sampling(fused=True, dtype=torch.int64),
    "sampling-32": _sampling(fused=False, dtype=torch.int32),
    "training": training,
}
