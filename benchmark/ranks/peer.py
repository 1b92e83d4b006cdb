"""Epochs against DistDGL on two hosts whose links have no limit; owners are random on both sides.

The two sides take turns. The second epoch of each counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmark.ranks.workload import RankWorkload
from benchmark.support import namespaces
from benchmark.support.dist_dgl import DistDgl
from benchmark.support.tables import size_name
from benchmark.support.world import World

Answer = dict[str, Any]
RANKS, EPOCHS = 2, 2


@dataclass(frozen=True)
class DistDglWorkload:
    """DistDGL's side of a workload.

    Attributes:
        bench: the workload.
        ranks: hosts.
    """

    bench: RankWorkload
    ranks: int

    def run(self, job: str, network: str) -> list[Answer]:
        """Returns what each trainer saw of the second epoch of a job.

        Args:
            job: "training" or "preparation".
            network: the rate of the hosts' links.
        """
        bench, peer = self.bench, DistDgl(self.bench.dgl, self.ranks)
        parts = peer.parts(bench.name, {"graph": str(bench.graph.path)})
        options = {
            **{"fanouts": bench.fanouts, "batch_size": bench.batch_size, "seeds": bench.seeds},
            **{"hidden": bench.hidden, "classes": bench.graph.num_classes, "epochs": EPOCHS},
        }
        with namespaces.hosts(self.ranks, network):
            return peer.run(job, parts, options)


def dist_dgl(bench: RankWorkload, network: str) -> list[Answer]:  # noqa: ARG001
    """Trains SAGE: ours at B = 8 and all, and DistDGL."""

    def ours(world: World, size: int) -> list[Answer]:
        return bench.job(world, "training", macrobatch=size, epochs=EPOCHS)

    return _in_turns(bench, "training", ours, (8, 0))


def dist_dgl_preparation(bench: RankWorkload, network: str) -> list[Answer]:  # noqa: ARG001
    """Samples minibatches and fetches their features: ours at B = 1, 8 and all, and DistDGL."""

    def ours(world: World, size: int) -> list[Answer]:
        return [one[0] for one in bench.job(world, "preparation", macrobatches=[size], epochs=EPOCHS)]

    return _in_turns(bench, "preparation", ours, (1, 8, 0))


def _in_turns(
    bench: RankWorkload, job: str, ours: Callable[[World, int], list[Answer]], sizes: tuple[int, ...]
) -> list[Answer]:
    """Returns what DistDGL did of a job in each round, and ours at some macrobatch sizes."""
    found = []
    bench.partition(RANKS)
    for number in range(bench.rounds):
        answers = {"DistDGL": DistDglWorkload(bench, RANKS).run(job, namespaces.UNLIMITED)}
        with World(RANKS, namespaces.UNLIMITED).standing() as world:
            answers |= {f"B = {size_name(size)}": ours(world, size) for size in sizes}
        for setting, of_ranks in answers.items():
            found.append({"round": number, "setting": setting, "of_ranks": of_ranks})
            print(f"  {setting}: {max(one['wall'] for one in of_ranks):.2f} s", flush=True)
    return found
