"""The part of ``batchgnn plan`` about features that are read from files."""

from __future__ import annotations

from dataclasses import dataclass

from rich.filesize import decimal

from pyg_batchgnn import machine
from pyg_batchgnn.data import Dataset
from pyg_batchgnn.disk import is_mapped
from pyg_batchgnn.loader import DiskForecast
from pyg_batchgnn.planner import Prediction
from pyg_batchgnn.train.config.train_config import TrainConfig
from pyg_batchgnn.train.graphs import WholeGraph
from pyg_batchgnn.train.node_tasks import PredictedNodes
from pyg_batchgnn.train.report import larger_budgets
from pyg_batchgnn.train.run_graph import AnyLoader
from pyg_batchgnn.types import FEATURES

#: The share of the memory budget, or of the memory that is free, that features in memory may take.
_HELD = 0.5


@dataclass(frozen=True)
class DiskPrediction:
    """What an epoch reads from files, predicted for training in one process."""

    forecast: DiskForecast  # what the loader's epoch reads
    dataset: Dataset  # the data set
    graph: WholeGraph  # the graph in this process
    loader: AnyLoader  # the training loader

    @classmethod
    def of(cls, dataset: Dataset, config: TrainConfig, samples: int) -> DiskPrediction | None:
        """Makes the training loader and predicts an epoch. Returns None if all features fit into
        memory. ``samples``: the number of minibatches to sample for it."""
        tables = [one.tables[FEATURES] for one in dataset.node_sets if FEATURES in one.tables]
        budget = config.sampling.memory_budget
        room = _HELD * (machine.memory().available if budget is None else budget)
        if sum(table.nbytes for table in tables if is_mapped(table)) <= room:
            return None
        graph = WholeGraph.of(dataset, config)
        loader, _ = graph.training_loader(PredictedNodes.of(dataset, config.task).split("train"))
        forecast = loader.disk_forecast(samples)
        return None if forecast is None else cls(forecast, dataset, graph, loader)

    def lines(self, computing: Prediction | None) -> list[str]:
        """Returns the lines to print. ``computing``: the prediction with features in memory."""
        found, minibatches, given = self.forecast, len(self.loader), self.graph.config.sampling.memory_budget
        tables = [one.tables[FEATURES] for one in self.dataset.node_sets if FEATURES in one.tables]
        features = sum(table.nbytes for table in tables) - self.graph.held  # those that stay on disk
        edges = 0
        if self.loader.stats().total.topology_edges > 0:
            edges = sum(one.csc.indices.nbytes for one in self.dataset.edge_sets if one.csc is not None)
        sweep = min(minibatches, found.period * found.sizes.fetch)
        budget = "half of the free memory" if given is None else "half of the memory budget"
        lines = [
            f"Features: {decimal(features)} do not fit {budget} and are read from their files. "
            f"Of the budget, {decimal(found.resident_bytes)} hold rows.",
            f"  A sweep over the files takes {sweep:,} of {minibatches:,} minibatches, "
            f"B = {found.sizes.macrobatch}.",
            f"  An epoch reads {decimal(int(found.bytes))} ({found.rows:,.0f} rows) in "
            f"{found.operations:,.0f} operations: {found.seconds:.1f} s, of which "
            f"{found.first_seconds:.1f} s pass before the first minibatch. The disk keeps up "
            f"{found.bytes_per_second / 1e9:.2f} GB/s.",
        ]
        if edges:
            lines.append(
                f"  The edges, {decimal(edges)}, do not fit either: those that a macrobatch picks are "
                f"read from their files, hop by hop. These figures do not count that."
            )
        if given is not None:
            all_edges, whole = larger_budgets(self.dataset)
            held = f" {decimal(all_edges)} hold the edges in memory," if edges else ""
            then = "" if computing is None else f", and takes about {computing.epoch:.1f} s"
            lines.append(
                f"  A larger --memory-budget:{held} {decimal(whole)} hold everything. An epoch then reads "
                f"nothing{then}."
            )
        if computing is None:
            return lines
        # Minibatches are sampled a second time, to know the rows of the epoch before it starts. The
        # first pass over the files runs beside that.
        seconds, again = computing.epoch, computing.seconds["sample"]
        longer = "reading" if found.least_later_seconds > seconds else "computing"
        least = max(again, found.first_seconds) + max(found.least_later_seconds, seconds)
        lines.append(
            f"  Computing takes {seconds:.1f} s and looking ahead {again:.1f} s: {longer} is the longer, and "
            f"an epoch takes about {least:.1f} s with --prefetch 1."
        )
        if given is not None:
            memory = computing.memory - features + given
            lines.append(f"  Memory: about {decimal(int(memory))}, with the graph and the labels.")
        return lines
