"""Batches that arrive on a device: how they get there, and which parts are put together there.

A minibatch of a ``Data`` in memory travels as local CSC and ids. Its edges, and the rows of its
attributes, are put together on the device (`RowsExporter`). Of a graph over ranks the minibatch
travels with the rows that were fetched (`MinibatchExporter`). What only the CPU can make travels
when it is made (`BatchExporter`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.sampler import HeteroSamplerOutput
from torch_geometric.sampler.base import SubgraphType

from pyg_batchgnn.device import (
    BusTally,
    PlacedTables,
    PlacingRules,
    inclusion_of_nodes,
    is_table,
    likely_rows,
    map_batch,
    map_minibatch,
)
from pyg_batchgnn.fetch import Fetched, Fetcher, FetchGroup, distinct_nodes
from pyg_batchgnn.loader.device_stage import DeviceStage
from pyg_batchgnn.loader.export import Exported, Exporter, GatheringExporter
from pyg_batchgnn.loader.filter import Gatherer
from pyg_batchgnn.loader.link_inputs import LinkInputs
from pyg_batchgnn.loader.node_inputs import NodeInputs
from pyg_batchgnn.loader.source import DataSource, Source
from pyg_batchgnn.loader.stats import LoaderCounters
from pyg_batchgnn.ops import as_stored, decoded
from pyg_batchgnn.sample import (
    AttributeRows,
    Minibatch,
    MinibatchPlan,
    Placement,
    PygForm,
    PygOutput,
    SampledMinibatch,
    SampleInfo,
)
from pyg_batchgnn.store import TypedGraph
from pyg_batchgnn.types import Group


class DeviceRows:
    """Places the tables of a ``Data``, and reads the distinct rows of fetch groups once."""

    def __init__(
        self,
        stage: DeviceStage,
        source: DataSource,
        graph: TypedGraph,
        native: bool,
        plan: MinibatchPlan,
        inputs: Any,
        batch_size: int | None,
    ) -> None:
        self.stage, self.graph, self._source, self.native = stage, graph, source, native
        self._plan, self._seeds = plan, seeds_of(inputs, graph)
        self._probability = min(1.0, (batch_size or 1) / max(1, len(inputs)))
        self._placed: tuple[Any, PlacedTables, PlacingRules] | None = None
        self._tally = BusTally()
        self._lock = threading.Lock()  # a group's rows are read while batches of the one before are made

    def current(self) -> tuple[PlacedTables, PlacingRules]:
        """Returns the tables, placed anew if a script has changed the data."""
        with self._lock:
            wanted = self._source.attributes()
            if self._placed is None or self._placed[0] is not wanted or not self._placed[1].is_current:
                stage = self.stage
                self._placed = stage.placed = None  # what was placed before gives way first
                stage.lane.follow()
                rules = stage.rules()
                counts = self.graph.rows_by_group
                placed = PlacedTables(wanted, counts, self._source.held, rules, stage.rows)
                if self.native:
                    self._refuse_what_is_missing(wanted, placed)
                self._fill_cache(placed, rules)
                self._placed, stage.placed = (wanted, placed, rules), placed
            return self._placed[1:]

    def _refuse_what_is_missing(
        self, wanted: Mapping[Group, Mapping[str, Any]], placed: PlacedTables
    ) -> None:
        """Raises ValueError for new attributes that native minibatches cannot carry."""
        for group, named in wanted.items():
            for name in named.keys() - placed.by_name[group].keys():
                raise ValueError(
                    f"the {group.kind.value} attribute {name!r} has become something else than a dense table "
                    f"with {self.graph.rows_by_group[group]} rows; make a new loader for it"
                )

    def _fill_cache(self, placed: PlacedTables, rules: PlacingRules) -> None:
        groups, counts = self.graph.schema.node_groups, self.graph.num_nodes
        row_bytes = {
            number: sum(one.row_bytes for one in placed.host_tables(group).values())
            for number, group in enumerate(groups)
        }
        if rules.cache and any(row_bytes.values()):
            likely = inclusion_of_nodes(self.graph, self._plan, self._seeds, self._probability)
            chosen = likely_rows(likely, row_bytes, counts, rules.cache)
            placed.fill_cache(groups, counts, chosen, self.stage.lane.device)

    def fetch(self, group: FetchGroup) -> Fetched:
        minibatches = group.minibatches
        held: list[dict[Group, AttributeRows]] = [{} for _ in minibatches]
        with self.stage.lane.working():
            placed, rules = self.current()
            if len(minibatches) > 1:
                self._read_blocks(placed, rules, minibatches, held)
        return Fetched([Minibatch.of(one, own) for one, own in zip(minibatches, held, strict=True)])

    def _read_blocks(
        self,
        placed: PlacedTables,
        rules: PlacingRules,
        minibatches: Sequence[SampledMinibatch],
        held: Sequence[dict[Group, AttributeRows]],
    ) -> None:
        """Reads each distinct row of several minibatches once, if all fit a block."""
        groups = self.graph.schema.node_groups
        if not any(placed.host_tables(group) for group in groups):
            return
        found = {
            number: distinct_nodes(
                [one.nodes[number].node for one in minibatches], self.graph.num_nodes[number]
            )
            for number, group in enumerate(groups)
            if placed.host_tables(group)
        }
        size = sum(one.node.numel() * placed.row_bytes(groups[number]) for number, one in found.items())
        size += sum(8 * len(places) for one in found.values() for places in (one.node, *one.places))
        if size > rules.block:
            self.stage.too_many(len(minibatches))
            return
        self.stage.block_peak = max(self.stage.block_peak, size)
        parcel = self.stage.parcel()
        for number, one in found.items():
            parcel.add(one.node, self.graph.num_nodes[number])
            for places in one.places:
                parcel.add(places, one.node.numel())
        parcel.send()
        tally = BusTally(topology_over_bus=parcel.nbytes)
        for number, one in found.items():
            group = groups[number]
            tables = placed.by_name[group] if self.native else placed.host_tables(group)
            index = parcel[one.node]
            block = {name: table.like(table.rows(index, one.node, tally)) for name, table in tables.items()}
            for at, places in enumerate(one.places):
                held[at][group] = AttributeRows(block, parcel[places], Placement.BLOCK)
        with self._lock:
            self._tally.add(tally)

    def take_tally(self) -> BusTally:
        """Returns the rows and bytes counted since the last call."""
        with self._lock:
            taken, self._tally = self._tally, BusTally()
            return taken


def seeds_of(inputs: Any, graph: TypedGraph) -> list[tuple[int, Tensor]]:
    """Returns (type index, node ids) of the seeds from which a loader's minibatches are made."""
    schema = graph.schema
    if isinstance(inputs, NodeInputs):
        return [(number, part.node) for number, part in zip(inputs.types, inputs.parts, strict=True)]
    assert isinstance(inputs, LinkInputs)
    return [
        (schema.type_number(part.relation[end]), part.index[at])
        for part in inputs.parts
        for at, end in enumerate((0, 2))
    ]


