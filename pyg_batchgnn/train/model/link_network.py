"""A network that scores pairs: rows of the nodes at both ends, and a decoder."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pyg_batchgnn.data import Relation
from pyg_batchgnn.nn import DotProductDecoder, MLPDecoder, OwnedNodes
from pyg_batchgnn.train.config import Decoder
from pyg_batchgnn.train.model.network import GraphNetwork, NativeNetwork, NetworkOutput

PairDecoder = DotProductDecoder | MLPDecoder


@dataclass(frozen=True, eq=False)
class _Pairs:
    """The pairs of a minibatch, links first.

    Attributes:
        source, target: [S] int64, the rows of their ends among the seeds of each type.
        links: the number of links.
    """

    source: Tensor
    target: Tensor
    links: int

    @classmethod
    def of(cls, batch: Any) -> _Pairs:
        """Returns the pairs of a minibatch. Negatives of a link follow each other."""
        if not batch.links:
            nothing = torch.empty(0, dtype=torch.int64)
            return cls(nothing, nothing, 0)
        found = batch.links[0]
        count = len(found.input_id)
        if hasattr(found, "index"):
            return cls(found.index[0], found.index[1], count)
        negative = found.negative.view(count, -1) if count else found.negative.view(0, 1)
        sources = found.source.unsqueeze(1).expand_as(negative)
        return cls(
            torch.cat([found.source, sources.reshape(-1)]),
            torch.cat([found.target, negative.reshape(-1)]),
            count,
        )


@dataclass(frozen=True, eq=False)
class LinkOutput:
    """The output for the pairs of a minibatch.

    Attributes:
        logits: [S] float32, the scores.
        hidden: [S, columns], the rows of the targets.
    """

    logits: Tensor
    hidden: Tensor


class LinkNetwork(GraphNetwork):
    """A network with a decoder of pairs behind it.

    Args:
        encoder: computes the rows of nodes.
        decoder: scores pairs of rows.
        relation: the relation that is predicted.
    """

    def __init__(self, encoder: NativeNetwork, decoder: PairDecoder, relation: Relation) -> None:
        super().__init__(nn.ModuleDict({"encoder": encoder.model, "decoder": decoder}))
        self.encoder = encoder
        self.decoder = decoder
        self.relation = relation

    def outputs(self, batch: Any) -> NetworkOutput:
        rows, pairs = self.encoder.rows(batch), _Pairs.of(batch)
        # Unlike those of an index, the gradients of an embedding are added in a fixed order.
        source = F.embedding(pairs.source, rows[self.relation[0]])
        target = F.embedding(pairs.target, rows[self.relation[2]])
        return LinkOutput(self.decoder(source, target), target)

    def infer(self, nodes: OwnedNodes) -> NetworkOutput:
        return self.encoder.infer(nodes)

    @property
    def embedded_types(self) -> list[str]:
        return list(dict.fromkeys((self.relation[0], self.relation[2])))

    def infer_embeddings(self, nodes: OwnedNodes, node_types: Collection[str]) -> dict[str, Tensor]:
        return self.encoder.infer_rows(nodes, node_types)

    def seeds(self, batch: Any) -> Tensor:
        """Returns the positions of the links in the loader's input."""
        return batch.links[0].input_id if batch.links else torch.empty(0, dtype=torch.int64)

    def labels(self, batch: Any) -> Tensor:
        """Returns [S] bool, True for the links among the pairs of a minibatch."""
        pairs = _Pairs.of(batch)
        return torch.arange(len(pairs.source)) < pairs.links

    def sampled(self, batch: Any) -> tuple[int, int]:
        return self.encoder.sampled(batch)

    def fetched(self, batch: Any, name: str) -> Tensor:
        return self.encoder.fetched(batch, name)

    def leave_out(self, batch: Any) -> None:
        self.encoder.leave_out(batch)


def build_decoder(kind: Decoder, columns: int) -> PairDecoder:
    """Returns a decoder with new weights. ``columns``: of the rows that it reads."""
    return DotProductDecoder() if kind is Decoder.DOT else MLPDecoder(columns)
