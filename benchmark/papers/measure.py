"""The settings of the publications that no other benchmark runs, at the scale of this machine.

Ranks are hosts in network namespaces (needs root; see benchmark/ranks.py). One thread per rank.
Parts:

    p3          2 layers of 32 columns, fanout 25, 10, batch 1,000 (BatchGNN, table 2)
    distdglv2   3 layers of 256 columns, fanout 15, 10, 5, batch 1,000 (BatchGNN, table 3)
    hybrid      minibatches one by one, topology in parts or on every rank (FastSample, figure 6)
    partitions  rows fetched and epochs by partition (the ablation of DistDGL)
    update      the fused update of a SAGE layer alone, against torch's (DistGNN-MB, section 4.3)

`python -m benchmark report` writes docs/papers.md from this file's results and those of the other
benchmarks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F

from benchmark.networks.recipe import DROPOUT
from benchmark.support.cli import write_part
from benchmark.support.meters import in_turns
from benchmark.support.ranks import Answer, Measured, RankWorkload, workload_parser
from benchmark.support.tables import typical
from pyg_batchgnn import ops

RANKS = 4
#: Macrobatch sizes by their names; 0 is all minibatches of an epoch.
SIZES = {"B = 1": 1, "B = all": 0}
POLICIES = ("random", "ldg", "multilevel")
#: The rows and columns of the update: those of the second layer of a minibatch of products.
UPDATE_ROWS, UPDATE_COLUMNS, UPDATE_ROUNDS = 140_000, 256, 9


def p3(bench: RankWorkload) -> Iterator[Answer]:
    return _epochs(replace(bench, fanouts=[25, 10], hidden=32, batch_size=1000))


def distdglv2(bench: RankWorkload) -> Iterator[Answer]:
    return _epochs(replace(bench, fanouts=[15, 10, 5], hidden=256, batch_size=1000))


def _epochs(bench: RankWorkload) -> Iterator[Answer]:
    for number in range(bench.rounds):
        with bench.world(RANKS) as world:
            for setting, size in SIZES.items():
                about = {"round": number, "setting": setting}
                yield bench.entry(world, "training", about, macrobatch=size, replace=True)


def hybrid(bench: RankWorkload) -> Iterator[Answer]:
    """Prepares and trains an epoch with the topology in parts and on every rank."""
    for number in range(bench.rounds):
        with bench.world(RANKS) as world:
            for setting, whole in (("vanilla", False), ("hybrid", True)):
                for what, job in (("sampling and features", "preparation"), ("training", "training")):
                    about = {"round": number, "setting": f"{setting}, {what}"}
                    yield bench.entry(world, job, about, macrobatch=1, hybrid=whole, replace=True)


def partitions(bench: RankWorkload) -> Iterator[Answer]:
    """Trains with minibatches one by one, on partitions of several policies."""
    folders = {policy: bench.partition(RANKS, policy) for policy in POLICIES}
    for number in range(bench.rounds):
        with bench.world(RANKS) as world:
            for policy, folder in folders.items():
                about = {"round": number, "setting": policy}
                chosen = {"macrobatch": 1, "partition": folder, "replace": True}
                yield bench.entry(world, "training", about, **chosen)


def update(bench: RankWorkload) -> Iterator[Answer]:  # noqa: ARG001
    """Times a product with ReLU and dropout on one thread: fused, and torch's."""
    torch.set_num_threads(1)
    x = torch.randn(UPDATE_ROWS, UPDATE_COLUMNS)
    weight, bias = torch.randn(UPDATE_COLUMNS, UPDATE_COLUMNS) / 16, torch.randn(UPDATE_COLUMNS)
    sides: dict[str, Callable[[], object]] = {
        "ours": lambda: ops.linear([x], [weight], bias, relu=True, drop=DROPOUT, out_dtype=x.dtype),
        "torch": lambda: F.dropout(F.linear(x, weight, bias).relu_(), DROPOUT),
    }
    with torch.no_grad():
        taken = in_turns(sides, UPDATE_ROUNDS)
    for name, seconds in taken.items():
        print(f"  {name}: {typical(seconds):.4f} s", flush=True)
        yield {"setting": name, "wall": typical(seconds)}


PARTS: dict[str, Measured] = {one.__name__: one for one in (p3, distdglv2, hybrid, partitions, update)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures the parts; keeps the results of parts that are not measured again."""
    parser = workload_parser(__doc__, PARTS)
    busy = "the machine does other work: counts are shown, seconds are not"
    parser.add_argument("--busy", action="store_true", help=busy)
    options = parser.parse_args(arguments)
    bench = RankWorkload.parse(options)
    about = {"network": bench.network, "graph": bench.graph.describe(), "rounds": bench.rounds}
    for part in options.parts:
        print(part, flush=True)
        series = [{**one, "busy": options.busy} for one in PARTS[part](bench)]
        write_part(options.results / "papers.json", part, series, None, about)
