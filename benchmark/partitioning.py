"""Edge cut, balance, seconds and memory of partitions by policy, against METIS where installed.

Graphs of the package's generator (a number of nodes), folders of data sets or of benchmark graphs,
names of data sets, or mag-like-SCALE, a graph of several types like ogbn-mag. METIS gets the same
symmetric graph and the same constraints as "multilevel".
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmark.support import mag
from benchmark.support.cli import merged, new_parser, read_json, stamped, write_json
from benchmark.support.graphs import GraphFolder
from benchmark.support.machine import CACHE
from benchmark.support.meters import cpu_seconds, peak_bytes, release_free_memory, reset_peak, resident_bytes
from benchmark.support.ranks import Answer, Job, as_dataset
from benchmark.support.tables import MIB, Result, by, markdown, paragraph
from benchmark.support.world import RankError, World, summary
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import Dataset, GeneratorSpec, generate_folder, load_dataset
from pyg_batchgnn.ops import empty_cache
from pyg_batchgnn.partition import Metis, Multilevel, PolicyLike, partition_parts, report_partition

_MAG_LIKE = "mag-like-"
WORKER = "benchmark.partitioning"
#: By name: what is balanced, and how many times the mean a part gets at most.
CONSTRAINTS = {"nodes": {"nodes": 1.05}, "nodes, edges, train": {"nodes": 1.05, "edges": 1.05, "train": 1.05}}
#: By name on the command line: name in the table, policy, and whether it runs on several ranks.
SIDES = {
    "multilevel, one rank": ("multilevel", "multilevel", False),
    "multilevel": ("multilevel", "multilevel", True),
    "ldg": ("ldg", "ldg", True),
    "METIS": ("METIS", "metis", False),
}


# What a rank does


def cut(comm: Communicator, options: Answer) -> list[Answer]:
    """Cuts a graph for each case; its attributes are left where they are."""
    dataset = load_dataset(options["dataset"]).without_attributes()
    return [
        _cut(comm, dataset, _policy(options["policy"], case["balance"]), case["parts"])
        for case in options["cases"]
    ]


def _cut(comm: Communicator, dataset: Dataset, policy: PolicyLike, count: int) -> Answer:
    empty_cache()
    release_free_memory()
    before = resident_bytes()
    reset_peak()
    comm.barrier()
    begin, used = time.perf_counter(), cpu_seconds()
    parts = partition_parts(dataset, policy, count, comm=comm)
    wall, cpu, peak = time.perf_counter() - begin, cpu_seconds() - used, peak_bytes() - before
    report, worst = report_partition(parts, comm), dict[str, float]()
    for load in report.loads:  # of each load's worst node type
        worst[load.name] = max(worst.get(load.name, 1.0), load.balance)
    found = {"wall": wall, "cpu": cpu, "peak": peak, "nodes": dataset.num_nodes, "edges": dataset.num_edges}
    return {**found, "edge_cut": report.edge_cut, "balance": worst}


def _policy(name: str, balance: dict[str, float]) -> PolicyLike:
    return {"multilevel": Multilevel(balance), "metis": Metis(balance)}.get(name, name)


JOBS: dict[str, Job] = {"cut": cut}


# Measuring


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures every graph, number of parts and policy. Figures of other cases stay."""
    parser = new_parser(__doc__)
    add, constraints = parser.add_argument, list(CONSTRAINTS)
    add("--graphs", nargs="+", default=["100000", "1000000"], help="numbers of nodes, folders or names")
    add("--parts", type=int, nargs="+", default=[2, 4, 8, 16])
    add("--ranks", type=int, default=4, help="ranks of the policies over ranks")
    add("--sides", nargs="+", choices=SIDES, default=list(SIDES), help="policies and peers")
    add("--constraints", nargs="+", choices=constraints, default=constraints)
    add("--rounds", type=int, default=3, help="turns of the sides; the middle one's seconds count")
    busy = "the machine does other work: cuts, balance and memory are shown, seconds are not"
    add("--busy", action="store_true", help=busy)
    options = parser.parse_args(arguments)
    file = options.results / "partitioning.json"
    cases = [(parts, constraints) for parts in options.parts for constraints in options.constraints]
    for graph in options.graphs:
        dataset = _data_name(graph)
        common = {"graph": graph if graph.isdigit() else Path(graph).name, "busy": options.busy}
        sides = [SIDES[name] for name in options.sides]
        runs = [
            [_measure(dataset, policy, options.ranks if many else 1, cases) for _, policy, many in sides]
            for _ in range(options.rounds)
        ]
        for (side, *_), of_side in zip(sides, zip(*runs, strict=True), strict=True):
            shared = {**common, "side": side, "rounds": options.rounds}
            series = [{**shared, **_median(of_case)} for of_case in zip(*of_side, strict=True)]
            stored = read_json(file).get("partitioning", [])
            write_json(file, stamped("partitioning", partitioning=merged(stored, series, _case)))


def _data_name(graph: str) -> str:
    """Returns the name or the folder by which `load_dataset` knows a graph, which is made first."""
    if graph.isdigit():
        folder = CACHE / "growing" / graph
        if not folder.is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            generate_folder(GeneratorSpec(nodes=int(graph), features=16), folder)
        return str(folder)
    if graph.startswith(_MAG_LIKE):
        made = mag.generate(CACHE / "graphs" / graph, float(graph.removeprefix(_MAG_LIKE)))
        return str(as_dataset(made))
    if (Path(graph) / "colptr.npy").is_file():
        return str(as_dataset(GraphFolder.open(Path(graph))))
    return graph


