"""META.json of a folder that holds an aggregation cache."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import torch

from pyg_batchgnn.cache.fingerprint import GraphFingerprint
from pyg_batchgnn.cache.kinds import Aggregation
from pyg_batchgnn.data import DatasetError
from pyg_batchgnn.data.files import META_FILE, ArrayPromise, broken, missing, read_json, write_json

FORMAT = "pyg_batchgnn.aggregation_cache"
VERSION = 1
ARRAY = "aggregates"
_ANEW = "make the cache again, or give another folder"


@dataclass(frozen=True)
class CacheMeta:
    """Contents of META.json.

    Attributes:
        kind: the aggregation.
        fingerprint: of the graph and the features that the cache was made of.
        promise: what the file of aggregates must be.
        digest: SHA-256 of META.json, by which ranks see that they read the same folder.
    """

    kind: Aggregation
    fingerprint: GraphFingerprint
    promise: ArrayPromise
    digest: str = ""

    @property
    def dtype(self) -> torch.dtype:
        """The type of the aggregates."""
        dtype: torch.dtype = getattr(torch, self.promise.dtype)
        return dtype

    def write(self, folder: Path) -> None:
        """Writes META.json."""
        content = {
            "format": FORMAT,
            "version": VERSION,
            "aggregation": self.kind.value,
            "made_of": self.fingerprint.to_dict(),
            "arrays": {ARRAY: self.promise.to_json()},
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
            promise = ArrayPromise.from_json(content["arrays"][ARRAY])
            made_of = GraphFingerprint.from_dict(content["made_of"])
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            meta = cls(Aggregation(content["aggregation"]), made_of, promise, digest)
        except (KeyError, TypeError, ValueError) as error:
            raise broken(path, "contents", f"damaged ({error!r})", _ANEW) from error
        shape = (made_of.num_nodes, made_of.columns)
        if promise.shape != shape:
            fact = f"shape is {list(promise.shape)}, made of {list(shape)}"
            raise broken(path, ARRAY, fact, _ANEW)
        if promise.dtype not in ("float32", "float64", "bfloat16"):
            raise broken(path, ARRAY, f"dtype is {promise.dtype!r}, which no aggregates have", _ANEW)
        return meta

    def check_kind(self, folder: Path, wanted: Aggregation | None) -> None:
        """Raises DatasetError if another aggregation is wanted."""
        if wanted not in (None, self.kind):
            raise DatasetError(
                f"{folder}: holds aggregates by {self.kind.value}, but {wanted.value} is wanted; {_ANEW}"
            )

    def check_fingerprint(self, folder: Path, seen: GraphFingerprint) -> None:
        """Raises DatasetError unless the cache was made of the data that was seen."""
        if differences := self.fingerprint.differences(seen):
            raise DatasetError(
                f"{folder}: the aggregation cache was made of other data: the graph has "
                f"{', '.join(differences)}; {_ANEW}"
            )
