"""META.json of a folder that holds an aggregation cache."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pyg_batchgnn.cache.fingerprint import GraphFingerprint
from pyg_batchgnn.cache.kinds import Aggregation
from pyg_batchgnn.data import EDGES, DatasetError, Group, Relation, RowKind, Schema, edge_array
from pyg_batchgnn.data.files import META_FILE, ArrayPromise, broken, missing, read_json, write_json

FORMAT = "pyg_batchgnn.aggregation_cache"
VERSION = 2
_ARRAY = "aggregates"
_ANEW = "make the cache again, or give another folder"


def aggregates_array(relation: Relation | None) -> str:
    """Returns the array of a relation's aggregates, such as `aggregates/author__writes__paper`, or
    `aggregates` for None."""
    return edge_array(_ARRAY, EDGES if relation is None else Group(RowKind.EDGE, relation))


@dataclass(frozen=True)
class RelationMeta:
    """The aggregates of one relation, as META.json has them.

    Attributes:
        relation: the names; None in a graph of one node type and one relation.
        kind: the aggregation.
        fingerprint: of the edges and the features that the aggregates were made of.
        array: the name of the array.
        promise: what its file must be.
    """

    relation: Relation | None
    kind: Aggregation
    fingerprint: GraphFingerprint
    array: str
    promise: ArrayPromise

    @property
    def dtype(self) -> torch.dtype:
        """The type of the aggregates."""
        dtype: torch.dtype = getattr(torch, self.promise.dtype)
        return dtype

    def file(self, folder: Path) -> Path:
        """Returns the file of the aggregates."""
        return folder / f"{self.array}.npy"

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON values, the promise left out."""
        return {
            "relation": None if self.relation is None else list(self.relation),
            "aggregation": self.kind.value,
            "made_of": self.fingerprint.to_dict(),
            "array": self.array,
        }

    @classmethod
    def from_json(cls, said: Mapping[str, Any], arrays: Mapping[str, Any]) -> RelationMeta:
        """Reads what `to_json` returned.

        Raises:
            KeyError, TypeError, ValueError: an entry is missing or of the wrong type.
        """
        relation = None
        if said["relation"] is not None:
            source, name, target = map(str, said["relation"])
            relation = source, name, target
        if said["array"] != aggregates_array(relation):
            raise ValueError(f"the array of {relation} is {said['array']!r}")
        return cls(
            relation,
            Aggregation(said["aggregation"]),
            GraphFingerprint.from_dict(said["made_of"]),
            str(said["array"]),
            ArrayPromise.from_json(arrays[said["array"]]),
        )

    def check(self, path: Path) -> None:
        """Raises DatasetError unless the promise is one of aggregates. ``path``: META.json."""
        shape = (self.fingerprint.num_nodes, self.fingerprint.columns)
        if self.promise.shape != shape:
            fact = f"shape is {list(self.promise.shape)}, made of {list(shape)}"
            raise broken(path, self.array, fact, _ANEW)
        if self.promise.dtype not in ("float32", "float64", "bfloat16"):
            fact = f"dtype is {self.promise.dtype!r}, which no aggregates have"
            raise broken(path, self.array, fact, _ANEW)

    def check_fingerprint(self, folder: Path, seen: GraphFingerprint) -> None:
        """Raises DatasetError unless the aggregates were made of the data that was seen."""
        if differences := self.fingerprint.differences(seen):
            where = "" if self.relation is None else f" in the relation {self.relation}"
            raise DatasetError(
                f"{folder}: the aggregation cache was made of other data: the graph has "
                f"{', '.join(differences)}{where}; {_ANEW}"
            )


@dataclass(frozen=True)
class CacheMeta:
    """Contents of META.json.

    Attributes:
        relations: the aggregates of each relation.
        digest: SHA-256 of META.json, by which ranks see that they read the same folder.
    """

    relations: Sequence[RelationMeta]
    digest: str = ""

    def write(self, folder: Path) -> None:
        """Writes META.json."""
        content = {
            "format": FORMAT,
            "version": VERSION,
            "relations": [one.to_json() for one in self.relations],
            "arrays": {one.array: one.promise.to_json() for one in self.relations},
        }
        write_json(folder / META_FILE, content)

    @classmethod
    def read(cls, folder: Path) -> CacheMeta:
        """Reads and checks META.json.

        Raises:
            DatasetNotFoundError: no such file.
            DatasetError: the file is damaged, or of another format or version.
        """
        path = folder / META_FILE
        if not path.is_file():
            raise missing(path, "META", "give a folder that AggregationCache.save wrote")
        content = read_json(path)
        for key, known in (("format", FORMAT), ("version", VERSION)):
            if content.get(key) != known:
                raise broken(path, key, f"is {content.get(key)!r}, expected {known!r}", _ANEW)
        try:
            relations = [RelationMeta.from_json(one, content["arrays"]) for one in content["relations"]]
        except (KeyError, TypeError, ValueError) as error:
            raise broken(path, "contents", f"damaged ({error!r})", _ANEW) from error
        for at, one in enumerate(relations):
            one.check(path)
            if any(one.relation == other.relation for other in relations[:at]):
                raise broken(path, "relations", f"has {one.array!r} twice", _ANEW)
        return cls(relations, hashlib.sha256(path.read_bytes()).hexdigest())

    def by_number(self, folder: Path, schema: Schema) -> dict[int, RelationMeta]:
        """Returns the aggregates by number of the relation in a graph.

        Raises:
            DatasetError: they are of relations that the graph does not have.
        """
        numbers: dict[Relation | None, int] = {None: 0}
        if not schema.is_plain:
            numbers = {relation: number for number, relation in enumerate(schema.relations)}
        for one in self.relations:
            if one.relation not in numbers:
                held = one.relation or "a graph of one node type and one relation"
                raise DatasetError(
                    f"{folder}: holds aggregates of {held}, but the graph has the relations "
                    f"{list(schema.relations)}; {_ANEW}"
                )
        return dict(sorted((numbers[one.relation], one) for one in self.relations))


def check_kinds(
    folder: Path, found: Mapping[int, RelationMeta], wanted: Mapping[int, Aggregation] | None, schema: Schema
) -> None:
    """Raises DatasetError if a folder holds others than the wanted aggregations.

    Args:
        folder: of the cache.
        found: what it holds, by number of the relation.
        wanted: the aggregation by number of the relation; None: any.
        schema: of the graph.
    """
    if wanted is None:
        return
    for number in sorted({*found, *wanted}):
        held, kind = found.get(number), wanted.get(number)
        if held is None or held.kind is not kind:
            what = "no aggregates" if held is None else f"aggregates by {held.kind.value}"
            of_relation = "" if schema.is_plain else f" of the relation {schema.relations[number]}"
            asked = "none is" if kind is None else f"{kind.value} is"
            raise DatasetError(f"{folder}: holds {what}{of_relation}, but {asked} wanted; {_ANEW}")
