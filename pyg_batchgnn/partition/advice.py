"""Advice about a partition that was made, from what its report counts."""

from __future__ import annotations

from collections.abc import Sequence

from pyg_batchgnn.partition.balanced import EDGES, NODES, Balanced, TwoLevel
from pyg_batchgnn.partition.loads import Load
from pyg_batchgnn.partition.policy import BuiltIn, Policy, PolicyLike, as_policy
from pyg_batchgnn.partition.report import PartitionReport

#: A cut of more than this share of a random partition's is worth another policy.
_CUT = 0.5
#: A load of more than this many times the mean makes ranks wait.
_FULL = 1.1

#: By load, its name in a sentence and what follows from too much of it.
_WORDS = {
    NODES: ("nodes", "and its rank needs more memory"),
    EDGES: ("in-edges", "and its rank needs more memory"),
    "train": ("training nodes", "and the others wait for its rank"),
}
_MULTILEVEL = "--policy multilevel keeps to 1.05 where single nodes are not too heavy."
_BALANCED = "batchgnn train --schedule balanced lets every rank train equally many."


def advise(report: PartitionReport, policy: PolicyLike) -> list[str]:
    """Returns what to change, in sentences, or that the partition is good as it is.

    Args:
        report: the counts of the parts, made with the policy.
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
    found += [_about(load, made_by) for load in _uneven(report.loads)]
    if found or parts == 1:
        return found
    return [f"These parts are good as they are: {report.edge_cut:.0%} of the edges join them."]


def _uneven(loads: Sequence[Load]) -> list[Load]:
    """Returns the loads to speak of, each of its worst type.

    They are those whose limit was not kept, and those that every run needs memory or waits for.
    """
    found = dict[str, Load]()
    for load in loads:
        full = load.name in _WORDS and load.balance > _FULL and not load.is_even
        worst = found.get(load.name)
        if (full or not load.is_met) and (worst is None or load.balance > worst.balance):
            found[load.name] = load
    return list(found.values())


def _about(load: Load, policy: BuiltIn | Policy) -> str:
    """Returns a sentence on a load that is uneven, and one that says what evens it out."""
    words, follows = _WORDS.get(
        load.name, (repr(load.name), f"more than the {load.slack} that was asked for")
    )
    remedy = _BALANCED if load.name == "train" else _MULTILEVEL
    if isinstance(policy, Balanced):
        remedy = _remedy(policy, load)
    return f"Part {load.fullest} has {load.balance:.2f} times the mean of {words}, {follows}. {remedy}"


def _remedy(policy: Balanced, load: Load) -> str:
    """Returns what evens out a load after a policy that balances loads."""
    more = f" Or {_BALANCED}" if load.name == "train" else ""
    if load.name not in policy.balance:
        return f"No limit was set for it; add --balance {load.name} to the loads.{more}"
    slack = policy.balance[load.name]
    if load.is_met:
        return f"--balance {load.name}={slack:g} allows that; a smaller number spreads it more evenly.{more}"
    if not isinstance(policy, TwoLevel):
        return f"{_MULTILEVEL}{more}"
    return (
        f"The limit of {slack:g} could not be kept: {load.reason}. Fewer parts or fewer limits make it "
        f"possible.{more}"
    )
