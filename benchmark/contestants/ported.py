"""A user's script with PyG's models, step by step faster: import, accelerate, native batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

import pyg_batchgnn
from benchmark.contestants.ours import loader, versions
from benchmark.networks.basic import Call, basic_model, seed_logits
from benchmark.networks.recipe import StepTrainer
from benchmark.support.graphs import GraphFolder
from benchmark.support.jobs import Job, Options, WorkDone

__all__ = ["JOBS", "versions"]


@dataclass(frozen=True)
class Script:
    """A form of the script.

    Attributes:
        call: how it calls the model.
        accelerated: it gives the model to `accelerate`.
        export: the form of the batches of its loader.
    """

    call: Call
    accelerated: bool = True
    export: Literal["pyg", "native"] = "pyg"

    def job(self, options: Options) -> Job:
        """Makes loader and model as the script does."""
        graph = GraphFolder.open(options.graph)
        batches = loader(options, export=self.export)
        torch.manual_seed(options.seed)
        shape = (graph.num_features, options.hidden, graph.num_classes, len(options.fanouts))
        model = basic_model(options.model, *shape)
        trainer = StepTrainer(pyg_batchgnn.accelerate(model) if self.accelerated else model)

        def round_(_: int) -> WorkDone:
            work = WorkDone()
            for batch in batches:
                native = self.export == "native"
                y = batch.attribute("y", batch.batch_size) if native else batch.y[: batch.batch_size]
                trainer.step(seed_logits(model, batch, self.call), y)
                work.add(batch.num_nodes, batch.num_edges)
            return work

        return round_


JOBS: dict[str, Callable[[Options], Job]] = {
    "import": Script(Call.WHOLE, accelerated=False).job,
    "import-trimmed": Script(Call.TRIMMED, accelerated=False).job,
    "accelerate": Script(Call.WHOLE).job,
    "accelerate-trimmed": Script(Call.TRIMMED).job,
    "batch": Script(Call.BATCH).job,
    "native": Script(Call.BATCH, export="native").job,
}
