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

    >>> embedding = Embedding(data, 16)
    >>> optimizer = EmbeddingOptimizer(embedding, SparseAdam(lr=0.01))
    >>> for batch in MacrobatchNeighborLoader(data, [5], batch_size=32, embedding=embedding):
    ...     embedding(batch)["node"].square().mean().backward()  # rows [nodes of the batch, 16]
    ...     optimizer.step()

    A rank holds the rows of the nodes that it owns, with the optimizer's state beside them. A
    loader with the tables (``embedding=``) tells the owners once per macrobatch which rows each
    step needs. A step then takes one exchange of rows and one of gradients. Making the tables is
    collective, and so is every method that says so. One process is a world of one rank.

    Args:
        data: the graph as loaders take it: a ``Data``, a ``HeteroData``, a pair of stores, over
            ranks ``(DistFeatureStore, DistGraphStore)``; or this rank's `Part`.
        columns: the number of columns, by node type; a number alone is for the only type.
        seed: key of the initial rows, which are uniform in [-bound, bound) by (seed, node type,
            original id, column).
        bound: the largest absolute value of initial rows; None is 1 / sqrt(columns).
        comm: a communicator that nothing else uses, not even the stores. None makes one, which over
            ranks stays open until the process ends.
        dtype: torch.float32 or torch.float64.
        stale_steps: rows may lack the updates of this many steps before theirs, so that reading
            them need not wait. With 0, training equals that of one process.

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
        """Raises ValueError unless ``data`` is the graph of these tables."""
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
        """Returns a type's table, or the only one, once all started updates are done. Raises
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
        """Waits until all started updates are done."""
        self._order.wait()

    def prepare(self, rule: UpdateRule) -> None:
        """Makes the optimizer's state that ``rule`` needs, if it is not there; `EmbeddingOptimizer`
        calls it. Raises ValueError if there is another rule's state."""
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
        """Tells the owners which rows the steps of a macrobatch need. Collective, one round.
        ``minibatches``: for each one the internal ids of its nodes, [N_t] int64 by number of the
        type. ``comm``: the communicator that samples; None in one process. The rest is for
        messages."""
        header = Header(MessageKind.EMBEDDINGS, ops.to_signed(epoch), macrobatch)
        steps = [Step(plan) for plan in self._planner.plan(minibatches, header, comm)]
        for step, following in itertools.pairwise(steps):
            step.following = following
        return steps

    def attach(self, batch: Any, step: Step) -> None:
        """Remembers the step of a batch, as long as the batch lives."""
        self._steps[batch] = step

    def follow(self, batch: Any, other: Any) -> None:
        """Gives another batch, made from the first one, the same step."""
        if other is not batch and batch in self._steps:
            self._steps[other] = self._steps[batch]

    def __call__(self, batch: Any) -> dict[str, Tensor]:
        """Returns the rows of a batch's nodes, [N_t, F_t] by node type ("node" in a homogeneous
        graph). Collective, one round. Several batches may be read before a step."""
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
        """Remembers rows that were read, and sometimes drops those that all ranks have freed."""
        self._read.append(leaves)
        if len(self._read) >= self._read_limit:
            self._have_gradients()
            self._read_limit = max(_READ_LIMIT, 2 * len(self._read))

    def _have_gradients(self) -> list[bool]:
        """Returns which batches that were read have gradients on any rank; drops hopeless ones."""
        flags = [[any(g is not None for g in one.gradients), one.is_used] for one in self._read]
        every = torch.tensor(flags, dtype=torch.int64)
        every = self.comm.run_job(lambda: self.comm.all_reduce(every, MessageKind.EMBEDDINGS))
        have, used = (every > 0).t().tolist()
        kept = [has or uses for has, uses in zip(have, used, strict=True)]
        self._read = list(itertools.compress(self._read, kept))
        return list(itertools.compress(have, kept))

    def clear_gradients(self) -> None:
        """Drops gradients that no update has used, for `EmbeddingOptimizer.zero_grad`."""
        for one in self._read:
            one.clear()

    def update(self, rule: UpdateRule, weight: float) -> None:
        """Starts the update of rows with gradients, for `EmbeddingOptimizer.step`. Gradients of
        several batches are added. If several were read, batches without gradients on any rank wait
        for a later update; a single batch is always taken. Raises RuntimeError if none was read."""
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
        """Returns [n, F], the rows of nodes [n] int64 by original id, without a gradient, for
        evaluation. Collective; ranks may ask for any nodes. One table needs no ``node_type``."""
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
        """Returns a copy of a graph with the present rows as features, for the inference of all
        nodes. They are appended to the attribute's columns; int8-quantised features are decoded for
        it. Collective over ranks. ``data``: the graph of these tables, a ``Data``, a
        ``HeteroData``, or (DistFeatureStore, DistGraphStore). One table needs no ``node_type``."""
        self.check_graph(data)
        return as_features(self.table_of(node_type), data, name)

    def freeze(self, node: Tensor | None = None, node_type: str | None = None) -> None:
        """Keeps rows as they are from now on, in addition to those frozen before. ``node``:
        original ids, or a mask over the nodes of the type, the same on every rank; None for all
        nodes. ``node_type`` is not needed with one table."""
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
        """Overwrites the rows of a type from a ``.npy`` file, one row per node by original id.
        Collective. The file is mapped and never unpickled. ``node_type`` is not needed with one
        table. Raises DatasetError if the file is missing, damaged or has another shape."""
        table = self.table_of(node_type)
        count = self.owners.book.num_nodes_of(table.node_type)
        self.comm.run_job(lambda: read_table(table, count, Path(path).expanduser(), self.comm))
        self._order.changed()

    def export_rows(self, path: str | Path, node_type: str | None = None) -> None:
        """Writes a type's rows, by original id, to one ``.npy`` file, which is replaced.
        Collective. The first rank writes, and never holds all rows. Raises DatasetError if it
        cannot."""
        table = self.table_of(node_type)
        count = self.owners.book.num_nodes_of(table.node_type)
        self.comm.run_job(lambda: export_table(table, count, Path(path).expanduser(), self.comm))

    def save(self, folder: str | Path) -> None:
        """Writes all rows and the optimizer's state to a new folder that all ranks see, each rank
        its own part. Collective. Raises DatasetError if the folder exists, or a rank cannot
        write."""
        self.synchronize()
        counts = [self.owners.book.num_nodes_of(table.node_type) for table in self.tables]
        self.comm.run_job(lambda: save_tables(self.tables, counts, self.steps, folder, self.comm))

    def load(self, folder: str | Path) -> None:
        """Reads a folder that `save` wrote on any number of ranks, to continue training; on as many
        ranks with the same bits. Collective. Raises DatasetError if a file is damaged or
        missing."""
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
    """Updates the rows that were read, by the gradients of all ranks. See `Embedding` for an
    example. ``rule``: `SGD`, `Adagrad` or `SparseAdam`; it may be replaced between steps by one of
    the same kind (`set`).

    A rank's gradients of one row are added first, then all ranks' in the order of ranks, and of
    several batches batch by batch, so that runs repeat bit for bit. The update runs on a thread of
    its own, and the next read waits for it.
    """

    def __init__(self, embedding: Embedding, rule: UpdateRule) -> None:
        self.embedding, self.rule = embedding, rule
        embedding.prepare(rule)

    def set(self, **numbers: Any) -> None:
        """Changes parameters of the rule, such as ``lr``; the same on all ranks."""
        self.rule = replace(self.rule, **numbers)  # type: ignore[type-var]

    def zero_grad(self) -> None:
        """Drops the gradients since the last step, as of an infinite loss. Call it on all ranks."""
        self.embedding.clear_gradients()

    def step(self, weight: float = 1.0) -> None:
        """Starts the update by the gradients of all batches that were read since the last step.

        Collective: one round, and with several batches one for each and one more. A batch without
        gradients then waits for a later step; a single batch must have run its backward pass.
        Raises RuntimeError if no rows were read since the last step.

        ``weight``: of this rank's gradients, finite and not negative. They are multiplied by weight
        / (the sum of all ranks' weights). With 1 on every rank this is the mean over ranks, as in
        DistributedDataParallel, also of ranks without gradients. A rank of weight 0 is left out.
        """
        if not (math.isfinite(weight) and weight >= 0):
            raise ValueError(f"weight must be finite and not negative, got {weight}")
        self.embedding.update(self.rule, weight)


def nodes_by_type(batch: Any, schema: Schema) -> list[Tensor]:
    """Returns the batch's node ids, [N_t] int64 by number of the type."""
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
    """Returns a copy of a graph, a table's rows appended to an attribute. Collective for stores."""
    if isinstance(data, (tuple, list)) and isinstance(data[0], DistFeatureStore):
        features: DistFeatureStore = data[0]
        columns = _columns(table, features.own.attributes[table.group], name)
        rows = features.comm.run_job(lambda: _shared(features, columns))
        return features.with_attribute(table.group, name, rows, replaces=True), *data[1:]
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
    """Returns the rows, appended to the attribute's columns if there are any."""
    held = [ops.decoded(attributes[name])] if name in attributes else []
    return torch.cat([*held, table.weight.to(held[0].dtype if held else table.weight.dtype)], dim=1)


def _shared(features: DistFeatureStore, columns: Tensor) -> Mapping[int, Tensor]:
    comm = features.comm
    if not comm.max(len(features.readable) > 1):
        return {comm.rank: columns}
    return {rank: arrays["rows"] for rank, arrays in share_arrays(comm, {"rows": columns}).items()}
