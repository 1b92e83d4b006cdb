"""Learned rows of nodes, spread over ranks like the nodes themselves."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary
from torch_geometric.data import HeteroData

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator, Header, MessageKind
from pyg_batchgnn.embed.access import AccessibleTables
from pyg_batchgnn.embed.rules import UpdateRule
from pyg_batchgnn.embed.step_plan import StepPlanner
from pyg_batchgnn.embed.steps import Leaves, Step, StepOrder
from pyg_batchgnn.embed.tables import InitialRows
from pyg_batchgnn.sample import SampledMinibatch
from pyg_batchgnn.types import Schema

# Embedding ########################################################################################


#: Batches that are read without an update before those that nobody uses any more are dropped.
_READ_LIMIT = 64


class Embedding(AccessibleTables):
    """Tables of learned rows, one row for each node of some node types.

    A rank holds the rows of the nodes that it owns, and beside each row what the optimizer keeps of
    it. A loader that is given the tables (``embedding=``) tells the owners once per macrobatch
    which rows each of its steps needs. A step then takes one exchange of rows and one of gradients.
    One process is a world of one rank.

    `EmbeddingOptimizer` updates the rows that were read since its last step and have gradients: of
    several batches too, whose gradients are added. Making the tables is collective, and
    so is every method that says so.

    Args:
        data: the graph as loaders take it: a ``Data``, a ``HeteroData``, a pair of stores, over
            ranks ``(DistFeatureStore, DistGraphStore)``; or this rank's `Part`.
        columns: the number of columns, by node type; a number alone is that of the only type.
        seed: key of the initial rows, which are uniform in [-bound, bound) by (seed, node type,
            original id, column).
        bound: the largest absolute value of initial rows; None is 1 / sqrt(columns).
        comm: a communicator that nothing else uses, not even the stores; None makes one, which over
            ranks stays open until the process ends.
        dtype: torch.float32 or torch.float64.
        stale_steps: k: rows may lack the updates of the k steps before theirs, so that reading them
            waits for nobody. With 0, training equals that of one process.

    Attributes:
        tables: the table of each type that has one, in the order of the types.
        steps: the number of steps that the optimizer made.

    Raises:
        TypeError, ValueError: an argument that cannot be.
        KeyError: the graph has no such node type.
        AgreementError: ranks were given different arguments.
    """

    def __init__(
        self,
        data: Any,
        columns: int | Mapping[str, int],
        *,
        seed: int = 0,
        bound: float | None = None,
        comm: Communicator | None = None,
        dtype: torch.dtype = torch.float32,
        stale_steps: int = 0,
    ) -> None:
        if isinstance(stale_steps, bool) or not isinstance(stale_steps, int) or stale_steps < 0:
            raise ValueError(f"stale_steps must be a number of steps, at least 0, got {stale_steps!r}")
        super().__init__(data, columns, InitialRows(seed, bound), dtype, comm)
        self.comm.run_job(lambda: self.comm.check_agreement({"stale_steps": stale_steps}))
        self._planner = StepPlanner(self.owners, [table.node_type for table in self.tables])
        self._order = StepOrder(self.tables, self.comm, stale_steps)
        #: By batch, of which PyG's can be found by identity alone.
        self._steps = WeakIdKeyDictionary()
        #: Rows that were handed out and whose gradients no update has taken, in this order.
        self._read: list[Leaves] = []
        self._read_limit = _READ_LIMIT
        self._last: Step | None = None  # the one that was read last

    def synchronize(self) -> None:
        """Waits for the updates that were started."""
        self._order.wait()

    def _changed(self) -> None:
        self._order.changed()

    # Macrobatches #################################################################################

    def plan(
        self,
        minibatches: Sequence[Sequence[Tensor]],
        comm: Communicator | None = None,
        epoch: int = -1,
        macrobatch: int = -1,
    ) -> list[Step]:
        """Tells the owners which rows the steps of a macrobatch need. Collective, one round.

        Args:
            minibatches: the internal ids of each minibatch's nodes, [N_t] int64 by number of the
                type.
            comm: the communicator that samples; None in one process.
            epoch, macrobatch: the position.
        """
        header = Header(MessageKind.EMBEDDINGS, ops.to_signed(epoch), macrobatch)
        return Step.of_macrobatch(self._planner.plan(minibatches, header, comm))

    def attach(self, batch: Any, step: Step) -> None:
        """Notes the step of a batch, for as long as the batch lives."""
        self._steps[batch] = step

    def follow(self, batch: Any, other: Any) -> None:
        """Notes that another batch, made of the first one, has its step."""
        if other is not batch and batch in self._steps:
            self._steps[other] = self._steps[batch]

    # Steps ########################################################################################

    def __call__(self, batch: Any) -> dict[str, Tensor]:
        """Returns the rows of a batch's nodes by node type, [N_t, F_t] each. Collective, one round.

        The only type of a homogeneous graph is called "node". If gradients are enabled, the tensors
        are leaves that take one, for the next `EmbeddingOptimizer.step` behind the backward pass.
        Several batches may be read before it.

        Args:
            batch: one that a loader with these tables handed out. In one process any batch of this
                graph.

        Raises:
            ValueError: over ranks, a batch of another loader.
        """
        step = self._step_of(batch)
        rows = self._order.rows(step)
        if torch.is_grad_enabled():
            if step.leaves is None:
                step.leaves = [one.detach().requires_grad_() for one in rows]
                self._note(Leaves(step, step.leaves))
            rows, self._last = step.leaves, step
        return dict(zip(self.node_types, rows, strict=True))

    def _step_of(self, batch: Any) -> Step:
        nodes = nodes_by_type(batch, self.owners.schema)
        step: Step | None = self._steps.get(batch)
        if step is not None:
            return step
        if self.comm.size > 1:
            raise ValueError(
                "the batch came from a loader without these tables, so the owners do not know which rows it "
                "needs; make the loader with embedding=..."
            )
        wanted = [self.owners.internal_ids(number, node) for number, node in enumerate(nodes)]
        (step,) = self.plan([wanted])
        self.attach(batch, step)
        return step

    def _note(self, leaves: Leaves) -> None:
        """Notes rows that were handed out, and now and then drops those that all ranks gave up."""
        self._read.append(leaves)
        if len(self._read) >= self._read_limit:
            self._have_gradients()
            self._read_limit = max(_READ_LIMIT, 2 * len(self._read))

    def _have_gradients(self) -> list[bool]:
        """Returns what was read and has gradients on any rank, and drops what cannot get any.
        Collective, one round."""
        flags = [[any(g is not None for g in one.gradients), one.is_used] for one in self._read]
        every = torch.tensor(flags, dtype=torch.int64)
        every = self.comm.run_job(lambda: self.comm.all_reduce(every, MessageKind.EMBEDDINGS))
        have, used = (every > 0).t().tolist()
        kept = [has or uses for has, uses in zip(have, used, strict=True)]
        self._read = list(itertools.compress(self._read, kept))
        return list(itertools.compress(have, kept))

    def clear_gradients(self) -> None:
        """Drops the gradients that no update has taken; `EmbeddingOptimizer.zero_grad` calls it."""
        for one in self._read:
            one.clear()

    def update(self, rule: UpdateRule, weight: float) -> None:
        """Starts the update of the rows that have gradients; `EmbeddingOptimizer.step` calls it.

        Gradients of several batches are added. Where several were read, rows of a batch that has no
        gradients yet, on any rank, wait for a later update. A single batch is always taken.

        Raises:
            RuntimeError: no rows were read since the last update.
        """
        if not self._read or self._last is None:
            raise RuntimeError(
                "no rows were read since the last step; call embedding(batch) with gradients enabled, and "
                "the loss's backward(), before each step"
            )
        have = self._have_gradients() if len(self._read) > 1 else [True]
        taken = list(itertools.compress(self._read, have))
        self._read = [one for one, has in zip(self._read, have, strict=True) if not has]
        if taken:
            self.steps += 1
            self._order.update(taken, self._last, weight, rule.at(self.steps))


# Optimizer ########################################################################################


class EmbeddingOptimizer:
    """Updates the rows that were read, by the gradients of all ranks.

    A rank's gradients of one row are added first, then those of all ranks in the order of ranks;
    where several batches were read since the last step, batch by batch. So the bits of a run
    repeat. The update runs on a thread beside what follows, and the next read
    waits for it.

    Args:
        rule: `SGD`, `Adagrad` or `SparseAdam`.

    Attributes:
        rule: may be replaced between steps by one of the same kind (`set`).
    """

    def __init__(self, embedding: Embedding, rule: UpdateRule) -> None:
        self.embedding, self.rule = embedding, rule
        embedding.prepare(rule)

    def set(self, **numbers: Any) -> None:
        """Changes numbers of the rule, such as ``lr``; the same on all ranks."""
        self.rule = replace(self.rule, **numbers)  # type: ignore[type-var]

    def zero_grad(self) -> None:
        """Drops the gradients since the last step, for instance of a loss that is not finite.

        Call it on all ranks, as a step that is left out.
        """
        self.embedding.clear_gradients()

    def step(self, weight: float = 1.0) -> None:
        """Starts the update by the gradients of all batches that were read since the last step.

        Collective: one round, or one for each batch and one more where several were read. Then the
        rows of a batch whose backward pass comes later wait for a later step. A single batch is
        always taken, so its backward pass comes first.

        Args:
            weight: of this rank's gradients, which count weight / (the sum of all ranks' weights).
                With 1 on every rank that is the mean over ranks, as DistributedDataParallel takes
                it, a rank whose minibatch has no gradients included. A rank of weight 0 is left
                out.

        Raises:
            RuntimeError: no rows were read since the last step.
            ValueError: the weight is negative or not finite.
        """
        if not (math.isfinite(weight) and weight >= 0):
            raise ValueError(f"weight must be finite and not negative, got {weight}")
        self.embedding.update(self.rule, weight)


# Batches ##########################################################################################


def nodes_by_type(batch: Any, schema: Schema) -> list[Tensor]:
    """Returns the node ids of a batch as it holds them, [N_t] int64 by number of the type.

    Raises:
        TypeError: it is neither a minibatch nor a batch of PyG's loaders.
    """
    if isinstance(batch, SampledMinibatch):
        return [one.node for one in batch.nodes]
    try:
        if isinstance(batch, HeteroData):
            none = torch.empty(0, dtype=torch.int64)
            return [batch[name].get("n_id", none) for name in schema.node_types]
        return [batch.n_id]
    except AttributeError:
        raise TypeError(
            f"batch must be one that a loader of this package handed out, got {type(batch).__name__} without "
            "n_id"
        ) from None
