"""The partners with the highest scores, from pieces of all targets that pass by every rank."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pyg_batchgnn.train.graph import EmbeddedRows
from pyg_batchgnn.train.model import LinkNetwork

#: The most targets of a piece, and the most numbers that their rows take.
_TARGETS, _NUMBERS = 1 << 13, 1 << 24
#: Scores that are computed together.
_SCORES = 1 << 22
#: The id of no node. It comes behind all others.
_NOBODY = torch.iinfo(torch.int64).max
_LOW = (1 << 32) - 1


class BestPartners:
    """The best partners so far of each node of a list.

    Of equal scores, those of lower ids come first. So the result does not depend on the pieces in
    which partners are offered, nor on their order.

    Args:
        num_nodes: the number of nodes.
        top: the number of partners per node.

    Attributes:
        scores: [num_nodes, top] float32, descending.
        partners: [num_nodes, top] int64, their ids.
    """

    def __init__(self, num_nodes: int, top: int) -> None:
        self.scores = torch.full((num_nodes, top), -math.inf)
        self.partners = torch.full((num_nodes, top), _NOBODY)

    def offer(self, nodes: slice, scores: Tensor, ids: Tensor) -> None:
        """Offers partners to some nodes.

        Args:
            nodes: the places of n nodes in the list.
            scores: [n, m] float32.
            ids: [m] int64, the ids of the partners, ascending and new to these nodes.
        """
        known, partners = self.scores[nodes], self.partners[nodes]
        better = (~(scores.amax(dim=1) < known[:, -1])).nonzero().view(-1)
        offered = scores[better]
        best = best_columns(offered, min(known.size(1), len(ids)))
        found = torch.cat([known[better], offered.gather(1, best)], dim=1)
        theirs, order = torch.cat([partners[better], ids[best]], dim=1).sort(dim=1)
        found = found.gather(1, order)
        kept = best_columns(found, known.size(1))
        known[better], partners[better] = found.gather(1, kept), theirs.gather(1, kept)


def best_columns(scores: Tensor, count: int) -> Tensor:
    """Returns [n, count] int64, the columns with the highest scores of each row, descending.

    Of equal scores, the lower columns come first. NaN comes last, behind minus infinity.

    Args:
        scores: [n, m] float32.
        count: at most m.
    """
    bits = (scores + 0.0).view(torch.int32)  # of no negative zeros
    bits ^= (bits >> 31) & torch.iinfo(torch.int32).max  # now in the order of the scores
    bits.masked_fill_(scores.isnan(), torch.iinfo(torch.int32).min)
    behind = torch.arange(scores.size(1) - 1, -1, -1)
    keys = bits.to(torch.int64).bitwise_left_shift_(32).bitwise_or_(behind)
    return scores.size(1) - 1 - (keys.topk(count, dim=1).values & _LOW)


@torch.no_grad()
def find_partners(network: LinkNetwork, rows: EmbeddedRows, nodes: Tensor, top: int) -> BestPartners:
    """Finds the partners of some nodes with the highest scores; collective over ranks.

    The rows of all targets pass by, a piece at a time, so that no rank holds them all.

    Args:
        network: gives the decoder and the relation.
        rows: of all nodes.
        nodes: [n] int64, the nodes of the source type by their rows in ``rows.own``.
        top: the number of partners per node, at most the number of its possible ones. A node is no
            partner of itself.
    """
    source_type, _, target_type = network.relation
    own, found = rows.own(source_type), BestPartners(len(nodes), top)
    size = min(_TARGETS, max(1, _NUMBERS // max(1, own.rows.size(1))))
    for targets in rows.pieces(target_type, size):
        side = max(1, _SCORES // max(1, len(targets)))
        for begin in range(0, len(nodes), side):
            some = nodes[begin : begin + side]
            scores = network.decoder.all_pairs(own.rows[some], targets.rows)
            if source_type == target_type:
                selves = targets.find(own.node[some])
                scores[selves.position, selves.row] = -math.inf
            found.offer(slice(begin, begin + side), scores, targets.node)
    return found