def _case(one: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(one[name] for name in ("graph", "parts", "constraints", "side", "ranks"))


def _measure(dataset: str, policy: str, ranks: int, cases: list[tuple[int, str]]) -> list[dict[str, Any]]:
    """Returns what results keep of each number of parts and constraints, which the same processes
    measure in turn; nothing where the side is not installed."""
    wanted = [{"parts": parts, "balance": CONSTRAINTS[constraints]} for parts, constraints in cases]
    order = {"dataset": dataset, "policy": policy, "cases": wanted}
    try:
        answers = World(ranks, worker=WORKER, one_host=True).run("cut", order)
    except RankError as error:
        if "needs the METIS library" not in str(error):
            raise
        print(f"  {policy}: not installed", flush=True)
        return []
    found = []
    for (parts, constraints), of_ranks in zip(cases, zip(*answers, strict=True), strict=True):
        one = {"parts": parts, "constraints": constraints, **summary(of_ranks)}
        print(
            f"  {Path(dataset).name}, {parts} parts, {constraints}: {policy} on {ranks}: cut "
            f"{one['edge_cut']:.4f}, {one['wall']:.1f} s",
            flush=True,
        )
        found.append(one)
    return found


def _median(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    ordered = sorted(runs, key=lambda run: run["wall"])
    return {**ordered[len(ordered) // 2], "peak": max(run["peak"] for run in runs)}


# Tables

_LOADS = ("nodes", "edges", "train")
#: The nodes of the graphs for which the limit holds, and the ratio to METIS that it allows.
_LARGE, _FAR = 100_000, 1.2


def table(result: Result) -> str:
    """Returns one line per graph, number of parts, constraints and side."""
    cases = list(_cases(result))
    header = ["graph", "parts", "balanced", "policy, ranks", "edge cut", "over METIS"]
    header += [*(f"{load}, max / mean" for load in _LOADS), "seconds", "over METIS", "CPU seconds"]
    header += ["peak, MiB"]
    lines = [_line(one, sides) for sides in cases for one in sides]
    return f"{markdown(header, lines)}\n\n{paragraph(_in_short(cases))}"


def _cases(result: Result) -> Iterator[list[Result]]:
    """Yields the sides of each graph, number of parts and constraints, small graphs first."""
    order = ("multilevel", "ldg", "METIS")
    ordered = sorted(
        result["partitioning"],
        key=lambda one: (one["nodes"], *_case(one)[:3], order.index(one["side"]), one["ranks"]),
    )
    for _, of_graph in by(ordered, "graph"):
        for _, of_parts in by(of_graph, "parts"):
            for _, sides in by(of_parts, "constraints"):
                yield sides


def _in_short(cases: list[list[Result]]) -> str:
    """Returns the ratios to METIS of each side on large graphs, and the cases far above it."""
    cases, said, far = [sides for sides in cases if sides[0]["nodes"] >= _LARGE], [], []
    for name in dict.fromkeys(_name(one) for sides in cases for one in sides if one["side"] != "METIS"):
        found = [(ratio, sides[0]) for sides in cases if (ratio := _ratio(sides, name, "edge_cut"))]
        if not found:
            continue
        mean = math.exp(sum(math.log(ratio) for ratio, _ in found) / len(found))
        said.append(f"{name}: {mean:.3f}, at most {max(ratio for ratio, _ in found):.3f}")
        if name.startswith("multilevel"):
            far += [
                f"{name} on {_graph(one)}, {one['parts']} parts, {one['constraints']} ({ratio:.3f})"
                for ratio, one in found
                if ratio > _FAR
            ]
    above = f" Above {_FAR}: {'; '.join(far)}." if far else f" multilevel is nowhere above {_FAR}."
    return (
        f"Graphs of at least {_LARGE:,} nodes: edge cut over that of METIS, geometric mean over graphs, "
        f"parts and constraints. "
        f"{'; '.join(said)}.{above}"
    )


def _ratio(sides: list[Result], name: str, figure: str) -> float | None:
    """Returns a figure of a side over that of METIS; no seconds of a busy machine."""
    known = [one for one in sides if not (one["busy"] and figure == "wall")]
    metis = next((one[figure] for one in known if one["side"] == "METIS"), None)
    own = next((one[figure] for one in known if _name(one) == name), None)
    return own / metis if own is not None and metis else None


def _name(one: Result) -> str:
    return f"{one['side']}, {one['ranks']}"


def _graph(one: Result) -> str:
    graph = str(one["graph"])
    return f"{int(graph):,}" if graph.isdigit() else graph


def _line(one: Result, sides: list[Result]) -> list[str]:
    balance, seconds = one["balance"], None if one["busy"] else one["wall"]
    over_cut, over_seconds = (_ratio(sides, _name(one), figure) for figure in ("edge_cut", "wall"))
    return [
        _graph(one),
        str(one["parts"]),
        one["constraints"],
        _name(one),
        f"{100 * one['edge_cut']:.2f} %",
        f"{over_cut:.3f}" if over_cut else "-",
        *(f"{balance[load]:.3f}" if load in balance else "-" for load in _LOADS),
        f"{seconds:.1f}" if seconds else "-",
        f"{over_seconds:.2f}" if over_seconds else "-",
        f"{one['cpu']:.1f}" if seconds else "-",
        f"{one['peak'] / MIB:,.0f}" if one["peak"] else "-",
    ]
