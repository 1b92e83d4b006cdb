"""A plan as a table, and as files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.filesize import decimal
from rich.table import Table

from pyg_batchgnn.planner.advice import aggregation_advice
from pyg_batchgnn.planner.machine import Machine, Network
from pyg_batchgnn.planner.search import best
from pyg_batchgnn.planner.setting import Prediction, Setting
from pyg_batchgnn.planner.workload import Probe, Workload

#: Lines of the table.
_LINES = 16


@dataclass(frozen=True, eq=False)
class Plan:
    """What was predicted.

    Attributes:
        workload: what is to be trained.
        ranks: on how many.
        machine: of a rank.
        network: between hosts.
        probes: what minibatches are like, by policy.
        predictions: the fastest first.
    """

    workload: Workload
    ranks: int
    machine: Machine
    network: Network
    probes: dict[str, Probe]
    predictions: list[Prediction]

    @property
    def best(self) -> Prediction | None:
        """The setting that is recommended; None where none fits in memory."""
        return best(self.predictions)

    def advice(self) -> list[str]:
        """What to do, in sentences."""
        if (found := self.best) is None:
            least = min(self.predictions, key=lambda one: one.memory)
            return [
                f"Nothing fits: {describe(least.setting)} needs {decimal(int(least.memory))} a rank; "
                f"use more ranks, a smaller batch or smaller fanouts."
            ]
        lines = [
            f"Recommended: {describe(found.setting)}: {found.epoch:.2f} s an epoch, of which "
            f"{found.preparation:.2f} s prepare minibatches; {decimal(int(found.memory))} a rank.",
            f"  batchgnn train {' '.join(options(found.setting))}",
        ]
        return lines + aggregation_advice(self.predictions, found)

    def table(self, lines: int = _LINES) -> Table:
        """The fastest settings."""
        table = Table(
            title=f"{self.workload.name} on {self.ranks} ranks: an epoch of a rank",
            title_justify="left",
            box=SIMPLE,
            padding=(0, 1, 0, 0),
            caption="+h: hybrid; agg: aggregation cache",
        )
        for name in ("B", "F", "partition", "cache"):
            table.add_column(name, no_wrap=True)
        for name in ("rounds", "rows", "MB", "memory", "prep s", "epoch s"):
            table.add_column(name, justify="right", no_wrap=True)
        for one in self.predictions[:lines]:
            setting = one.setting
            table.add_row(
                str(setting.macrobatch or "all"),
                str(setting.fetch or "B"),
                Path(setting.policy).name + ("+h" if setting.hybrid else ""),
                _kept(setting),
                f"{one.rounds.topology + one.rounds.features + one.rounds.lookup}",
                f"{one.rows:,.0f}",
                f"{(one.topology_bytes + one.feature_bytes) / 1e6:,.1f}",
                decimal(int(one.memory)) + ("" if one.fits else " !"),
                f"{one.preparation:.2f}",
                f"{one.epoch:.2f}",
            )
        return table

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        recommended = self.best
        return {
            "workload": asdict(self.workload),
            "ranks": self.ranks,
            "machine": asdict(self.machine),
            "network": asdict(self.network),
            "minibatches": {policy: minibatch_figures(probe) for policy, probe in self.probes.items()},
            "recommended": None if recommended is None else recommended.as_dict(),
            "predictions": [one.as_dict() for one in self.predictions],
        }

    def write(self, folder: Path) -> list[Path]:
        """Writes ``plan.json`` and ``plan.png``; returns both."""
        from pyg_batchgnn.planner.plot import plot_plan

        folder.mkdir(parents=True, exist_ok=True)
        numbers, picture = folder / "plan.json", folder / "plan.png"
        numbers.write_text(json.dumps(self.as_dict(), indent=1) + "\n")
        plot_plan(self, picture)
        return [numbers, picture]


def minibatch_figures(probe: Probe) -> dict[str, float]:
    """What the probe saw of minibatches."""
    depth = probe.full
    return {
        "nodes": depth.nodes,
        "edges": depth.edges,
        "remote_nodes": depth.remote.distinct(1),
        "without_last_hop": probe.inner.nodes,
    }


def _kept(setting: Setting) -> str:
    """Its caches, in short."""
    words = ["agg"] if setting.aggregation else []
    words += [decimal(setting.feature_cache)] if setting.feature_cache else []
    return " ".join(words)


def describe(setting: Setting) -> str:
    """A setting in words."""
    size = "all" if setting.macrobatch == 0 else str(setting.macrobatch)
    words = [f"B = {size}"]
    words += [f"F = {setting.fetch}"] if setting.fetch else []
    words += [setting.policy]
    words += ["hybrid"] if setting.hybrid else []
    words += ["aggregation cache"] if setting.aggregation else []
    words += [f"feature cache {decimal(setting.feature_cache)}"] if setting.feature_cache else []
    return ", ".join(words)


def options(setting: Setting) -> Sequence[str]:
    """A setting on the command line of ``batchgnn train``."""
    size = str(setting.macrobatch or 2**20)
    words = ["--macrobatch", size, "--fetch", str(setting.fetch or size), "--partition", setting.policy]
    words += ["--hybrid"] if setting.hybrid else []
    words += ["--cache", "aggregation"] if setting.aggregation else []
    words += ["--feature-cache", str(setting.feature_cache)] if setting.feature_cache else []
    return words
