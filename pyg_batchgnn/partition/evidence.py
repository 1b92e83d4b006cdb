"""The figures of the benchmarks `partitioning` and `partition_traffic` that advice rests on."""

from __future__ import annotations

from dataclasses import dataclass

#: The nodes of a large graph.
_LARGE = 100_000

#: METIS's peak for each stored edge.
METIS_BYTES = 85

#: The edges and rows of generated graphs of 100,000 nodes in four parts.
ON_FOUR_PARTS = (
    "--policy multilevel cuts the fewest within the memory bound: of generated graphs of 100,000 nodes "
    "in four parts it cut 16 % where ldg cut 27 % and random 75 %. With training nodes all over the graph "
    "and one minibatch at a time, an epoch then fetched 35 % of the rows that it fetches on random parts; on "
    "parts of ldg it fetched 51 %."
)


@dataclass(frozen=True)
class CutEvidence:
    """The edge cuts on graphs of some sizes, as geometric means over graphs, parts and constraints.

    Attributes:
        graphs: the sizes, in words.
        over_stream: multilevel on four ranks over ldg.
        metis: METIS over multilevel on four ranks.
        alone: multilevel in one process over four ranks.
    """

    graphs: str
    over_stream: float
    metis: float
    alone: float

    @classmethod
    def of(cls, nodes: int) -> CutEvidence:
        """Returns the figures of graphs like one of ``nodes`` nodes."""
        if nodes >= _LARGE:
            return cls("of 100,000 nodes and more", 0.49, 1.04, 0.99)
        return cls("of fewer than 100,000 nodes", 0.42, 1.05, 0.95)

    def after_stream(self, edge_cut: float) -> str:
        """Returns what to expect of multilevel where a stream has cut a share of the edges."""
        return (
            f"--policy multilevel cut {self.over_stream:.2f} times as many as ldg on graphs {self.graphs}, "
            f"so about {edge_cut * self.over_stream:.0%} are to be expected. An epoch then fetched 0.7 to "
            f"0.9 times the rows."
        )

    def of_one_process(self) -> str:
        """Returns a sentence on cutting in one process; empty where it is no better."""
        if self.alone > 0.97:
            return ""
        return (
            f"A graph this small is best cut by one process: alone, multilevel cut {self.alone:.2f} times as "
            f"many as on four ranks."
        )

    def of_metis(self, size: str) -> str:
        """Returns what METIS offers where its library is installed, taking memory of ``size``."""
        return (
            f"--policy metis, which is installed, cut {self.metis:.2f} times as many as multilevel on four "
            f"ranks; it takes about {size} on rank 0."
        )

    def beside_metis(self, size: str) -> str:
        """Returns what multilevel offers where METIS takes memory of ``size``."""
        return (
            f"METIS takes about {size} on rank 0, which holds the whole graph. On graphs {self.graphs} it "
            f"cut {self.metis:.2f} times as many edges as --policy multilevel, where no rank "
            f"takes more than twice its share and 256 MiB."
        )
