"""The input-feature aggregation cache (BatchGNN, section 3)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch_geometric.data import Data, HeteroData

from pyg_batchgnn.cache.build import check_features
from pyg_batchgnn.cache.by_relation import AggregatesByRelation
from pyg_batchgnn.cache.contexts import context_of, features_of
from pyg_batchgnn.cache.folder import CacheMeta, SavedRows, aggregates_array, check_kinds, save_rows
from pyg_batchgnn.cache.origin import Origin, differences
from pyg_batchgnn.cache.relation_aggregates import PassSettings, RelationAggregates
from pyg_batchgnn.cache.relation_context import RelationContext
from pyg_batchgnn.cache.relation_kinds import KindByRelation, kinds_by_name, kinds_of
from pyg_batchgnn.ops import check_budget
from pyg_batchgnn.store import DistFeatureStore, TypedGraph
from pyg_batchgnn.types import Relation, Schema


@dataclass(frozen=True, eq=False, repr=False)
class AggregationCache(AggregatesByRelation):
    """The input features aggregated over all in-neighbours, for every node that a process owns.

    A loader with a cache does not sample the last hop. Native minibatches carry the aggregates of
    each node beside the node's own features, one for each relation into its type, and native models
    begin with the aggregates. So the first layer sees all in-neighbours of a node, the same in
    every epoch.

    `build` or `load` makes a cache. `kind`, `rows`, `readable`, `fingerprint` and `attribute` can
    be read from the cache itself if it has one relation.

    Attributes:
        schema: the node types and the relations of the graph.
        relations: the aggregates by relation.
        store: the store of the features that the cache was made of, over ranks; None in one
            process.
        origin: the ``Data`` that the cache was made of, in one process; None if it was none.
    """

    store: DistFeatureStore | None = None
    origin: Origin | None = None

    @classmethod
    def build(
        cls,
        data: Any,
        kind: KindByRelation,
        *,
        memory_budget: int | str | None = None,
        threads: int | None = None,
        progress: bool = False,
    ) -> AggregationCache:
        """Aggregates ``x`` over all in-neighbours. Collective over ranks.

        Nodes are aggregated in pieces. Over ranks, each remote row that a piece needs is fetched
        once per piece, so fewer and larger pieces fetch less.

        Args:
            data: a ``Data`` or a ``HeteroData``; a pair (`CscGraph`, features); or over ranks
                (`DistFeatureStore`, `DistGraphStore`).
            kind: "mean" for SAGE, "sum" for GIN, "symmetric" for GCN. A mapping gives the kind of
                each relation, and leaves out the relations that are not aggregated. One name is for
                all relations.
            memory_budget: bytes (or a text like "2GiB") that a piece takes, about, but at least
                what one node needs. None: an eighth of the free memory of the host that has least,
                divided by its ranks. The result does not depend on it.
            threads: at most this many threads; torch's own number where None.
            progress: True shows a progress bar on the standard error of the first rank.

        Raises:
            ValueError, TypeError: there is no such aggregation or no ``x``, or ``x`` cannot be
                aggregated before training.
            AgreementError: ranks were given different relations or aggregations.
        """
        settings = PassSettings(check_budget(memory_budget), threads, progress)
        graph = context_of(data, threads)
        kinds = kinds_of(kind, graph.schema)
        # Before the first relation is read: reading one is collective.
        graph.agree(kinds_by_name(kinds, graph.schema))
        relations = {}
        for number, wanted in kinds.items():
            names = graph.schema.relations[number]
            named = _of_relation(settings, graph.schema, names)
            relations[names] = RelationAggregates.build(RelationContext(graph, number), wanted, named)
        return cls(graph.schema, relations, graph.store, Origin.of(data))

    @classmethod
    def load(
        cls,
        folder: str | Path,
        data: Any,
        *,
        kind: KindByRelation | None = None,
        memory_budget: int | str | None = None,
        threads: int | None = None,
        progress: bool = False,
    ) -> AggregationCache:
        """Reads what `save` wrote. Collective over ranks.

        The number of ranks and the partition may be others than when the cache was saved.

        Args:
            folder: the same on every rank.
            data: the graph and the features that the cache was made of; see `build`.
            kind: the aggregations that are expected, as in `build`; None: any.
            memory_budget, threads, progress: see `build`; the edges are compared in pieces.

        Raises:
            DatasetError: on every rank, where the folder is of another graph, of other features or
                of another aggregation, or where a file is damaged or missing on any rank.
            AgreementError: ranks were given different folders or aggregations.
        """
        settings = PassSettings(check_budget(memory_budget), threads, progress)
        graph, path = context_of(data, threads), Path(folder).expanduser()
        schema = graph.schema
        wanted = None if kind is None else kinds_of(kind, schema)
        meta = graph.run_together(lambda: CacheMeta.read(path))
        expected = None if wanted is None else kinds_by_name(wanted, schema)
        graph.agree({"aggregation cache": meta.digest, "kind": expected})
        found = meta.by_number(path, schema)
        check_kinds(path, found, wanted, schema)
        relations = {}
        for number, one in found.items():
            names, context = schema.relations[number], RelationContext(graph, number)
            check_features(context.features)
            named = _of_relation(settings, schema, names)
            relations[names] = RelationAggregates.load(path, context, one, named)
        return cls(schema, relations, graph.store, Origin.of(data))

    def save(self, folder: str | Path) -> Path:
        """Writes a new folder. Collective over ranks.

        The folder holds META.json and the aggregates by original id. All ranks must see the same
        file system.

        Raises:
            DatasetError: on every rank, if the folder exists or a rank cannot write.
        """
        comm = None if self.store is None else self.store.comm
        return save_rows(Path(folder).expanduser(), [self._saved(one) for one in self.relations], comm)

    def _saved(self, relation: Relation) -> SavedRows:
        schema, one = self.schema, self.relations[relation]
        number = schema.relation_number(relation)
        target = schema.target_types[number]
        node = None if self.store is None else self.store.part.original_ids(target)
        names = None if schema.is_plain else relation
        array = aggregates_array(names)
        return SavedRows(names, array, one.kind, one.fingerprint, node, one.rows)

    def add_to(self, features: DistFeatureStore) -> DistFeatureStore:
        """Returns the features' store with the aggregates as further attributes of nodes."""
        for relation, one in self.relations.items():
            name = self.attribute_of(relation)
            features = features.with_attribute(self._targets(relation), name, one.readable)
        return features

    def check_data(self, data: Data | HeteroData, graph: TypedGraph) -> None:
        """Raises ValueError unless the cache is of this graph and its features, in one process.

        They are compared by fingerprint, unless they are the very tensors that the cache was made
        of. Features that the data does not have are not compared.

        Args:
            data: the user's data.
            graph: its graph.
        """
        if self.origin is not None and self.origin.is_of(data, graph):
            return
        for relation, one in self.relations.items():
            x = features_of(data, relation[0])
            if x is None:
                continue
            number = graph.schema.relation_number(relation)
            if found := differences(one.fingerprint, graph, number, x):
                raise ValueError(
                    f"the aggregation cache is of another graph: data has {', '.join(found)}"
                    f"{f' in {relation}' if graph.schema.has_names else ''}; make one of this data: "
                    f"AggregationCache.build(data, {one.kind.value!r})"
                )


def _of_relation(settings: PassSettings, schema: Schema, relation: Relation) -> PassSettings:
    """Returns the settings of a pass whose progress bar names the relation."""
    return replace(settings, of=f", {'-'.join(relation)}" if schema.has_names else "")
