"""Runs PyG's benchmark scripts with PyG's loader and with ours in turns, and PyG's examples.

The scripts are those of a checkout of PyG, which the environment variable PYG_BATCHGNN_PYG_CHECKOUT
names. They run as they are; data sets are generated.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmark.pyg_scripts import examples
from benchmark.pyg_scripts.cases import CASES, GROUPS, Case
from benchmark.pyg_scripts.process import Side, run, why_absent
from benchmark.pyg_scripts.reports import Figure, figures
from benchmark.support.cli import RESULTS, Peers, add_peer_option, read_json, write_json
from benchmark.support.machine import describe
from benchmark.support.pyg_checkout import missing, pyg_checkout

RANKS = 2


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, and replaces in the stored result what was measured, script by script."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = parser.add_argument
    add("--groups", nargs="+", choices=GROUPS, default=list(GROUPS), help="folders of PyG's benchmarks")
    add("--scale", type=float, default=0.01, help="size of the graphs, as a share of the real ones")
    add("--threads", type=int, default=1)
    add("--rounds", type=int, default=2, help="runs of each script and side")
    add("--busy", action="store_true", help="the machine does other work: tables say so")
    add("--results", type=Path, default=RESULTS, help="folder for the JSON file")
    add_peer_option(parser)
    options = parser.parse_args(arguments)
    checkout = pyg_checkout()
    if checkout is None:
        parser.error(missing())
    peers = Peers(dict(options.peer))
    absent = {side.value: why for side in Side if (why := why_absent(side, peers.python(side.value)))}
    file = options.results / "pyg_scripts.json"

    def store(name: str, run: dict[str, Any]) -> None:
        runs = {**read_json(file).get("runs", {}), name: {**run, "busy": options.busy}}
        content = {
            "benchmark": "pyg_scripts",
            "machine": describe(),
            "when": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
            "options": {"scale": options.scale, "threads": options.threads, "rounds": options.rounds},
            "absent": absent,
            "runs": dict(sorted(runs.items(), key=lambda one: GROUPS.index(one[1]["group"]))),
        }
        write_json(file, content)

    for case in (one for one in CASES if one.group in options.groups):
        print(case.name, flush=True)
        sides = [side for side in Side if side.value not in absent]
        found = [
            measure(case, side, checkout, peers, options)
            for number in range(options.rounds)
            for side in (sides if number % 2 == 0 else sides[::-1])
        ]
        store(case.name, {"group": case.group, **collected(found)})
    if "examples" in options.groups:
        with tempfile.TemporaryDirectory() as folder:
            store("examples", {"group": "examples", "rows": examples.measure(checkout, Path(folder))})


def measure(
    case: Case, side: Side, checkout: Path, peers: Peers, options: argparse.Namespace
) -> tuple[Side, list[Figure] | str]:
    """Returns the figures that a script prints, or the last line of its error."""
    ranks = ["--backend", case.backend] if case.backend else []
    script = [str(checkout / case.script), *case.arguments]
    try:
        printed = run(
            side,
            ["--scale", str(options.scale), *ranks, *script],
            python=peers.python(side.value),
            threads=options.threads,
            ranks=RANKS if case.backend else 0,
        )
    except subprocess.CalledProcessError as error:
        why = error.stderr.strip().splitlines()[-1]
        print(f"  {side.value} failed: {why}", flush=True)
        return side, why
    return side, list(figures(printed))


def collected(found: Sequence[tuple[Side, list[Figure] | str]]) -> dict[str, Any]:
    """Returns the mean of each figure by side, and the errors of the sides that failed."""
    rows: dict[str, dict[str, Any]] = {}
    errors: dict[str, str] = {}
    values: dict[tuple[str, str], list[float]] = {}
    for side, printed in found:
        if isinstance(printed, str):
            errors[side.value] = printed
            continue
        for one in printed:
            values.setdefault((one.what, side.value), []).append(one.value)
            rows.setdefault(one.what, {"what": one.what, "is_rate": one.is_rate})
    for (what, side_name), own in values.items():
        rows[what][side_name] = fmean(own)
    return {"rows": list(rows.values()), "errors": errors}


if __name__ == "__main__":
    main()
