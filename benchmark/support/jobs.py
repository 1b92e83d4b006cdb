"""The order that a contestant gets and what it reports, for drivers and worker processes.

This file imports only the standard library, so that it loads in every interpreter that takes part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Options:
    """The workload, the same for every contestant of a run."""

    graph: str
    fanouts: tuple[int, ...] = (15, 10, 5)
    batch_size: int = 1024  # seed nodes per minibatch
    batches: int = 16  # minibatches per round
    macrobatch: int = 0
    threads: int = 1  # threads that a contestant may use
    typed_graph: str = ""  # folder of a typed graph (``support/mag.py``), for work on one
    work: str = ""  # what a contestant does, where one does several kinds of work
    model: str = "sage"  # network that is trained, one of ``networks.recipe.MODELS``
    hidden: int = 256  # width of the hidden layers, for training
    labor: str = ""  # the strength by which destinations share words; empty: they do not
    seed: int = 0  # seed that chooses the training nodes and in which order

    @property
    def seeds(self) -> int:
        return self.batches * self.batch_size

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def without_model(self) -> Options:
        return replace(self, model="")

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Options:
        return cls(**{**values, "fanouts": tuple(values["fanouts"])})


@dataclass
class WorkDone:
    """The output of a round. Rates are computed from these counts, never from nominal ones."""

    minibatches: int = 0
    nodes: int = 0
    edges: int = 0
    feature_bytes: int = 0

    def add(self, nodes: int, edges: int, feature_bytes: int = 0) -> None:
        """Counts one more minibatch."""
        self.minibatches += 1
        self.nodes += nodes
        self.edges += edges
        self.feature_bytes += feature_bytes


#: A prepared contestant: does the work of the round with a number and returns how much it was.
Job = Callable[[int], WorkDone]
#: Makes a job from the options.
MakeJob = Callable[[Options], Job]
#: The numbers of nodes, of edges and, where there are features, of their bytes.
Counts = tuple[int, int] | tuple[int, int, int]


def each(batches: Iterable[Any], step: Callable[[Any], Counts]) -> Job:
    """Returns the job of doing a step with each of some batches, which are the same every round."""

    def round_(_: int) -> WorkDone:
        work = WorkDone()
        for batch in batches:
            work.add(*step(batch))
        return work

    return round_


def by_work(works: dict[str, MakeJob]) -> MakeJob:
    """Returns a job that does the work that the options name, of several by name."""

    def build(options: Options) -> Job:
        if options.work not in works:
            raise ValueError(f"{options.work} is not among {', '.join(works)}")
        return works[options.work](options)

    return build
