"""The features of tables: encoders of columns, fitted to training rows and stored."""

from __future__ import annotations

import contextlib
import json
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pyg_batchgnn.data import EDGE_FEATURES, FEATURES, LABELS, DatasetError
from pyg_batchgnn.data.files import NpyAppender
from pyg_batchgnn.tables.description import ColumnFeature, TimeColumn
from pyg_batchgnn.tables.rows import RowCheck
from pyg_batchgnn.tables.source import RawTable, need
from pyg_batchgnn.tables.values import (
    MOST,
    MOST_DOUBLE,
    Parsed,
    as_categories,
    as_texts,
    calendar,
    flat,
    hash_texts,
    is_text,
    is_vector,
    missing_in,
    places_among,
    to_booleans,
    to_numbers,
    to_times,
)

#: By default: the categories that get a column, and those that get an id.
_ONE_HOT, _IDS = 64, 1_000_000
_SAMPLE = 1_000_000  # The most training rows that quantiles are taken from, spread evenly.


class Encoder:
    """Makes columns of features from a column of a table. A subclass reads values with `parse`,
    learns from training rows with `see`, and returns with `state` what it has learned. `names` and
    `encode` use ``learned``, a former `state`. ``where``: the column in errors. ``rows``: how many
    training rows will come."""

    def __init__(
        self, where: str, spec: ColumnFeature, rows: int = 0, learned: Mapping[str, Any] | None = None
    ) -> None:
        self.where, self.spec, self.rows, self.learned = where, spec, rows, dict(learned or {})
        self.begin()

    def begin(self) -> None:
        """Prepares for learning."""

    def parse(self, array: Any) -> Parsed:
        """Returns the values before they are scaled. Raises `DatasetError` if the column's type
        does not fit the encoder."""
        missing = missing_in(array)
        return Parsed(missing, missing, np.zeros(len(missing), np.bool_))

    def see(self, array: Any) -> None:
        """Learns from some training rows; successive calls get successive rows."""

    def state(self) -> dict[str, Any]:
        """Returns what was learned, for JSON."""
        return {}

    def names(self) -> list[str]:
        """Returns the meaning of each column of features."""
        raise NotImplementedError

    def encode(self, array: Any) -> np.ndarray:
        """Returns [n, columns] float32; the encoder "ids" returns [n] int64."""
        raise NotImplementedError


class _Number(Encoder):
    """Numbers with mean 0 and deviation 1. A missing one is 0, with a flag in a second column."""

    def begin(self) -> None:
        self.count, self.mean, self.squares, self.has_missing = 0, 0.0, 0.0, False

    most = MOST

    def parse(self, array: Any) -> Parsed:
        return to_numbers(array, self.where, self.most)

    def scaled(self, values: np.ndarray) -> np.ndarray:
        return values

    def see(self, array: Any) -> None:
        found = self.parse(array)
        self.has_missing |= bool(found.missing.any())
        values = self.scaled(found.values[~found.missing])
        if not len(values):
            return
        mean = float(values.mean())
        squares = float(np.square(values - mean).sum())
        count = self.count + len(values)
        apart = mean - self.mean
        self.squares += squares + apart * apart * self.count * len(values) / count
        self.mean += apart * len(values) / count
        self.count = count

    def state(self) -> dict[str, Any]:
        deviation = (self.squares / self.count) ** 0.5 if self.count else 0.0
        return {"mean": self.mean, "deviation": deviation or 1.0, "has_missing": self.has_missing}

    def names(self) -> list[str]:
        return ["", "missing"] if self.learned["has_missing"] else [""]

    def encode(self, array: Any) -> np.ndarray:
        found = self.parse(array)
        values = self.scaled(np.where(found.missing, 0.0, found.values))
        values = np.where(found.missing, 0.0, (values - self.learned["mean"]) / self.learned["deviation"])
        columns = [values, found.missing] if self.learned["has_missing"] else [values]
        return np.stack(columns, axis=1).astype(np.float32)


class _Log(_Number):
    """Like `_Number`, of the logarithm of 1 + the absolute number, with the number's sign."""

    most = MOST_DOUBLE

    def scaled(self, values: np.ndarray) -> np.ndarray:
        return np.sign(values) * np.log1p(np.abs(values))


