"""Converts tables to a data folder, step by step and larger than memory."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from pyg_batchgnn import __version__
from pyg_batchgnn.data import DatasetError, Group, Meta, Relation, RowKind, Schema, reverse_of, write_meta
from pyg_batchgnn.data.files import making, read_json, sync_tree, write_json
from pyg_batchgnn.tables.description import EdgeTable, GraphDescription, NodeTable
from pyg_batchgnn.tables.edges import make_edges, make_reverse
from pyg_batchgnn.tables.job import TIME, ConversionJob
from pyg_batchgnn.tables.join import Engine, is_key
from pyg_batchgnn.tables.nodes import make_node_features, make_nodes
from pyg_batchgnn.tables.source import RawTable, expand, open_table, state_of
from pyg_batchgnn.tables.values import common_unit, is_number, natural_unit

#: format, version and name of `tables.json`, which keeps what was fitted
FORMAT, VERSION, TABLES_FILE = "pyg_batchgnn.tables", 1, "tables.json"
_DEFAULT_MEMORY, _LEAST_MEMORY = 4 << 30, 1 << 30


@dataclass(frozen=True)
class Conversion:
    """What `convert` or `apply` made."""

    folder: Path  # the data folder
    nodes: Mapping[str, int]  # the number of nodes by type
    edges: Mapping[Relation, int]  # the number of edges by relation
    #: by node type or relation, as a text: how many rows were set aside, by reason
    bad: Mapping[str, Mapping[str, int]]
    training: str = ""  # the options of `batchgnn train` that say what to predict


def convert(
    description: GraphDescription,
    folder: str | Path,
    *,
    memory_limit: int | None = None,
    threads: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> Conversion:
    """Converts tables to a data folder, which `read_folder` reads.

    >>> convert(GraphDescription.read("shop"), "shop-graph").nodes
    {'customer': 6, 'product': 4}

    The same tables and description give the same bytes, with any threads and memory. A conversion
    that was killed goes on after its last complete step when it is called again.

    Args:
        description: the tables, and what becomes of their columns.
        folder: the new data folder; it must not exist.
        memory_limit: bytes for the whole process, 1 GiB or more. None: 4 GiB, or half of the free
            memory if that is less. What does not fit goes to the disk.
        threads: threads of DuckDB. None: one per processor.
        progress: told the name of each step before it begins.

    Raises:
        DatasetError: a file or a row is wrong, the folder exists, or pyarrow or duckdb is missing.
    """
    return _convert(description, folder, None, memory_limit, threads, progress)


def apply(
    model: str | Path,
    tables: str | Path | GraphDescription,
    folder: str | Path,
    *,
    memory_limit: int | None = None,
    threads: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> Conversion:
    """Converts new tables with the encoders, categories and classes that were fitted to others.

    >>> apply("shop-data", "shop", "shop-today").edges  # the tables of another day
    {('customer', 'orders', 'product'): 12}

    Columns of labels and of splits may be missing. The other arguments are those of `convert`.

    Args:
        model: the data folder of the tables that encoders were fitted to; `convert` made it.
        tables: a description, its file, or a folder of tables with the file names of the model's.
        folder: the new data folder; it must not exist.

    Raises:
        DatasetError: as for `convert`, or the description has other features than the model's.
    """
    file = Path(model).expanduser() / TABLES_FILE
    if not file.is_file():
        raise DatasetError(f"{file}: no such file; give a data folder that batchgnn tables convert wrote")
    fitted = read_json(file)
    if (fitted.get("format"), fitted.get("version")) != (FORMAT, VERSION):
        fact = (
            f"is {fitted.get('format')!r} {fitted.get('version')!r}, this release reads {FORMAT!r} {VERSION}"
        )
        raise DatasetError(f"{file}: format: {fact}; convert the tables again")
    if not isinstance(tables, GraphDescription):
        place = Path(tables).expanduser()
        if place.is_dir() and not (place / "graph.toml").is_file():
            tables = GraphDescription.from_dict(fitted["description"], place, str(file))
        else:
            tables = GraphDescription.read(place)
    return _convert(tables, folder, fitted, memory_limit, threads, progress)


def _convert(
    description: GraphDescription,
    folder: str | Path,
    fitted: dict[str, Any] | None,
    memory_limit: int | None,
    threads: int | None,
    progress: Callable[[str], None] | None,
) -> Conversion:
    limit = memory_limit or max(_LEAST_MEMORY, min(_DEFAULT_MEMORY, psutil.virtual_memory().available // 2))
    if limit < _LEAST_MEMORY:
        raise DatasetError(f"memory_limit: is {limit:,} bytes; give {_LEAST_MEMORY:,} or more")
    path = Path(folder).expanduser()
    states = [
        [where, [state_of(file) for file in expand(where, Path(description.folder), table.files)]]
        for where, table in _tables(description).items()
    ]
    made_of = {
        "version": __version__,
        "said": _as_json(description.to_dict()),
        "files": states,
        "fitted": fitted,
    }
    with making(path, made_of) as journal:
        engine = Engine(journal.work / "spilled", limit, threads or os.cpu_count() or 1)
        try:
            return _run(ConversionJob(description, journal, engine, fitted, progress or (lambda _: None)))
        finally:
            engine.close()


def _tables(description: GraphDescription) -> dict[str, NodeTable | EdgeTable]:
    return {
        **{f"[nodes.{name}]": table for name, table in description.nodes.items()},
        **{f'[edges."{",".join(relation)}"]': table for relation, table in description.edges.items()},
    }


def _run(job: ConversionJob) -> Conversion:
    for number, (where, table) in enumerate(_tables(job.spec).items()):
        job.progress(f"open {where}")
        staged = job.journal.work / "staged" / str(number)
        job.raw[where] = open_table(where, table, Path(job.spec.folder), staged)
    if job.fitted is not None:
        job.spec = _without_absent(job.spec, job.raw)
    _check_columns(job)
    job.unit = _time_unit(job)
    for name in job.spec.types():
        job.step(f"nodes {name}", functools.partial(make_nodes, job, name))
    for name, node in job.spec.nodes.items():
        if node.features:
            job.step(f"features {name}", functools.partial(make_node_features, job, name))
    for relation in job.spec.relations():
        shown = ",".join(relation)
        job.step(f"edges {shown}", functools.partial(make_edges, job, relation))
        if job.spec.has_reverse(relation):
            job.step(f"reverse {shown}", functools.partial(make_reverse, job, relation))
    job.progress("finish")
    return _finish(job)


def _check_columns(job: ConversionJob) -> None:
    for relation, one in job.spec.relations().items():
        if isinstance(one, EdgeTable):
            table = job.table_of(relation)
            _check_keys(job.spec, table, "source", one.source, relation[0])
            _check_keys(job.spec, table, "target", one.target, relation[2])
        else:
            table, name, key = job.table_of(one[0]), f"foreign_keys.{relation[1]}", one[1]
            _check_keys(job.spec, table, name, key.columns, key.type)
    for name, spec in job.spec.nodes.items():
        _check_keys(job.spec, job.table_of(name), "key", spec.key, None)


def _check_keys(
    spec: GraphDescription, table: RawTable, key: str, columns: Sequence[str], end: str | None
) -> None:
    """Raises `DatasetError` unless the columns can be keys. ``end``: the node type that they name;
    None: they are the table's own key."""
    for column in columns:
        kind = table.type_of(column, key)
        if not is_key(kind, own=end is None):
            raise DatasetError(
                f"{table.where}: {key}: {column} has the type {kind}; keys are texts, whole numbers, UUIDs, "
                f"dates, decimals or bytes: choose other columns"
            )
        if end is not None and end in spec.nodes and not spec.nodes[end].key and not is_number(kind):
            raise DatasetError(
                f"{table.where}: {key}: {column} has the type {kind}, but {end} has no key, so its rows are "
                f"named by position; give whole numbers, or name the key under [nodes.{end}]"
            )