class DeviceGatherer(Gatherer):
    """Selects rows on the device, or on the CPU where only it can. ``twins``: node and edge ids on
    the host, by the ``id`` of the tensor on the device."""

    def __init__(
        self,
        rows: DeviceRows,
        placed: PlacedTables,
        twins: Mapping[int, Tensor],
        blocks: Mapping[Group, AttributeRows],
        tally: BusTally,
    ) -> None:
        super().__init__()
        self._lane, self._placed, self._twins = rows.stage.lane, placed, twins
        self._blocks, self._tally, self._stage = blocks, tally, rows.stage

    def __call__(self, value: Any, index: Tensor, dim: int = 0) -> Any:
        host, found = self._twins.get(id(index)), self._placed.find(value) if dim == 0 else None
        if host is None or found is None:
            there = self._lane.device
            if isinstance(value, Tensor) and value.device == there and there.type != "cpu":
                return super().__call__(value, index, dim)
            return self._by_cpu(value, index if host is None else host, dim)
        group, table = found
        block = self._blocks.get(group)
        if block is not None:
            name = self._placed.name_of(value)
            if name in block.tables:
                assert block.row is not None
                return block.tables[name].index_select(0, block.row)
        out = decoded(table.like(table.rows(index, host, self._tally)))
        self.count(out)
        return out

    def edges(self, edge_index: Tensor, like: Tensor) -> Tensor:  # noqa: ARG002
        return edge_index

    def _by_cpu(self, value: Any, index: Tensor, dim: int) -> Any:
        """Selects on the CPU from a value that is no dense table, and copies the result."""
        out = super().__call__(value, index.cpu(), dim)
        if not isinstance(out, Tensor):
            return out.to(self._lane.device) if hasattr(out, "to") else out
        if type(out) is not Tensor or out.layout is not torch.strided or out.requires_grad:
            return out.to(self._lane.device)
        self._tally.rows_over_bus += index.numel()
        self._tally.bytes_over_bus += out.nbytes
        return self._stage.rows.sent(out)


