"""Edge cut, balance, seconds and memory by policy, against METIS and KaMinPar where installed.

Graphs of the package's generator (a number of nodes), folders of data sets or of benchmark graphs,
names of data sets, or mag-like-SCALE, a graph of several types like ogbn-mag. METIS gets the same
symmetric graph and the same constraints as "multilevel". KaMinPar balances nodes alone.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmark.growth.measure import graph_folder
from benchmark.ranks.workload import as_dataset
from benchmark.support import mag
from benchmark.support.cli import RESULTS, read_json, write_json
from benchmark.support.graphs import GraphFolder
from benchmark.support.machine import describe
from benchmark.support.native import CACHE
from benchmark.support.stored import merged
from benchmark.support.world import RankError, World

_MAG_LIKE = "mag-like-"
WORKER = "benchmark.partitioning.worker"
#: By name: what is balanced, and how many times the mean a part gets at most.
CONSTRAINTS = {
    "nodes": {"nodes": 1.05},
    "nodes, edges, train": {"nodes": 1.05, "edges": 1.05, "train": 1.05},
}


SIDES = ("multilevel, one rank", "multilevel", "ldg", "METIS", "KaMinPar")


def contestants(sides: Sequence[str], ranks: int) -> list[tuple[str, str, int]]:
    """Returns name, policy and ranks of each of some sides."""
    found = {
        "multilevel, one rank": ("multilevel", "multilevel", 1),
        "multilevel": ("multilevel", "multilevel", ranks),
        "ldg": ("ldg", "ldg", ranks),
        "METIS": ("METIS", "metis", 1),
    }
    if importlib.util.find_spec("kaminpar"):
        found["KaMinPar"] = ("KaMinPar", "kaminpar", 1)
    return [found[side] for side in sides if side in found]


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = result.add_argument
    add("--graphs", nargs="+", default=["100000", "1000000"], help="numbers of nodes, folders or names")
    add("--parts", type=int, nargs="+", default=[2, 4, 8, 16])
    add("--ranks", type=int, default=4, help="ranks of the policies over ranks")
    add("--sides", nargs="+", choices=SIDES, default=SIDES, help="policies and peers")
    add("--constraints", nargs="+", choices=CONSTRAINTS, default=list(CONSTRAINTS))
    add(
        "--rounds",
        type=int,
        default=3,
        help="how often the sides take turns; seconds are the middle one's",
    )
    busy = "the machine does other work: cuts, balance and memory are shown, seconds are not"
    add("--busy", action="store_true", help=busy)
    add("--results", type=Path, default=RESULTS, help="folder for the JSON file")
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures every graph, number of parts and policy. Figures of other cases stay."""
    options = parser().parse_args(arguments)
    file = options.results / "partitioning.json"
    cases = [(parts, constraints) for parts in options.parts for constraints in options.constraints]
    for graph in options.graphs:
        dataset = _data_name(graph)
        common = {"graph": graph if graph.isdigit() else Path(graph).name, "busy": options.busy}
        sides = contestants(options.sides, options.ranks)
        runs = [[_measure(dataset, *one[1:], cases) for one in sides] for _ in range(options.rounds)]
        for (side, _, ranks), of_side in zip(sides, zip(*runs, strict=True), strict=True):
            found = [_median(of_case) for of_case in zip(*of_side, strict=True)]
            shared = {**common, "side": side, "ranks": ranks, "rounds": options.rounds}
            _store(file, [{**shared, **one} for one in found])


def _data_name(graph: str) -> str:
    """Returns the name or the folder by which `load_dataset` knows a graph, which is made first."""
    if graph.isdigit():
        return str(graph_folder(int(graph)))
    if graph.startswith(_MAG_LIKE):
        made = mag.generate(CACHE / "graphs" / graph, float(graph.removeprefix(_MAG_LIKE)))
        return str(as_dataset(made))
    if (Path(graph) / "colptr.npy").is_file():
        return str(as_dataset(GraphFolder.open(Path(graph))))
    return graph


def _store(file: Path, series: list[dict[str, Any]]) -> None:
    """Adds figures to the stored ones, in the places of those of the same cases."""
    stored = read_json(file).get("partitioning", [])
    content = {
        "benchmark": "partitioning",
        "partitioning": merged(stored, series, _case),
        "machine": describe(),
        "when": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
    }
    write_json(file, content)


def _case(one: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(one[name] for name in ("graph", "parts", "constraints", "side", "ranks"))


def _measure(dataset: str, policy: str, ranks: int, cases: list[tuple[int, str]]) -> list[dict[str, Any]]:
    """Returns the answers of all ranks for each number of parts and constraints, which the same
    processes measure in turn; nothing where the side is not installed."""
    job = "kaminpar" if policy == "kaminpar" else "cut"
    wanted = [{"parts": parts, "balance": CONSTRAINTS[constraints]} for parts, constraints in cases]
    try:
        answers = World(ranks, worker=WORKER, one_host=True).run(
            job, {"dataset": dataset, "policy": policy, "cases": wanted}
        )
    except RankError as error:
        if "needs the METIS library" not in str(error):
            raise
        print(f"  {policy}: not installed", flush=True)
        return []
    found = []
    for (parts, constraints), of_ranks in zip(cases, zip(*answers, strict=True), strict=True):
        print(
            f"  {Path(dataset).name}, {parts} parts, {constraints}: {policy} on {ranks}: cut "
            f"{of_ranks[0]['edge_cut']:.4f}, {max(one['wall'] for one in of_ranks):.1f} s",
            flush=True,
        )
        found.append({"parts": parts, "constraints": constraints, "of_ranks": of_ranks})
    return found


def _median(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns the run of median seconds, with the highest peak that each rank had in any run."""
    ordered = sorted(runs, key=lambda run: max(one["wall"] for one in run["of_ranks"]))
    chosen = ordered[len(ordered) // 2]
    peaks = [
        max(one["peak"] for one in of_rank)
        for of_rank in zip(*(run["of_ranks"] for run in runs), strict=True)
    ]
    of_ranks = [{**one, "peak": peak} for one, peak in zip(chosen["of_ranks"], peaks, strict=True)]
    return {**chosen, "of_ranks": of_ranks}


if __name__ == "__main__":
    main()