def _time_unit(job: ConversionJob) -> str | None:
    units = {}
    for where, spec in _tables(job.spec).items():
        if spec.time is not None:
            kind = job.raw[where].type_of(spec.time.column, "time")
            units[f"{where}: time: {spec.time.column}"] = natural_unit(kind, spec.time)
    found = common_unit(units)
    if job.fitted is not None:
        return job.fitted["time_unit"]
    return found if found is None else job.spec.options.time_unit or found


def _finish(job: ConversionJob) -> Conversion:
    types, relations = job.spec.types(), list(job.spec.relations())
    relations += [reverse_of(one) for one in relations if job.spec.has_reverse(one)]
    nodes = {name: job.facts[f"nodes {name}"]["count"] for name in types}
    has_names = (types, relations) != (["node"], [("node", "to", "node")])
    classes = dict.fromkeys(types, 0) | {str(group): one["count"] for group, one in job.labels().items()}
    name = job.spec.options.name or Path(job.spec.folder).resolve().name
    source = f"Converted from tables by pyg_batchgnn {__version__}."
    folder = job.journal.folder
    schema = Schema(tuple(types), tuple(relations), has_names)
    fitted = _write_tables_file(job)
    origin = {"fitted": fitted}
    write_meta(folder, Meta(name, source, schema, nodes, classes, job.journal.promises, origin))
    if any(table.time is not None for table in _tables(job.spec).values()):
        (folder / "keys").mkdir(exist_ok=True)
        zone = None if job.unit is None else "UTC"
        write_json(folder / "keys" / "times.json", {"unit": job.unit, "timezone": zone})
    sync_tree(folder)
    job.journal.finish()
    edges = {one: job.facts[f"edges {','.join(one)}"]["count"] for one in job.spec.relations()}
    bad = {step.partition(" ")[2]: facts["bad"] for step, facts in job.facts.items() if facts.get("bad")}
    return Conversion(job.journal.path, nodes, edges, bad, training_options(job.spec, job.labels()))