class _Quantile(_Number):
    """The share of training rows with smaller numbers, scaled to mean 0 and deviation 1."""

    most = MOST_DOUBLE / 2  # so that differences are finite

    def begin(self) -> None:
        super().begin()
        self.seen, self.every = 0, -(-max(self.rows, 1) // _SAMPLE)
        self.sample: list[np.ndarray] = []

    def see(self, array: Any) -> None:
        found = self.parse(array)
        self.has_missing |= bool(found.missing.any())
        start = -self.seen % self.every
        self.seen += len(found.values)
        self.sample.append(found.values[start :: self.every][~found.missing[start :: self.every]])

    def state(self) -> dict[str, Any]:
        sample = np.concatenate(self.sample) if self.sample else np.zeros(0)
        steps = min(len(sample), 1_000 + 1)  # the ends of quantiles
        cuts = np.quantile(sample, np.linspace(0, 1, steps)) if steps else np.zeros(0)
        return {"mean": 0.5, "deviation": 12**-0.5, "has_missing": self.has_missing, "cuts": cuts.tolist()}

    def scaled(self, values: np.ndarray) -> np.ndarray:
        cuts = np.asarray(self.learned["cuts"])
        if len(cuts) < 2:
            return np.full(len(values), 0.5)
        distinct, first = np.unique(cuts, return_index=True)
        last = len(cuts) - 1 - np.unique(cuts[::-1], return_index=True)[1]
        return np.interp(values, distinct, (first + last) / 2 / (len(cuts) - 1), left=0.0, right=1.0)


class _Boolean(_Number):
    """0 and 1. A missing value is 0, with a flag in a second column."""

    def parse(self, array: Any) -> Parsed:
        return to_booleans(array, self.where)

    def see(self, array: Any) -> None:
        self.has_missing |= bool(self.parse(array).missing.any())

    def state(self) -> dict[str, Any]:
        return {"mean": 0.0, "deviation": 1.0, "has_missing": self.has_missing}


class _Category(Encoder):
    """One column per category, and one for all others. A missing category is 0 in all columns."""

    limit = _ONE_HOT

    def begin(self) -> None:
        self.counts: Counter[str] = Counter()
        self.known = self.others = 0

    def see(self, array: Any) -> None:
        for pair in as_categories(array, self.where).value_counts().to_pylist():
            if pair["values"] is not None:
                self.counts[pair["values"]] += pair["counts"]

    def state(self) -> dict[str, Any]:
        limit = self.spec.limit or self.limit
        most = sorted(self.counts, key=lambda one: (-self.counts[one], one))[:limit]
        return {"categories": sorted(most)}

    def names(self) -> list[str]:
        return [*self.learned["categories"], "other"]

    def places(self, array: Any) -> tuple[np.ndarray, np.ndarray]:
        """Returns each row's category, as an index, the last for others; and which are missing."""
        names, missing = self.learned["categories"], missing_in(array)
        found = places_among(array, names, self.where)
        self.known += int((found >= 0).sum())
        self.others += int((found[~missing] < 0).sum())
        return np.where(found < 0, len(names), found), missing

    def encode(self, array: Any) -> np.ndarray:
        places, missing = self.places(array)
        return _one_hot(places, missing, len(self.learned["categories"]) + 1)


def _one_hot(places: np.ndarray, missing: np.ndarray, columns: int) -> np.ndarray:
    found = np.zeros((len(places), columns), np.float32)
    there = np.flatnonzero(~missing)
    found[there, places[there]] = 1
    return found


class _Hashed(Encoder):
    """One column per bucket, chosen by a hash of the category (`hash_texts`)."""

    def state(self) -> dict[str, Any]:
        return {"plain": True}  # earlier releases hashed texts as they were

    def names(self) -> list[str]:
        return [f"bucket {at}" for at in range(self.spec.buckets)]

    def encode(self, array: Any) -> np.ndarray:
        texts = (as_categories if self.learned.get("plain") else as_texts)(array, self.where)
        missing = missing_in(texts)
        buckets = hash_texts(texts) % np.uint64(self.spec.buckets)
        return _one_hot(buckets.astype(np.int64), missing, self.spec.buckets)


class _Ids(_Category):
    """An id per category, for a learned embedding: 0 missing, 1 others, 2 the first category."""

    limit = _IDS

    def names(self) -> list[str]:
        return []

    def encode(self, array: Any) -> np.ndarray:
        places, missing = self.places(array)
        others = places == len(self.learned["categories"])
        return np.where(missing, 0, np.where(others, 1, places + 2))


class _Calendar(Encoder):
    """Sine and cosine of each part of the calendar. A missing time is 0 in all columns."""

    def parse(self, array: Any) -> Parsed:
        kind, types = array.type, need("pyarrow").types
        if types.is_integer(kind) and self.spec.unit is None:
            raise DatasetError(f'{self.where}: has whole numbers; give unit, as in unit = "s"')
        return to_times(array, TimeColumn("", self.spec.unit, self.spec.timezone), "s", self.where)

    def names(self) -> list[str]:
        return [f"{one} of {part}" for part in self.spec.parts for one in ("sine", "cosine")]

    def encode(self, array: Any) -> np.ndarray:
        found = self.parse(array)
        shares = calendar(found.values)
        angles = 2 * np.pi * np.stack([shares[part] for part in self.spec.parts], axis=1)
        waves = np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(len(angles), -1)
        return np.where(found.missing[:, None], 0, waves).astype(np.float32)


class _List(Encoder):
    """Vectors of one length, as they are. A missing one is 0 in all columns."""

    def begin(self) -> None:
        self.length: int | None = None

    def parse(self, array: Any) -> Parsed:
        array = flat(array)
        missing = missing_in(array)
        values, lengths = self._vectors(array)
        known = lengths[~missing]
        if self.length is None and len(known):
            self.length = int(known[0])
        bad = ~missing & (lengths != (self.length or 0))
        wrong = ~(np.abs(values) <= MOST)
        if wrong.any():
            bad |= np.bincount(np.repeat(np.arange(len(lengths)), lengths)[wrong], minlength=len(lengths)) > 0
        return Parsed(values, missing, bad)

    def _vectors(self, array: Any) -> tuple[np.ndarray, np.ndarray]:
        """Returns all numbers, row after row, and how many each row has."""
        pa, pc = need("pyarrow"), need("pyarrow.compute")
        if is_text(array.type):
            array = pa.array([_vector(one) for one in array.to_pylist()], pa.list_(pa.float64()))
        if not is_vector(array.type):
            fact = f"has the type {array.type}, expected lists of numbers"
            raise DatasetError(f"{self.where}: {fact}; give another column or encoder")
        lengths = np.asarray(
            pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False), np.int64
        )
        numbers = pc.list_flatten(array).cast(pa.float64())
        return np.asarray(numbers.to_numpy(zero_copy_only=False), np.float64), lengths

    def see(self, array: Any) -> None:
        self.parse(array)

    def state(self) -> dict[str, Any]:
        return {"length": self.length or 0}

    def names(self) -> list[str]:
        return [str(at) for at in range(self.learned["length"])]

    def encode(self, array: Any) -> np.ndarray:
        values, lengths = self._vectors(flat(array))
        if wrong := next((int(one) for one in lengths if one not in (0, self.learned["length"])), None):
            raise DatasetError(
                f"{self.where}: has a list of {wrong} numbers, expected {self.learned['length']}"
            )
        found = np.zeros((len(lengths), self.learned["length"]), np.float32)
        if len(values):
            found[lengths > 0] = values.reshape(-1, self.learned["length"])
        return found