def why_not_on_device(
    source: Source, fetcher: Fetcher | None, form: PygForm, hook: Any, native: bool
) -> str | None:
    """Returns why batches cannot be put together on a device, or None if they can."""
    if not isinstance(source, DataSource):
        return "attributes come from a feature store"
    if fetcher is not None:
        return "attributes lie in files that do not fit the memory budget"
    if hook is not None:
        return "transform_sampler_output takes samples of the CPU"
    if form.subgraph is SubgraphType.bidirectional:
        return "bidirectional subgraphs are put together on the CPU"
    if native:
        for group, wanted in source.attributes().items():
            for name, value in wanted.items():
                if not is_table(source.held(value)):
                    return f"the {group.kind.value} attribute {name!r} is no dense table in memory"
    return None


class RowsExporter:
    """Puts batches together on the device, from sampled minibatches and placed tables. ``plain``:
    makes the same batches on the CPU; None for native ones."""

    def __init__(
        self,
        rows: DeviceRows,
        source: DataSource,
        form: PygForm,
        info: SampleInfo,
        plain: GatheringExporter | None,
    ) -> None:
        self.form = form
        self._rows, self._source, self._info, self.plain = rows, source, info, plain
        graph = rows.graph
        self._bounds = max(graph.num_nodes), max((one.num_edges for one in graph.relations), default=0)

    def export(self, minibatch: Minibatch) -> Exported:
        begin, stage, tally = time.perf_counter(), self._rows.stage, self._rows.take_tally()
        with stage.lane.working():
            placed, _ = self._rows.current()
            parcel, bounds = stage.parcel(), self._bounds
            map_minibatch(minibatch, parcel.add, *bounds)
            parcel.send()
            there = map_minibatch(minibatch, lambda tensor, _: parcel[tensor], *bounds)
            tally.topology_over_bus += parcel.nbytes
            sent = time.perf_counter()
            if self._rows.native:
                batch: Any = replace(there, attributes=self._attributes(placed, minibatch, there, tally))
                batch = batch if self.form.times is None else batch.with_token_times(self.form.times)
            else:
                batch = self._pyg_batch(placed, minibatch, there, tally)
            counters = LoaderCounters(**tally.counts())
            counters.export_seconds, counters.fetch_seconds = sent - begin, time.perf_counter() - sent
            return stage.finished(batch, counters)

    def _pyg_batch(
        self, placed: PlacedTables, minibatch: Minibatch, there: Minibatch, tally: BusTally
    ) -> Any:
        out = self.form.output(there)
        nodes = out.node.values() if isinstance(out, HeteroSamplerOutput) else [out.node]
        twins = {id(node): one.node for node, one in zip(nodes, minibatch.nodes, strict=True)}
        for edges, own in zip(there.edges, minibatch.edges, strict=True):
            if edges.edge is not None and own.edge is not None:
                twins[id(edges.edge)] = own.edge
        gather = DeviceGatherer(self._rows, placed, twins, minibatch.attributes, tally)
        batch = self._source.batch(out, gather)
        self._info.add(batch, out)
        stage = self._rows.stage
        return batch if stage.lane.device.type == "cpu" else map_batch(batch, stage.whole)

    def _attributes(
        self, placed: PlacedTables, minibatch: Minibatch, there: Minibatch, tally: BusTally
    ) -> dict[Group, AttributeRows]:
        schema, found = minibatch.schema, dict(minibatch.attributes)
        nodes = zip(schema.node_groups, there.nodes, minibatch.nodes, strict=True)
        edges = zip(schema.edge_groups, there.edges, minibatch.edges, strict=True)
        ids = [(group, one.node, own.node) for group, one, own in nodes]
        ids += [
            (group, one.edge, own.edge)
            for group, one, own in edges
            if one.edge is not None and own.edge is not None and placed.by_name[group]
        ]
        for group, index, host in ids:
            tables = placed.by_name[group]
            if group in found:
                continue
            if placed.host_tables(group):
                rows = {name: decoded(one.like(one.rows(index, host, tally))) for name, one in tables.items()}
                found[group] = AttributeRows(rows, None, Placement.MINIBATCH)
            else:
                whole = {name: one.table for name, one in tables.items()}  # type: ignore[attr-defined]
                found[group] = AttributeRows.in_place(whole, index)
        return found

    def from_output(self, out: PygOutput) -> Exported:
        assert self.plain is not None
        return BatchExporter(self._rows.stage, self.plain).from_output(out)


