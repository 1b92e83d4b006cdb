"""Advice about a partition that was made, from what its report counts."""

from __future__ import annotations

from math import ceil

from pyg_batchgnn.partition.balanced import Balanced, TwoLevel
from pyg_batchgnn.partition.policy import PolicyLike, as_policy
from pyg_batchgnn.partition.report import PartitionReport

#: A cut of more than this share of a random partition's is worth another policy.
_CUT = 0.5
#: A load of more than this many times the mean makes ranks wait.
_FULL = 1.1

_MULTILEVEL = "--policy multilevel keeps to 1.05 where single nodes are not too heavy."


def advise(report: PartitionReport, policy: PolicyLike) -> list[str]:
    """Returns what to change, in sentences, or that the partition is good as it is.

    Args:
        report: the counts of the parts.
        policy: the policy that made them, or its name.
    """
    parts = len(report.parts)
    random = 1 - 1 / parts
    found, made_by = [], as_policy(policy)
    if not isinstance(made_by, TwoLevel) and report.edge_cut > _CUT * random:
        found.append(
            f"{report.edge_cut:.0%} of the edges join parts; by chance it would be {random:.0%}. --policy "
            f"multilevel cuts the fewest edges within the memory bound. It takes longer to make, which pays "
            f"if several runs use the parts."
        )
    if (train := _worst(report, "train")) > _FULL:
        found.append(
            f"A part has {train:.2f} times the mean of training nodes, and the others wait for its rank. "
            f"batchgnn train --schedule balanced lets every rank train equally many."
        )
    for of, words in (("nodes", "nodes"), ("edges", "in-edges")):
        if (most := _worst(report, of)) > _FULL:
            remedy = _remedy(made_by, of, most) if isinstance(made_by, Balanced) else _MULTILEVEL
            found.append(
                f"A part has {most:.2f} times the mean of {words}, and its rank needs more memory. {remedy}"
            )
    if found or parts == 1:
        return found
    return [f"These parts are good as they are: {report.edge_cut:.0%} of the edges join them."]


def _worst(report: PartitionReport, of: str) -> float:
    """Returns the largest count over the mean, of the worst node type.

    A type is as even as can be, and counts 1, if no part has more than the mean rounded up.
    """
    worst = 1.0
    for node_type, parts in report.types.items():
        counts = [getattr(part, of) for part in parts]
        if max(counts) > ceil(sum(counts) / len(counts)):
            worst = max(worst, report.balance(of, node_type))
    return worst


def _remedy(policy: Balanced, of: str, most: float) -> str:
    """Returns what evens out a load, of which a part has ``most`` times the mean."""
    if of not in policy.balance:
        return f"No limit was set for it; add --balance {of} to the loads."
    if most <= (slack := policy.balance[of]):
        return f"--balance {of}={slack:g} allows that; a smaller number spreads it more evenly."
    if not isinstance(policy, TwoLevel):
        return _MULTILEVEL
    return (
        f"The limit of {slack:g} could not be kept: a single node is too heavy, or other limits stand in "
        f"the way; the warning says which. Fewer parts or fewer limits make it possible."
    )