def _vector(text: str | None) -> list[float] | None:
    if text is None:
        return None
    try:
        found = json.loads(text)
        return [float(one) for one in found]
    except (ValueError, TypeError):
        return []


_ENCODERS: dict[str, type[Encoder]] = {
    "number": _Number,
    "log": _Log,
    "quantile": _Quantile,
    "boolean": _Boolean,
    "category": _Category,
    "hashed": _Hashed,
    "ids": _Ids,
    "calendar": _Calendar,
    "list": _List,
}


def encoder_of(
    where: str, spec: ColumnFeature, rows: int = 0, learned: Mapping[str, Any] | None = None
) -> Encoder:
    """Returns the encoder of a column. ``rows``: how many training rows it will see. ``learned``:
    what it has learned, or None."""
    return _ENCODERS[spec.encoder](where, spec, rows, learned)


@dataclass(frozen=True, eq=False)
class FeaturesOfRows:
    """The features of one table."""

    table: RawTable
    spec: Mapping[str, ColumnFeature]  # by column

    def _encoder(self, column: str, rows: int = 0, learned: Mapping[str, Any] | None = None) -> Encoder:
        self.table.type_of(column, f"features.{column}")
        return encoder_of(f"{self.table.where}: features.{column}", self.spec[column], rows, learned)

    def checks(self) -> list[RowCheck]:
        """Returns checks that find bad values, in one pass over the rows. Raises `DatasetError` if
        a column is missing, or has a type that its encoder cannot read."""
        found = []
        for column, spec in self.spec.items():
            encoder = self._encoder(column)
            nothing = need("pyarrow").array([], self.table.schema.field(column).type)
            encoder.parse(nothing)  # an error where the type does not fit
            if spec.encoder == "ids" and column in (FEATURES, LABELS, EDGE_FEATURES, "time"):
                raise DatasetError(
                    f"{self.table.where}: features.{column}: ids become an attribute of the column's name, "
                    f"which is taken; rename the column"
                )
            if spec.encoder in ("category", "hashed", "ids"):
                as_texts(nothing, encoder.where)
            else:
                found.append(RowCheck(column, encoder.parse))
        return found

    def fit(self, training: np.ndarray) -> dict[str, Any]:
        """Learns from the rows ``training``, [rows] bool. Returns each encoder's state."""
        encoders = {column: self._encoder(column, int(training.sum())) for column in self.spec}
        if encoders:
            for first, chunk in self.table.chunks(list(encoders)):
                wanted = training[first : first + len(chunk)]
                if not wanted.any():
                    continue
                here = chunk if wanted.all() else chunk.filter(need("pyarrow").array(wanted))
                for column, encoder in encoders.items():
                    encoder.see(here.column(column))
        return {column: encoder.state() for column, encoder in encoders.items()}

    def names(self, states: Mapping[str, Any]) -> list[list[str]]:
        """Returns [table's column, meaning] of each column of features."""
        return [
            [column, name]
            for column in self.spec
            for name in self._encoder(column, learned=states[column]).names()
        ]

    def write(
        self, states: Mapping[str, Any], kept: np.ndarray, file: Callable[[str], Path], name: str
    ) -> list[Path]:
        """Writes the features of some rows, and ids as attributes of their own. Returns the files.
        ``states``: of `fit`. ``kept``: [rows] bool, the rows. ``file``: gives an attribute's file.
        ``name``: the features' attribute."""
        encoders = {column: self._encoder(column, learned=states[column]) for column in self.spec}
        dense = [column for column in encoders if self.spec[column].encoder != "ids"]
        width = len(self.names(states))
        writers = {column: NpyAppender(file(column), np.int64) for column in encoders if column not in dense}
        if width:
            writers[name] = NpyAppender(file(name), np.float32, (width,))
        if not writers:
            return []
        with contextlib.ExitStack() as open_files:
            for writer in writers.values():
                open_files.enter_context(writer)
            for first, chunk in self.table.chunks(list(encoders)):
                here = kept[first : first + len(chunk)]
                chunk = chunk if here.all() else chunk.filter(need("pyarrow").array(here))
                with np.errstate(over="ignore"):
                    blocks: Any = {one: of.encode(chunk.column(one)) for one, of in encoders.items()}
                for column in dense:
                    if not np.isfinite(blocks[column]).all():
                        fact = "a value is too far from those of training for float32; correct it"
                        raise DatasetError(f'{encoders[column].where}: {fact}, or use "quantile"')
                blocks[name] = np.concatenate([blocks[one] for one in dense], 1) if width else None
                for column, writer in writers.items():
                    writer.append(blocks[column])
        for of in encoders.values():
            if isinstance(of, _Category) and of.others and not of.known:
                fact = f'no row has a category that was learned, so all {of.others:,} count as "other"'
                warnings.warn(
                    f"{of.where}: {fact}; compare new values with old ones", UserWarning, stacklevel=2
                )
        return [file(column) for column in writers]
