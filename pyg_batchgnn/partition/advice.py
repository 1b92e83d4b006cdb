"""Advice about a partition that was made, from what its report counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum

from rich.filesize import decimal

from pyg_batchgnn.partition.balanced import EDGES, NODES, Balanced, Metis, Streaming, TwoLevel
from pyg_batchgnn.partition.evidence import METIS_BYTES, ON_FOUR_PARTS, CutEvidence
from pyg_batchgnn.partition.loads import Load
from pyg_batchgnn.partition.multilevel import has_metis
from pyg_batchgnn.partition.policy import BuiltIn, Policy, PolicyLike, as_policy
from pyg_batchgnn.partition.report import PartitionReport

#: A cut of more than this share of a random partition's is worth another policy.
_CUT = 0.5
#: A stream's cut of more than this share of the edges is, too.
_LOW = 0.1
#: A load of more than this many times the mean makes ranks wait.
_FULL = 1.1

#: By load, its name in a sentence and what follows from too much of it.
_WORDS = {
    NODES: ("nodes", "and its rank needs more memory"),
    EDGES: ("in-edges", "and its rank needs more memory"),
    "train": ("training nodes", "and the others wait for its rank"),
}
#: The most bytes in one process with which METIS is recommended.
_MUCH = 4 << 30
_MULTILEVEL = "--policy multilevel keeps to 1.05 where single nodes are not too heavy."
_BALANCED = "batchgnn train --schedule balanced lets every rank train equally many."


class MetisLibrary(Enum):
    """The library that the policy "metis" needs."""

    INSTALLED = "installed"
    ABSENT = "absent"

    @classmethod
    def here(cls) -> MetisLibrary:
        """Returns whether this process finds it."""
        return cls.INSTALLED if has_metis() else cls.ABSENT


def advise(
    report: PartitionReport, policy: PolicyLike, metis: MetisLibrary = MetisLibrary.ABSENT
) -> list[str]:
    """Returns what to change, in sentences, or that the partition is good as it is.

    A single part gets no advice.

    Args:
        report: the counts of the parts, made with the policy.
        policy: the policy that made them, or its name.
        metis: whether the METIS library can be recommended.
    """
    if len(report.parts) == 1:
        return []
    made_by = as_policy(policy)
    found = list(_about_cut(report, made_by, metis))
    found += [_about(load, report, made_by) for load in _uneven(report.loads)]
    if found:
        return found
    return [f"These parts are good as they are: {report.edge_cut:.0%} of the edges join them."]


def _about_cut(report: PartitionReport, policy: BuiltIn | Policy, metis: MetisLibrary) -> Iterator[str]:
    """Yields what cuts fewer edges, or takes less memory for it."""
    random = 1 - 1 / len(report.parts)
    evidence = CutEvidence.of(sum(part.nodes for part in report.parts))
    most = METIS_BYTES * sum(part.edges for part in report.parts)
    if isinstance(policy, Metis) and most > _MUCH:
        yield evidence.beside_metis(decimal(most))
    streamed = isinstance(policy, Streaming)
    if isinstance(policy, TwoLevel) or report.edge_cut <= (_LOW if streamed else _CUT * random):
        return
    found = [
        f"{report.edge_cut:.0%} of the edges join parts; by chance it would be {random:.0%}.",
        evidence.after_stream(report.edge_cut) if streamed else ON_FOUR_PARTS,
        evidence.of_one_process(),
    ]
    if metis is MetisLibrary.INSTALLED and most <= _MUCH:
        found.append(evidence.of_metis(decimal(most)))
    yield " ".join(filter(None, found))


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


def _about(load: Load, report: PartitionReport, policy: BuiltIn | Policy) -> str:
    """Returns a sentence on a load that is uneven, and one that says what evens it out."""
    of_type = f" of type {load.node_type!r}" if len(report.types) > 1 else ""
    words, follows = _WORDS.get(
        load.name, (repr(load.name), f"more than the {load.slack} that was asked for")
    )
    remedy = _BALANCED if load.name == "train" else _MULTILEVEL
    if isinstance(policy, Balanced):
        remedy = _remedy(policy, load)
    uneven = f"Part {load.fullest} has {load.balance:.2f} times the mean of {words}{of_type}"
    return f"{uneven}, {follows}. {remedy}"


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