def _write_tables_file(job: ConversionJob) -> str:
    """Writes `tables.json`. Returns a digest of all that was fitted."""
    fitted: dict[str, dict[str, Any]] = {"nodes": {}, "edges": {}}
    for step, facts in job.facts.items():
        kind, _, name = step.partition(" ")
        if kind in ("features", "edges") and facts["states"]:
            where = "nodes" if kind == "features" else "edges"
            fitted[where][name] = {"states": facts["states"], "columns": facts["columns"]}
    labels = {
        one.name if isinstance(one.name, str) else ",".join(one.name): said
        for one, said in job.labels().items()
    }
    spec = json.dumps([fitted, labels, job.unit], sort_keys=True)
    write_json(
        job.journal.folder / TABLES_FILE,
        {
            "format": FORMAT,
            "version": VERSION,
            "package": __version__,
            "description": _as_json(job.spec.to_dict()),
            "time_unit": job.unit,
            "features": fitted,
            "labels": labels,
        },
    )
    return hashlib.sha256(spec.encode()).hexdigest()


def training_options(spec: GraphDescription, labels: Mapping[Group, Mapping[str, Any]]) -> str:
    """Returns the options of `batchgnn train` for the labels or links of a description."""
    for name, table in spec.nodes.items():
        if table.label is not None:
            of_type = f" --node-type {name}" if len(spec.types()) > 1 else ""
            return of_type + _time_option(table)
    for relation, links in spec.edges.items():
        if links.split is not None:
            said, task = labels.get(Group(RowKind.EDGE, relation)), "link"
            if said is not None:
                task = "edge-value" if said["kind"] == "value" else "edge-class"
            return f" --task {task} --edge-type {','.join(relation)}{_time_option(links)}"
    return ""


def _time_option(table: NodeTable | EdgeTable) -> str:
    return f" --time-attr {TIME}" if table.split is not None and table.split.is_by_time else ""


def _as_json(spec: Any) -> Any:
    return json.loads(json.dumps(spec, default=lambda one: one.isoformat()))


def _without_absent(spec: GraphDescription, raw: Mapping[str, RawTable]) -> GraphDescription:
    """Returns the description without labels and splits whose columns new tables lack. Links that
    are not split by time stay edges, all of them, as nothing is learned from them."""

    def present(where: str, table: Any) -> Any:
        names, label, split = raw[where].schema.names, table.label, table.split
        return replace(
            table,
            label=label if label is not None and label.column in names else None,
            split=None if split and split.column and split.column not in names else split,
        )

    nodes = {name: present(f"[nodes.{name}]", node) for name, node in spec.nodes.items()}
    edges = {}
    for relation, edge in spec.edges.items():
        is_link = edge.label is None and (edge.split is None or not edge.split.is_by_time)
        edge = present(f'[edges."{",".join(relation)}"]', edge)
        edges[relation] = replace(edge, split=None) if is_link else edge
    return replace(spec, nodes=nodes, edges=edges)