class MinibatchExporter:
    """Sends a minibatch and its attributes to the device, and makes the batch there. ``gathers``:
    True gathers attributes on the host first, since their tables stay there."""

    def __init__(
        self, stage: DeviceStage, inner: Exporter, bounds: tuple[int, int], gathers: bool = False
    ) -> None:
        self.inner = inner
        self._stage, self._bounds, self._gathers = stage, bounds, gathers
        self._most: int | None = None  # the bytes of a fetch group's blocks that may lie on the device
        #: Blocks of the fetch group: those of the host, and those of the device.
        self._blocks: dict[int, tuple[Tensor, Tensor]] = {}

    def export(self, minibatch: Minibatch) -> Exported:
        stage, tally, bounds = self._stage, BusTally(), self._bounds
        with stage.lane.working():
            parcel = stage.parcel()
            map_minibatch(minibatch, parcel.add, *bounds)
            rows = self._ready(minibatch.attributes)
            for own in rows.values():
                if own.row is not None:
                    parcel.add(own.row, max((len(table) for table in own.tables.values()), default=None))
            parcel.send()
            there = map_minibatch(minibatch, lambda tensor, _: parcel[tensor], *bounds)
            tally.topology_over_bus = parcel.nbytes
            known, self._blocks = self._blocks, {}
            sent = {}
            for group, own in rows.items():
                tables = {name: self._sent(table, known, tally) for name, table in own.tables.items()}
                row = None if own.row is None else parcel[own.row]
                sent[group] = AttributeRows(tables, row, own.placement)
            exported = self.inner.export(replace(there, attributes=sent))
            counters = exported.counters or LoaderCounters()
            counters.add(LoaderCounters(**tally.counts()))
            return stage.finished(exported.batch, counters)

    def _ready(self, attributes: Mapping[Group, AttributeRows]) -> dict[Group, AttributeRows]:
        """Gathers the minibatch's rows on the host if their table is not sent: the user's own
        tensors, and blocks that are too large."""
        stage, gathers = self._stage, self._gathers
        blocks = [one for one in attributes.values() if one.placement is Placement.BLOCK]
        size = sum(as_stored(table).nbytes for one in blocks for table in one.tables.values())
        if self._most is None:
            self._most = stage.rules().block
        if size > self._most:
            gathers = True
        elif not gathers:
            stage.block_peak = max(stage.block_peak, size)
        return {
            group: AttributeRows({name: rows.gather(name) for name in rows.tables}, None, Placement.MINIBATCH)
            if gathers or rows.placement is Placement.IN_PLACE
            else rows
            for group, rows in attributes.items()
        }

    def _sent(self, table: Tensor, known: Mapping[int, tuple[Tensor, Tensor]], tally: BusTally) -> Tensor:
        """Sends a table, once for all minibatches of a fetch group."""
        held = known.get(id(table))
        if held is None:
            held = table, self._stage.rows.sent(table)
            tally.rows_over_bus += len(table)
            tally.bytes_over_bus += as_stored(table).nbytes
        self._blocks[id(table)] = held
        return held[1]


class BatchExporter:
    """Sends PyG batches that were made on the CPU to the device."""

    def __init__(self, stage: DeviceStage, inner: GatheringExporter) -> None:
        self.inner, self._stage = inner, stage

    @property
    def form(self) -> PygForm:
        return self.inner.form

    def export(self, minibatch: SampledMinibatch) -> Exported:
        return self._sent(self.inner.export(minibatch))

    def from_output(self, out: PygOutput) -> Exported:
        return self._sent(self.inner.from_output(out))

    def batch_bytes(self, minibatch: SampledMinibatch) -> int:
        return self.inner.batch_bytes(minibatch)

    def _sent(self, exported: Exported) -> Exported:
        stage, batch = self._stage, exported.batch
        with stage.lane.working():
            if not hasattr(batch, "stores"):
                return stage.finished(batch.to(stage.lane.device), exported.counters or LoaderCounters())
            parcel = stage.parcel()
            map_batch(batch, lambda one: parcel.add(one) if isinstance(one, Tensor) else one)
            parcel.send()
            device = stage.lane.device
            map_batch(batch, lambda one: parcel[one] if isinstance(one, Tensor) else one.to(device))
            counters = exported.counters or LoaderCounters()
            counters.topology_over_bus += parcel.nbytes
            return stage.finished(batch, counters)
