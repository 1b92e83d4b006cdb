"""A plan as a table, as sentences and as files."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.filesize import decimal
from rich.table import Table

from pyg_batchgnn.planner.advice import aggregation_advice, historical_advice
from pyg_batchgnn.planner.historical import HistoricalPrediction
from pyg_batchgnn.planner.machine import PlannerMachine, PlannerNetwork
from pyg_batchgnn.planner.search import best
from pyg_batchgnn.planner.setting import Prediction
from pyg_batchgnn.planner.wording import describe, describe_caches, options
from pyg_batchgnn.planner.workload import PlannerProbe, Workload

#: The most lines of the table.
_LINES = 16


@dataclass(frozen=True, eq=False)
class Plan:
    """Predictions for many settings.

    Attributes:
        workload: what is to be trained.
        ranks: the number of ranks.
        machine: the machine of one rank.
        network: the network between hosts.
        probes: what was found out about minibatches, by policy.
        predictions: the fastest first.
        historical: an epoch with historical embeddings at their default settings, by policy; empty
            where they are not possible.
    """

    workload: Workload
    ranks: int
    machine: PlannerMachine
    network: PlannerNetwork
    probes: dict[str, PlannerProbe]
    predictions: list[Prediction]
    historical: dict[str, HistoricalPrediction] = field(default_factory=dict)

    @property
    def best(self) -> Prediction | None:
        """The setting that is recommended, or None where none fits in memory."""
        return best(self.predictions)

    def advice(self, command: Sequence[str] = ("batchgnn", "train")) -> list[str]:
        """Returns sentences that recommend a setting and say whether a cache pays off.

        Args:
            command: the words of the command that trains, which gets the options of the setting and
                of the schedule, and the type of the training nodes if the graph has named types.
        """
        if (found := self.best) is None:
            least = min(self.predictions, key=lambda one: one.memory)
            return [
                f"Nothing fits: {describe(least.setting)} needs {decimal(int(least.memory))} per rank; "
                f"use more ranks, a smaller batch or smaller fanouts."
            ]
        work = self.workload
        node_type = ["--node-type", work.types[work.seed_type].name] if work.has_names else []
        words = [*command, *node_type, *options(found.setting, self.ranks, work.schedule)]
        lines = [
            f"Recommended: {describe(found.setting)}: {found.epoch:.2f} s per epoch, of which "
            f"{found.preparation:.2f} s prepare minibatches; {decimal(int(found.memory))} per rank.",
            f"  {shlex.join(words)}",
        ]
        lines += aggregation_advice(self.predictions, found)
        return lines + historical_advice(self.historical, found)

    def table(self, lines: int = _LINES) -> Table:
        """Returns a table of the fastest settings."""
        table = Table(
            title=f"{self.workload.name} on {self.ranks} ranks: one epoch of one rank",
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
                describe_caches(setting),
                f"{one.rounds.topology + one.rounds.features + one.rounds.lookup}",
                f"{one.rows:,.0f}",
                f"{(one.topology_bytes + one.feature_bytes) / 1e6:,.1f}",
                decimal(int(one.memory)) + ("" if one.fits else " !"),
                f"{one.preparation:.2f}",
                f"{one.epoch:.2f}",
            )
        return table

    def as_dict(self) -> dict[str, Any]:
        """Returns plain values, for JSON."""
        recommended = self.best
        return {
            "workload": asdict(self.workload),
            "ranks": self.ranks,
            "machine": asdict(self.machine),
            "network": asdict(self.network),
            "minibatches": {policy: minibatch_figures(probe) for policy, probe in self.probes.items()},
            "recommended": None if recommended is None else recommended.as_dict(),
            "predictions": [one.as_dict() for one in self.predictions],
            "historical": {policy: one.as_dict() for policy, one in self.historical.items()},
        }

    def write(self, folder: Path) -> list[Path]:
        """Writes ``plan.json`` and ``plan.png`` to a folder. Returns both paths."""
        # Importing Matplotlib takes a second, which only this needs.
        from pyg_batchgnn.planner.plot import plot_predictions

        folder.mkdir(parents=True, exist_ok=True)
        numbers, picture = folder / "plan.json", folder / "plan.png"
        numbers.write_text(json.dumps(self.as_dict(), indent=1) + "\n")
        title = f"{self.workload.name} on {self.ranks} ranks"
        plot_predictions(self.predictions, self.probes, self.workload, title, picture)
        return [numbers, picture]


def minibatch_figures(probe: PlannerProbe) -> dict[str, float]:
    """Returns the mean sizes of the probed minibatches."""
    full = probe.full
    return {
        "nodes": full.nodes,
        "edges": full.edges,
        "remote_nodes": full.remote.distinct(1),
        "without_last_hop": probe.inner.nodes,
    }
