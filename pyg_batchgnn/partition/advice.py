"""Advice about a partition that was made, from what its report counts."""

from __future__ import annotations

from pyg_batchgnn.partition.report import PartitionReport

#: A cut of more than this share of a random partition's is worth another policy.
_CUT = 0.5
#: A load of more than this many times the mean makes ranks wait.
_FULL = 1.1


def advise(report: PartitionReport, policy: str) -> list[str]:
    """Returns what to change, in sentences, or that the partition is good as it is.

    Args:
        report: the counts of the parts.
        policy: the name of the policy that made them.
    """
    parts = len(report.parts)
    random = 1 - 1 / parts
    found = []
    is_best = policy in ("multilevel", "metis")
    if not is_best and report.edge_cut > _CUT * random:
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
        if not is_best and (most := _worst(report, of)) > _FULL:
            found.append(
                f"A part has {most:.2f} times the mean of {words}, and its rank needs more memory. --policy "
                f"multilevel keeps to 1.05 where single nodes are not too heavy."
            )
    if found or parts == 1:
        return found
    return [f"These parts are good as they are: {report.edge_cut:.0%} of the edges join them."]


def _worst(report: PartitionReport, of: str) -> float:
    """Returns the largest count over the mean, of the worst node type."""
    return max(report.balance(of, node_type) for node_type in report.types)
