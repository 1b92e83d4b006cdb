"""Negatives that are no edges, drawn by who knows the edges of one of their ends."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn.ops import WordStreams
from pyg_batchgnn.sample.negatives import TRIES, NegativePlan

#: The position where there is nothing to draw.
NOTHING = -1


def draw_partners(plan: NegativePlan, streams: WordStreams, source: Tensor, allowed: Tensor) -> Tensor:
    """Draws a target for each of some sources, which are the held ends of the existing pairs.

    Args:
        plan: the rule.
        streams: [n] streams of the targets.
        source: [n] int64, their ids.
        allowed: [n] int64, how many targets are allowed for each.

    Returns:
        [n] int64 positions; `NOTHING` where an edge leads to every target that is allowed.
    """
    pool, existing = plan.targets, plan.existing
    pending = torch.arange(source.numel())
    if existing is None:
        return pool.draw(streams, pending, allowed)
    target = torch.empty_like(source)
    for _ in range(TRIES):
        if not pending.numel():
            break
        target[pending] = pool.draw(streams, pending, allowed[pending])
        pending = pending[existing.contain(source[pending], target[pending])]
    for number in pending.tolist():
        taken = existing.others(int(source[number]))
        found = pool.draw_outside(streams, number, int(allowed[number]), taken)
        target[number] = NOTHING if found is None else found
    return target


def free_pair(
    plan: NegativePlan, streams: WordStreams, which: int, target: int, sources: int, targets: int
) -> tuple[int, int] | None:
    """Returns a source and a target that no edge joins, by position, or None if there are none.

    The target is the given one, or the first after it in the pool's order that has a source left.

    Args:
        plan: the rule. Targets are the held ends of its existing pairs.
        streams: the streams of the sources.
        which: the position of the negative's stream.
        target: the target that was drawn last.
        sources, targets: how many are allowed.
    """
    pool, existing = plan.targets, plan.existing
    assert existing is not None
    for held in existing.known_from(target, targets):
        if pool.weight is not None and pool.weight[held] == 0:
            continue
        source = plan.sources.draw_outside(streams, which, sources, existing.others(held))
        if source is not None:
            return source, held
    return None
