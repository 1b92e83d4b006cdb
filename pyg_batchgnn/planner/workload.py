"""The numbers that describe what is trained, and what follows from a setting by counting."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyg_batchgnn import ops
from pyg_batchgnn.cache import Aggregation
from pyg_batchgnn.loader import ScheduleName

Numbers = NDArray[np.float64]

#: Bytes of a node's id in a feature cache.
_ID_BYTES = 8


class Overlap(ABC):
    """How many distinct nodes of one type several minibatches have together."""

    @abstractmethod
    def distinct(self, together: float) -> float:
        """Returns the expected number of distinct nodes in ``together`` minibatches."""

    @abstractmethod
    def likely(self) -> tuple[Numbers, Numbers]:
        """Returns probabilities [c] to be in a minibatch, and the number of nodes [c] with each."""

    def missed(self, together: float, kept: float) -> float:
        """Returns how many of the distinct nodes are not among the ``kept`` most likely ones."""
        likely, nodes = self.likely()
        order = np.argsort(-likely, kind="stable")
        found, nodes = 1 - (1 - np.minimum(likely[order], 1.0)) ** together, nodes[order]
        left = nodes - np.clip(kept - (nodes.cumsum() - nodes), 0.0, nodes)
        return self.distinct(together) * float((left * found).sum() / max((nodes * found).sum(), 1e-300))


@dataclass(frozen=True)
class Overlaps:
    """How many distinct nodes several minibatches have together, by node type."""

    by_type: tuple[Overlap, ...]

    def distinct(self, together: float) -> float:
        return sum(self.distinct_by_type(together))

    def distinct_by_type(self, together: float) -> list[float]:
        """Returns the expected number of distinct nodes of each type."""
        return [one.distinct(together) for one in self.by_type]

    def missed(self, together: float, kept: Sequence[float]) -> list[float]:
        """Returns by type how many are not among the ``kept`` most likely nodes."""
        return [one.missed(together, count) for one, count in zip(self.by_type, kept, strict=True)]

    def kept(self, budget: float, row_bytes: Sequence[int]) -> list[float]:
        """Returns by type how many nodes' rows a cache of ``budget`` bytes holds, if the rows that
        save the most bytes per byte come first; rows of 0 bytes are left out."""
        found = [0.0] * len(self.by_type)
        if budget <= 0:
            return found
        groups = [
            (likely * width / (width + _ID_BYTES), number, float(nodes))
            for number, (one, width) in enumerate(zip(self.by_type, row_bytes, strict=True))
            for likely, nodes in zip(*one.likely(), strict=True)
            if width and likely > 0
        ]
        for _, number, nodes in sorted(groups, key=lambda group: -group[0]):
            taken = min(nodes, max(budget, 0.0) / (row_bytes[number] + _ID_BYTES))
            found[number] += taken
            budget -= taken * (row_bytes[number] + _ID_BYTES)
        return found


@dataclass(frozen=True)
class TypeRows:
    """The nodes of one type, and the bytes of their rows."""

    name: str
    nodes: int
    features: int  # bytes of a node's input features
    attributes: int  # bytes of a node's other attributes that are fetched (label, masks)
    widest: int = 8  # bytes of the widest number among them, to which a row is padded
    columns: int = 0  # the number of input features; 0 where it is not known: they are float32


@dataclass(frozen=True)
class Workload:
    """What is trained: a graph, how it is sampled, and the size of the model."""

    name: str
    types: tuple[TypeRows, ...]
    edges: int  # (directed) E of the whole graph, of all relations
    training: int  # the number of training nodes
    fanouts: tuple[int, ...]  # neighbours per hop, nearest to the seeds first
    batch_size: int = 1024
    drop_last: bool = False
    schedule: ScheduleName = ScheduleName.LOCAL  # the rule by which ranks share the training nodes
    parameters: int = 0  # of the model, whose gradients are exchanged
    seed_type: int = 0  # the number of the type of the training nodes
    has_names: bool = False  # whether the user named the node types and relations
    labor: str | None = None  # over what destinations share the words of sources; None: they do not

    @property
    def nodes(self) -> int:
        """The number N of nodes of all types."""
        return sum(one.nodes for one in self.types)

    def _mean(self, values: Iterable[int]) -> int:
        """Returns the mean over all nodes of a value per type."""
        return round(
            sum(of.nodes * one for of, one in zip(self.types, values, strict=True)) / max(self.nodes, 1)
        )

    @property
    def features(self) -> int:
        """The mean bytes of a node's input features."""
        return self._mean(one.features for one in self.types)

    @property
    def columns(self) -> int:
        """The mean number of a node's input features, at least 1."""
        return max(1, self._mean(one.columns or one.features // 4 for one in self.types))

    @property
    def attributes(self) -> int:
        """The mean bytes of a node's other attributes that are fetched."""
        return self._mean(one.attributes for one in self.types)

    @property
    def id_bytes(self) -> int:
        """Bytes of a node id in messages and in memory."""
        return ops.id_dtype(self.nodes).itemsize

    @property
    def edge_bytes(self) -> int:
        """Bytes of an edge's id in memory."""
        return ops.id_dtype(self.edges).itemsize

    @property
    def first_relay(self) -> int:
        """The first hop for which other ranks are asked: 1 if seeds are own nodes, else 0."""
        return int(self.schedule is ScheduleName.LOCAL)

    def minibatches(self, counts: Sequence[int]) -> int:
        """Returns the number of minibatches of every rank in an epoch. ``counts``: the seed nodes
        that each rank trains; with the schedule "global" only their sum counts."""
        cut = math.floor if self.drop_last else math.ceil
        if self.schedule is ScheduleName.GLOBAL:
            return cut(cut(sum(counts) / self.batch_size) / len(counts))
        return max((cut(count / self.batch_size) for count in counts), default=0)

    def seeds_of(self, counts: Sequence[int]) -> list[list[int]]:
        """Returns by rank the number of seed nodes in each of its minibatches."""
        steps, size = self.minibatches(counts), self.batch_size
        if self.schedule is ScheduleName.GLOBAL:
            every = sum(counts)
            sizes = [min(size, max(every - at * size, 0)) for at in range(steps * len(counts))]
            return [sizes[rank :: len(counts)] for rank in range(len(counts))]
        cut = math.floor if self.drop_last else math.ceil
        return [
            [min(size, count - at * size) for at in range(steps)]
            if cut(count / size) == steps
            else [count // steps + (at < count % steps) for at in range(steps)]
            for count in counts
        ]

    def fullness(self, counts: Sequence[int]) -> float:
        """Returns the mean number of seed nodes per minibatch, as a share of the batch size."""
        steps = self.minibatches(counts) * len(counts)
        return min(1.0, sum(counts) / (steps * self.batch_size)) if steps else 0.0


@dataclass(frozen=True, eq=False)
class MinibatchMeans:
    """The means over minibatches of one rank, all with the same number of hops."""

    nodes: float
    edges: float
    asked: tuple[float, ...]  # by hop, the nodes of other ranks of which it needs the in-edges
    sections: tuple[float, ...]  # these nodes, each counted once for each relation into its type
    answered: tuple[float, ...]  # by hop, the in-edges of these nodes
    expanded: float  # nodes whose in-edges are in the minibatch
    distinct: Overlaps  # the distinct nodes when minibatches are fetched together
    remote: Overlaps  # the same for nodes of other hosts


@dataclass(frozen=True, eq=False)
class PlannerProbe:
    """The sizes of minibatches for one partition."""

    policy: str  # the partitioning policy, or the folder of a saved partition
    ranks: int
    hosts: int
    seeds: tuple[int, ...]  # the seed nodes that each rank trains; with the global schedule, owns
    part_nodes: int  # of the largest part
    part_edges: int
    full: MinibatchMeans  # minibatches of all hops
    inner: MinibatchMeans  # those without the last hop, as the aggregation cache needs them


@dataclass(frozen=True)
class PlannerSetting:
    """A value for everything that can be chosen."""

    macrobatch: int = 0  # B, the number of minibatches sampled together, 0 for all of an epoch
    fetch: int = 0  # F, the number of minibatches fetched together, at most B, 0 for B
    policy: str = "random"  # the partitioning policy, or the folder of a saved partition
    hybrid: bool = False  # True if every host has the whole topology
    #: the aggregation of the input that is cached (BatchGNN, appendix C), or None
    aggregation: Aggregation | None = None
    feature_cache: int = 0  # bytes of remote rows that a rank keeps


@dataclass(frozen=True)
class Rounds:
    """The number of exchanges that every rank makes in an epoch, by kind."""

    topology: int
    features: int
    lookup: int


@dataclass(frozen=True)
class Prediction:
    """A prediction for one epoch of one rank."""

    setting: PlannerSetting  # the setting that is predicted
    minibatches: int  # the number of minibatches of a rank
    rounds: Rounds  # the number of exchanges
    rows: float  # the distinct remote rows of all fetch groups
    topology_bytes: float  # bytes of edges that a rank receives
    feature_bytes: float  # bytes of rows that it receives
    gradient_bytes: float  # bytes of gradients that it receives
    memory: float  # the peak bytes of a rank's process
    #: seconds by phase: sampling, asking other ranks for edges, gathering, fetching rows, forward,
    #: backward, exchanging gradients
    seconds: dict[str, float]
    fits: bool  # True if the memory is available

    @property
    def preparation(self) -> float:
        """Seconds that preparing the minibatches takes, features included."""
        return sum(self.seconds[phase] for phase in ("sample", "relay", "gather", "fetch"))

    @property
    def epoch(self) -> float:
        """Seconds of all phases together."""
        return sum(self.seconds.values())

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "preparation": self.preparation, "epoch": self.epoch}


def sizes(minibatches: int, macrobatch: int, fetch: int) -> list[list[int]]:
    """Returns for each macrobatch the number of minibatches in each of its fetch groups."""
    size = min(macrobatch or minibatches, minibatches) or 1
    group = min(fetch or size, size)
    whole = [min(size, minibatches - first) for first in range(0, minibatches, size)]
    return [[min(group, one - first) for first in range(0, one, group)] for one in whole]


def rounds(workload: Workload, probe: PlannerProbe, setting: PlannerSetting, minibatches: int) -> Rounds:
    """Counts exchanges exactly, by the formulas of docs/concepts/relay.md: 2(L - 1) or 2L per
    macrobatch, and 2 per fetch group."""
    made = sizes(minibatches, setting.macrobatch, setting.fetch)
    hops = len(workload.fanouts) - int(setting.aggregation is not None)
    relays = max(hops - workload.first_relay, 0)
    alone = probe.ranks == 1 or setting.hybrid
    lookup = 2 if workload.schedule is ScheduleName.GLOBAL and not alone else 0
    return Rounds(0 if alone else 2 * relays * len(made), 2 * sum(map(len, made)), lookup)


def row_bytes(workload: Workload, setting: PlannerSetting) -> tuple[int, ...]:
    """Returns the bytes of a node's row in messages by node type, padded to the widest number:
    attributes, aggregates, features unless these contain them, and the original id if it is
    unknown."""
    kept, ids = setting.aggregation, 0 if setting.hybrid else workload.id_bytes
    tables = 1 if kept is None or kept.holds_own_row else 2
    return tuple(
        -(-(tables * one.features + one.attributes + ids) // max(one.widest, ids)) * max(one.widest, ids)
        for one in workload.types
    )
