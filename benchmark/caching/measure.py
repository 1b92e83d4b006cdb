"""The aggregation cache of BatchGNN: what it costs to make, and epochs with it and without.

Ranks are processes of this machine with one thread each, every one a host of its own. Parts:

        initialisation  seconds, bytes and peak memory of making the cache on 1, 2 and 4 ranks
    preparation     an epoch's minibatches on 4 ranks over the network: seconds, rows, bytes (root)
    training        an epoch on 2 ranks over loopback
    accuracy        test accuracy of the main job on real graphs, with and without

Every setting (model, with or without, B) that is measured replaces that setting in the results, so
that a long run can be done in pieces: --models, --macrobatches, --ranks, --datasets.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmark.caching import accuracy as caching_accuracy
from benchmark.ranks.workload import RankWorkload, add_workload_options
from benchmark.support.cli import write_json
from benchmark.support.machine import describe
from benchmark.support.world import LOOPBACK, World

PARTS = ("initialisation", "preparation", "training", "accuracy")
MODELS = ("sage", "gcn", "gin")
WORKER = "benchmark.caching.worker"
Entry = dict[str, Any]


def initialisation(bench: RankWorkload, chosen: argparse.Namespace) -> Iterator[Entry]:
    """Measures what the paper's table A3 has."""
    for ranks in chosen.ranks:
        bench.partition(ranks)
        for _ in range(bench.rounds):
            options = {"models": chosen.models, "memory_budget": chosen.memory_budget}
            of_ranks = bench.job(World(ranks, worker=WORKER), "initialisation", **options)
            for model in chosen.models:
                entry = {"ranks": ranks, "model": model, "of_ranks": [one[model] for one in of_ranks]}
                print(
                    f"  {ranks} ranks, {model}: {max(one['wall'] for one in entry['of_ranks']):.2f} s",
                    flush=True,
                )
                yield entry


def preparation(bench: RankWorkload, chosen: argparse.Namespace) -> Iterator[Entry]:
    """Measures what table 5 has, and the preparation column of tables A1 and A2."""
    yield from _settings(bench, chosen, "preparation", 4, chosen.network)


def training(bench: RankWorkload, chosen: argparse.Namespace) -> Iterator[Entry]:
    """Measures what tables A1 and A2 have."""
    yield from _settings(bench, chosen, "training", 2, LOOPBACK)


def _settings(
    bench: RankWorkload, chosen: argparse.Namespace, job: str, ranks: int, network: str
) -> Iterator[Entry]:
    """Measures with and without the cache; they take turns in going first."""
    bench.partition(ranks)
    for number, model, size in itertools.product(range(bench.rounds), chosen.models, chosen.macrobatches):
        settings = [(model, cached, size) for cached in ((False, True) if number % 2 else (True, False))]
        options = {"settings": settings, "memory_budget": chosen.memory_budget, "epochs": 2}
        with World(ranks, network, worker=WORKER).standing() as world:
            answers = bench.job(world, job, **options)
        for at, (_, cached, _) in enumerate(settings):
            of_ranks = [answer[at] for answer in answers]
            way = "with" if cached else "without"
            wall = max(one["wall"] for one in of_ranks)
            print(f"  {model}, B = {size or 'all'}, {way}: {wall:.2f} s", flush=True)
            yield {
                "model": model,
                "macrobatch": size,
                "cached": cached,
                "of_ranks": of_ranks,
                "network": network,
            }


MEASURED = {one.__name__: one for one in (initialisation, preparation, training)}
#: What tells the settings of a part apart.
KEYS = ("ranks", "model", "macrobatch", "cached")


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = result.add_argument
    add_workload_options(add)
    add("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="what to measure (default: all)")
    add("--models", nargs="+", choices=MODELS, default=list(MODELS))
    add("--macrobatches", nargs="+", type=int, default=[1, 0], help="B, 0 for all (default: 1 0)")
    add("--ranks", nargs="+", type=int, default=[1, 2, 4], help="of initialisation (default: 1 2 4)")
    add("--memory-budget", type=int, help="bytes of a piece in initialisation (default: the cache's own)")
    add("--datasets", nargs="+", default=list(caching_accuracy.TASKS), help="of accuracy")
    add("--repeats", type=int, default=5, help="paired runs of accuracy (default: 5)")
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures the parts; keeps the results of settings that are not measured again."""
    chosen = parser().parse_args(arguments)
    if "accuracy" in chosen.parts:
        caching_accuracy.measure(chosen.models, chosen.datasets, chosen.repeats, chosen.results)
    parts = [part for part in chosen.parts if part in MEASURED]
    if not parts:
        return
    bench = RankWorkload.parse(chosen)
    graph = bench.graph
    path = chosen.results / f"caching-{graph.describe()['name']}.json"
    for part in parts:
        print(part, flush=True)
        series: list[Entry] = []
        for entry in MEASURED[part](bench, chosen):
            series.append(entry)
            _store(path, bench, part, series)


def _store(path: Path, bench: RankWorkload, part: str, series: list[Entry]) -> None:
    """Stores what was measured so far, in place of older results of the same settings."""
    content = json.loads(path.read_text()) if path.is_file() else {"parts": {}}
    known = content["parts"].get(part, {"series": []})["series"]
    measured = {_key(one) for one in series}
    content["parts"][part] = {
        "series": [one for one in known if _key(one) not in measured] + series,
        "options": {"fanouts": bench.fanouts, "batch_size": bench.batch_size, "seeds": bench.seeds},
        "when": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
    }
    content |= {"benchmark": "caching", "graph": bench.graph.describe(), "machine": describe()}
    write_json(path, content)


def _key(entry: Entry) -> tuple[Any, ...]:
    return tuple(entry.get(name) for name in KEYS)


if __name__ == "__main__":
    main()
