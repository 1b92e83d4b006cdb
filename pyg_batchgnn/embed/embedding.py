"""Learned rows of nodes, spread over ranks like the nodes themselves."""

from __future__ import annotations

import contextlib
import copy
import itertools
import math
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator, Header, MessageKind
from pyg_batchgnn.embed.rules import UpdateRule
from pyg_batchgnn.embed.step_plan import StepPlanner
from pyg_batchgnn.embed.steps import Leaves, Step, StepOrder, read_rows
from pyg_batchgnn.embed.table_files import export_table, load_tables, read_table, save_tables
from pyg_batchgnn.embed.tables import EmbeddingTable, InitialRows, NodeOwners, make_table
from pyg_batchgnn.partition import share_arrays
from pyg_batchgnn.sample import SampledMinibatch
from pyg_batchgnn.store import DistFeatureStore, internal_ids
from pyg_batchgnn.types import FEATURES, Schema

#: Batches that are read without an update before those that nobody uses any more are dropped.
_READ_LIMIT = 64


class Embedding:
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
        columns: the number of columns, by node type; a number alone is for the only type.
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
        TypeError, ValueError: an argument is wrong.
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
        self.owners = NodeOwners.of(data)
        schema, initial = self.owners.schema, InitialRows(seed, bound)
        wanted = _columns_by_type(columns, schema)
        if dtype not in ops.ROW_DTYPES:
            raise TypeError(f"dtype must be torch.float32 or torch.float64, got {dtype}")
        self.comm = Communicator.create("embedding") if comm is None else comm
        if comm is None and self.comm.size == 1:
            weakref.finalize(self, _close, self.comm)
        self.owners.check_comm(self.comm)
        given = {"seed": seed, "bound": bound, "dtype": str(dtype), "stale_steps": stale_steps}
        self._agree(wanted, given)
        self.tables = [
            make_table(schema, number, self.owners.original_ids(number), count, dtype)
            for number, count in wanted.items()
        ]
        for table in self.tables:
            initial.fill(table, schema)
        self.steps = 0
        self._planner = StepPlanner(self.owners, [table.node_type for table in self.tables])
        self._order = StepOrder(self.tables, self.comm, stale_steps)
        #: By batch; PyG's batches can be found by identity alone.
        self._steps = WeakIdKeyDictionary()
        #: Rows that were handed out and whose gradients no update has taken, in this order.
        self._read: list[Leaves] = []
        self._read_limit = _READ_LIMIT
        self._last: Step | None = None  # the one that was read last

    def _agree(self, columns: Mapping[int, int], arguments: Mapping[str, Any]) -> None:
        schema, book = self.owners.schema, self.owners.book
        named = {f"columns of {schema.node_types[number]!r}": count for number, count in columns.items()}
        self.comm.run_job(
            lambda: self.comm.check_agreement({"partition book": book.digest, **named, **arguments})
        )

    def check_graph(self, data: Any) -> None:
        """Raises ValueError unless the tables are of the nodes of this graph."""
        if not isinstance(data, (Data, HeteroData)) and not NodeOwners.is_partitioned(data):
            return  # stores answer requests; their sizes are seen when rows are read
        theirs = NodeOwners.of(data)
        if (theirs.book, theirs.schema.node_types) != (self.owners.book, self.owners.schema.node_types):
            raise ValueError(
                f"the tables are of {self.owners}, but the graph has {theirs}; make the tables of the "
                f"loader's graph"
            )

    @property
    def node_types(self) -> list[str]:
        """The names of the node types that have a table."""
        return [str(table.group.name) for table in self.tables]

    def table_of(self, node_type: str | None = None) -> EmbeddingTable:
        """Returns a type's table, or the only one, after all updates that were started. Raises
        KeyError if the type has none, ValueError if none is named and there are several."""
        self.synchronize()
        if node_type is None:
            if len(self.tables) > 1:
                raise ValueError(f"there are tables of {self.node_types}; name one of them")
            return self.tables[0]
        if node_type not in self.node_types:
            raise KeyError(f"the node type {node_type!r} has no table; those that have: {self.node_types}")
        return self.tables[self.node_types.index(node_type)]

    def synchronize(self) -> None:
        """Waits for the updates that were started."""
        self._order.wait()

    def prepare(self, rule: UpdateRule) -> None:
        """Makes what a rule keeps for each number, unless it is there. `EmbeddingOptimizer` calls
        it. Raises ValueError if the tables hold what another rule keeps."""
        for table in self.tables:
            if not table.state:
                table.state = tuple(torch.full_like(table.weight, value) for value in rule.initial)
            elif len(table.state) != len(rule.initial):
                raise ValueError(
                    f"the tables hold {len(table.state)} numbers for each weight, but {type(rule).__name__} "
                    f"keeps {len(rule.initial)}; take the rule that they were trained with"
                )

    def __repr__(self) -> str:
        sizes = ", ".join(
            f"{name}: {self.owners.book.num_nodes_of(table.node_type):,} x {table.columns}"
            for name, table in zip(self.node_types, self.tables, strict=True)
        )
        return f"{type(self).__name__}({sizes}; {self.comm!r})"

    def plan(
        self,
        minibatches: Sequence[Sequence[Tensor]],
        comm: Communicator | None = None,
        epoch: int = -1,
        macrobatch: int = -1,
    ) -> list[Step]:
        """Tells the owners which rows the steps of a macrobatch need, at a position of the epoch.
        Collective, one round. ``minibatches``: the internal ids of each one's nodes, [N_t] int64 by
        number of the type. ``comm``: the communicator that samples; None in one process."""
        header = Header(MessageKind.EMBEDDINGS, ops.to_signed(epoch), macrobatch)
        steps = [Step(plan) for plan in self._planner.plan(minibatches, header, comm)]
        for step, following in itertools.pairwise(steps):
            step.following = following
        return steps

    def attach(self, batch: Any, step: Step) -> None:
        """Notes the step of a batch, for as long as the batch lives."""
        self._steps[batch] = step

    def follow(self, batch: Any, other: Any) -> None:
        """Notes that another batch, made of the first one, has its step."""
        if other is not batch and batch in self._steps:
            self._steps[other] = self._steps[batch]

    def __call__(self, batch: Any) -> dict[str, Tensor]:
        """Returns the rows of a batch's nodes by node type ("node" in a homogeneous graph), [N_t,
        F_t] each. Collective, one round. Several batches may be read before it."""
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
        """Returns what was read and has gradients on any rank, and drops what cannot get any."""
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
        gradients yet, on any rank, wait for a later update. A single batch is always taken. Raises
        RuntimeError if no rows were read since the last update."""
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

    def rows(self, node: Tensor, node_type: str | None = None) -> Tensor:
        """Returns the rows [n, F] of nodes by original id, any [n] int64 on any rank, to evaluate
        and predict, without a gradient. Collective. One table needs no ``node_type``."""
        table = self.table_of(node_type)
        at = self.tables.index(table)
        none = torch.empty(0, dtype=torch.int64)

        def read() -> Tensor:
            internal = self._internal_ids(node, table.node_type)
            number = range(self.owners.schema.num_types)
            wanted = [internal if one == table.node_type else none for one in number]
            (plan,) = self._planner.plan([wanted], Header(MessageKind.EMBEDDINGS), self.comm)
            return read_rows(self.tables, plan, self.comm)[at]

        return self.comm.run_job(read)

    def _internal_ids(self, node: Tensor, node_type: int) -> Tensor:
        part = self.owners.part
        if part is None:
            return self.owners.internal_ids(node_type, node)
        return internal_ids(part, self.comm, node, node_type=node_type)

    def as_features(self, data: Any, name: str = FEATURES, node_type: str | None = None) -> Any:
        """Returns a graph with the present rows as features, for the inference of all nodes. They
        are the last columns of the attribute, behind those that it has. Features that are int8
        codes are decoded for it, all of them. Collective over ranks. ``data``: the graph of these
        tables, a ``Data``, a ``HeteroData``, or (DistFeatureStore, DistGraphStore). It is not
        changed. ``node_type`` is not needed if there is one table."""
        self.check_graph(data)
        return as_features(self.table_of(node_type), data, name)

    def freeze(self, node: Tensor | None = None, node_type: str | None = None) -> None:
        """Keeps rows as they are from now on, those that are frozen already included. ``node``:
        original ids, or a mask with one bool for each node of the type; the same on every rank.
        None stands for all nodes. ``node_type`` is not needed if there is one table."""
        table = self.table_of(node_type)
        count = self.owners.book.num_nodes_of(table.node_type)
        mask = torch.zeros(count, dtype=torch.bool)
        if node is None:
            mask.fill_(True)
        elif node.dtype == torch.bool:
            if node.shape != (count,):
                raise ValueError(f"the mask must be of the {count} nodes, got shape {list(node.shape)}")
            mask = node
        else:
            ops.check_ids("node", node, count)
            mask[node] = True
        own = mask[table.node]
        table.frozen = own if table.frozen is None else table.frozen | own

    def read_rows(self, path: str | Path, node_type: str | None = None) -> None:
        """Overwrites the rows of a type by those of a ``.npy`` file, one per node in the order of
        original ids, which is mapped and never unpickled. Collective. One table needs no
        ``node_type``. Raises DatasetError if the file is missing, damaged or of other rows."""
        table = self.table_of(node_type)
        count = self.owners.book.num_nodes_of(table.node_type)
        self.comm.run_job(lambda: read_table(table, count, Path(path).expanduser(), self.comm))
        self._order.changed()

    def export_rows(self, path: str | Path, node_type: str | None = None) -> None:
        """Writes a type's rows to one ``.npy`` file, which is replaced. Collective. No rank holds
        all rows: the first writes them by original id. Raises DatasetError if it cannot."""
        table = self.table_of(node_type)
        count = self.owners.book.num_nodes_of(table.node_type)
        self.comm.run_job(lambda: export_table(table, count, Path(path).expanduser(), self.comm))

    def save(self, folder: str | Path) -> None:
        """Writes all rows, and what the optimizer keeps, to a new folder, each rank its own part.
        Collective. All ranks must see the same file system. Raises DatasetError if the folder
        exists, or a rank cannot write."""
        self.synchronize()
        counts = [self.owners.book.num_nodes_of(table.node_type) for table in self.tables]
        self.comm.run_job(lambda: save_tables(self.tables, counts, self.steps, folder, self.comm))

    def load(self, folder: str | Path) -> None:
        """Reads what `save` wrote on any number of ranks. Collective. Training goes on as if it had
        not stopped: on as many ranks with the same bits. Raises DatasetError if a file is damaged
        or missing, or of other tables."""
        self.synchronize()
        self.steps = self.comm.run_job(lambda: load_tables(self.tables, folder, self.comm))
        self._order.changed()


def _close(comm: Communicator) -> None:
    with contextlib.suppress(RuntimeError):  # the garbage collector may run on that very thread
        comm.close()


def _columns_by_type(columns: int | Mapping[str, int], schema: Schema) -> dict[int, int]:
    if not isinstance(columns, Mapping):
        if schema.num_types > 1:
            raise ValueError(
                f"the graph has the node types {list(schema.node_types)}; give the columns by type, for "
                f"instance {{{schema.node_types[0]!r}: {columns}}}"
            )
        columns = {schema.node_types[0]: columns}
    if not columns:
        raise ValueError("columns names no node type; give at least one")
    for name, count in columns.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ValueError(f"columns of {name!r} must be a number, at least 1, got {count!r}")
    return dict(sorted((schema.type_number(name), count) for name, count in columns.items()))


class EmbeddingOptimizer:
    """Updates the rows that were read, by the gradients of all ranks. A rank's gradients of one row
    are added first, then those of all ranks in the order of ranks; where several batches were read
    since the last step, batch by batch. So the bits of a run repeat. The update runs on a thread
    beside what follows, and the next read waits for it. ``rule``: `SGD`, `Adagrad` or `SparseAdam`.
    It may be replaced between steps by one of the same kind (`set`)."""

    def __init__(self, embedding: Embedding, rule: UpdateRule) -> None:
        self.embedding, self.rule = embedding, rule
        embedding.prepare(rule)

    def set(self, **numbers: Any) -> None:
        """Changes numbers of the rule, such as ``lr``; the same on all ranks."""
        self.rule = replace(self.rule, **numbers)  # type: ignore[type-var]

    def zero_grad(self) -> None:
        """Drops the gradients since the last step, for instance of a loss that is not finite. Call
        it on all ranks, as a step that is left out."""
        self.embedding.clear_gradients()

    def step(self, weight: float = 1.0) -> None:
        """Starts the update by the gradients of all batches that were read since the last step.

        Collective: one round; where several batches were read, one for each and one more. A batch
        whose backward pass has not run yet then waits for a later step. A single batch is always
        taken, so its backward pass comes first. Raises RuntimeError if no rows were read since the
        last step.

        ``weight``: of this rank's gradients, finite and not negative, which count weight / (the sum
        of all ranks' weights). With 1 on every rank that is the mean over ranks, as
        DistributedDataParallel takes it, a rank whose minibatch has no gradients included. A rank
        of weight 0 is left out.
        """
        if not (math.isfinite(weight) and weight >= 0):
            raise ValueError(f"weight must be finite and not negative, got {weight}")
        self.embedding.update(self.rule, weight)


def nodes_by_type(batch: Any, schema: Schema) -> list[Tensor]:
    """Returns the node ids of a batch as it holds them, [N_t] int64 by number of the type."""
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


def as_features(table: EmbeddingTable, data: Any, name: str) -> Any:
    """Returns a graph with the rows of a table as the last columns of an attribute. Collective if
    the graph is a pair of stores. The graph given is not changed."""
    if isinstance(data, (tuple, list)) and isinstance(data[0], DistFeatureStore):
        features: DistFeatureStore = data[0]
        columns = _columns(table, features.own.attributes[table.group], name)
        rows = features.comm.run_job(lambda: _shared(features, columns))
        return features.with_table(table.group, name, rows), *data[1:]
    if not isinstance(data, (Data, HeteroData)):
        raise TypeError(
            f"data must be a Data, a HeteroData or (DistFeatureStore, DistGraphStore), got a "
            f"{type(data).__name__}"
        )
    other = copy.copy(data)
    store = other[str(table.group.name)] if isinstance(other, HeteroData) else other
    store[name] = _columns(table, store, name)
    return other


def _columns(table: EmbeddingTable, attributes: Any, name: str) -> Tensor:
    """Returns a copy of the rows, behind the attribute's columns if there are any."""
    held = [ops.decoded(attributes[name])] if name in attributes else []
    return torch.cat([*held, table.weight.to(held[0].dtype if held else table.weight.dtype)], dim=1)


def _shared(features: DistFeatureStore, columns: Tensor) -> Mapping[int, Tensor]:
    comm = features.comm
    if not comm.max(len(features.readable) > 1):
        return {comm.rank: columns}
    return {rank: arrays["rows"] for rank, arrays in share_arrays(comm, {"rows": columns}).items()}
