"""Values of columns as NumPy arrays: numbers, booleans, times and texts, and which are bad."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timezone
from typing import Any

import numpy as np

from pyg_batchgnn.data import DatasetError
from pyg_batchgnn.tables.description import UNITS, Moment, TimeColumn
from pyg_batchgnn.tables.source import need

_TRUE, _FALSE = ("true", "t", "yes", "y", "1"), ("false", "f", "no", "n", "0")
#: The largest numbers of float32 and of float64.
MOST, MOST_DOUBLE = float(np.finfo(np.float32).max), float(np.finfo(np.float64).max)
#: one unit of time in nanoseconds
_NANOSECONDS = {"D": 86_400 * 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


@dataclass(frozen=True, eq=False)
class Parsed:
    values: np.ndarray  # [n]; undefined where missing or bad
    missing: np.ndarray  # [n] bool, rows without a value
    bad: np.ndarray  # [n] bool, rows with a value that cannot be read


def missing_in(array: Any) -> np.ndarray:
    array = flat(array)
    return np.asarray(array.is_null(nan_is_null=True).to_numpy(zero_copy_only=False), np.bool_)


def flat(array: Any) -> Any:
    pa = need("pyarrow")
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
        if isinstance(array, pa.ChunkedArray):
            array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
    return array


def is_text(kind: Any) -> bool:
    types = need("pyarrow").types
    return types.is_string(kind) or types.is_large_string(kind) or "string_view" in str(kind)


def is_number(kind: Any) -> bool:
    types = need("pyarrow").types
    return bool(types.is_integer(kind) or types.is_floating(kind))


def is_vector(kind: Any) -> bool:
    types = need("pyarrow").types
    if not (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)):
        return False
    of = kind.value_type
    return bool(is_number(of) or types.is_boolean(of) or types.is_decimal(of) or types.is_null(of))


def to_numbers(array: Any, where: str, most: float = MOST) -> Parsed:
    """Returns numbers as float64. NaN is missing; numbers beyond `most` are bad. ``where``: the
    column in errors. Raises `DatasetError` if the column's type has no numbers."""
    pa, types = need("pyarrow"), need("pyarrow").types
    array = flat(array)
    array = array.cast(pa.float64()) if types.is_null(array.type) else array
    kind, missing = array.type, missing_in(array)
    bad = np.zeros(len(array), np.bool_)
    if is_text(kind):
        try:
            values = np.asarray(array.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False))
        except pa.ArrowInvalid:
            values, bad = _each(array, float, missing)
    elif is_number(kind) or types.is_boolean(kind) or types.is_decimal(kind):
        values = np.asarray(array.cast(pa.float64(), safe=False).fill_null(0).to_numpy())
    else:
        raise DatasetError(f"{where}: has the type {kind}, expected numbers; give another column or encoder")
    missing |= np.isnan(values) & ~bad
    return Parsed(values, missing, bad | ~(np.isnan(values) | (np.abs(values) <= most)))


def to_booleans(array: Any, where: str) -> Parsed:
    """Returns booleans, 0 and 1, and usual words as bool. Raises `DatasetError` for other types."""
    types = need("pyarrow").types
    array, kind = flat(array), array.type
    missing = missing_in(array)
    if types.is_boolean(kind):
        values = np.asarray(array.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)
        return Parsed(values, missing, np.zeros(len(values), np.bool_))
    if is_number(kind):
        numbers = to_numbers(array, where)
        bad = ~numbers.missing & (numbers.values != 0) & (numbers.values != 1)
        return Parsed(numbers.values == 1, numbers.missing, bad)
    if not is_text(kind):
        raise DatasetError(f"{where}: has the type {kind}, expected booleans; give another column or encoder")
    words = {**dict.fromkeys(_TRUE, 1.0), **dict.fromkeys(_FALSE, 0.0)}
    values, bad = _each(array, lambda text: words[text.strip().lower()], missing)
    return Parsed(values == 1, missing, bad)


def _each(array: Any, read: Any, missing: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Reads each distinct text once. Returns [n] float64 values, and which are bad."""
    encoded = flat(array.dictionary_encode())
    texts = encoded.dictionary.to_pylist()
    known, wrong = np.zeros(len(texts) + 1), np.zeros(len(texts) + 1, np.bool_)
    for at, text in enumerate(texts):
        try:
            known[at] = read(text)
        except (ValueError, KeyError):
            wrong[at] = True
    codes = np.where(missing, len(texts), encoded.indices.fill_null(0).to_numpy(zero_copy_only=False))
    return known[codes], wrong[codes]


def natural_unit(kind: Any, spec: TimeColumn) -> str | None:
    """Returns the unit of a column of times, from its Arrow type; None: plain integers."""
    types = need("pyarrow").types
    if types.is_timestamp(kind):
        return str(kind.unit)
    if types.is_date(kind):
        return "D"
    if is_text(kind):
        return "us"
    if types.is_floating(kind) and spec.unit is not None:
        return "us" if spec.unit in ("D", "s", "ms") else spec.unit
    return spec.unit


def common_unit(units: dict[str, str | None]) -> str | None:
    """Returns the finest unit. Raises `DatasetError` if only some columns are plain integers."""
    plain = [name for name, unit in units.items() if unit is None]
    dated = {name: unit for name, unit in units.items() if unit is not None}
    if plain and dated:
        raise DatasetError(
            f"{plain[0]}: plain integers cannot be compared with {next(iter(dated))}; give time.unit"
        )
    return max((unit for unit in dated.values()), key=UNITS.index, default=None)


def to_times(array: Any, spec: TimeColumn, unit: str | None, where: str) -> Parsed:
    """Returns times as int64, in units since 1970-01-01 UTC, rounded down; times that do not fit
    are bad. Raises `DatasetError` if the column's type has no times."""
    pa, types = need("pyarrow"), need("pyarrow").types
    array, kind = flat(array), array.type
    missing = missing_in(array)
    nothing = np.zeros(len(array), np.bool_)
    if types.is_integer(kind):
        counts = np.asarray(array.fill_null(0).to_numpy(zero_copy_only=False))
        return _scaled(counts, spec.unit, unit, missing, nothing)
    if types.is_floating(kind) and spec.unit is not None:
        numbers = to_numbers(array, where)
        ratio = _NANOSECONDS[spec.unit] / _NANOSECONDS[unit or spec.unit]
        shown = np.where(numbers.bad | numbers.missing, 0, numbers.values) * ratio
        bad = numbers.bad | (np.abs(shown) >= 2.0**63)
        return Parsed(np.floor(np.where(bad, 0, shown)).astype(np.int64), numbers.missing, bad)
    if is_text(kind):
        array, bad = _read_texts(array, spec, missing)
    elif types.is_date(kind) or types.is_timestamp(kind):
        array, bad = _zoned(array, spec), nothing
    else:
        fact = f"has the type {kind}, expected timestamps, dates, texts, whole numbers"
        raise DatasetError(f"{where}: {fact} or, with time.unit, numbers; give another column")
    stamp = array.type
    counts = np.asarray(array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False), np.int64)
    return _scaled(counts, stamp.unit, unit, missing, bad)


def _scaled(
    values: np.ndarray, have: str | None, want: str | None, missing: np.ndarray, bad: np.ndarray
) -> Parsed:
    """Returns times in another unit; times that int64 does not hold are bad."""
    up, down = (_NANOSECONDS[have], _NANOSECONDS[want]) if have and want else (1, 1)
    most = (2**63 - 1) // max(up // down, 1)
    beyond = ~missing & ((values > most) | (values < -most))
    values = np.where(beyond, 0, values).astype(np.int64)
    return Parsed(values * (up // down) if up >= down else values // (down // up), missing, bad | beyond)


def _zoned(array: Any, spec: TimeColumn) -> Any:
    pa, pc = need("pyarrow"), need("pyarrow.compute")
    if pa.types.is_date(array.type):
        array = array.cast(pa.timestamp("s" if pa.types.is_date32(array.type) else "ms"))
    if array.type.tz is None and spec.timezone != "UTC":
        return pc.assume_timezone(array, spec.timezone, ambiguous="earliest", nonexistent="earliest")
    return array


def _read_texts(array: Any, spec: TimeColumn, missing: np.ndarray) -> tuple[Any, np.ndarray]:
    """Returns ISO 8601 texts as timestamps in microseconds, and which are bad."""
    pa = need("pyarrow")
    for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
        try:
            return _zoned(array.cast(kind), spec), np.zeros(len(array), np.bool_)
        except pa.ArrowInvalid:
            continue
    found, bad = [], np.zeros(len(array), np.bool_)
    for at, text in enumerate(array.to_pylist()):
        value = None
        if not missing[at]:
            try:
                value = _instant(text, spec)
            except ValueError:
                bad[at] = True
        found.append(value)
    return pa.array(found, pa.timestamp("us", "UTC")), bad


def _instant(text: str, spec: TimeColumn) -> datetime:
    found = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    if found.tzinfo is not None:
        return found.astimezone(timezone.utc)
    pa = need("pyarrow")
    stamp = _zoned(pa.array([found], pa.timestamp("us")), spec)[0].as_py()
    return stamp if stamp.tzinfo is not None else stamp.replace(tzinfo=timezone.utc)


def moment(value: Moment, spec: TimeColumn, unit: str | None, where: str) -> int:
    """Returns a bound of a split in the unit of the graph's times. Raises `DatasetError` if it is
    no time of the column's kind."""
    pa = need("pyarrow")
    if isinstance(value, int):
        if spec.unit is None and unit is not None:
            raise DatasetError(f"{where}: is {value}, but the times are dates; give a date as YYYY-MM-DD")
        no = np.zeros(1, np.bool_)
        return int(_scaled(np.asarray([value]), spec.unit, unit, no, no).values[0])
    if unit is None:
        raise DatasetError(f"{where}: is {value!r}, but the times are plain integers; give a number")
    text = value.isoformat() if isinstance(value, date) else value
    found = to_times(pa.array([text]), spec, unit, where)
    if found.bad[0] or found.missing[0]:
        raise DatasetError(f"{where}: {value!r} is no time; give one as 2026-01-31 or 2026-01-31T12:00:00Z")
    return int(found.values[0])


def calendar(values: np.ndarray) -> dict[str, np.ndarray]:
    """Returns hour, weekday, day and month of times in seconds, as fractions of their periods."""
    days = values.astype("datetime64[s]").astype("datetime64[D]")
    months = days.astype("datetime64[M]")
    length = ((months + 1).astype("datetime64[D]") - months.astype("datetime64[D]")).astype(np.int64)
    return {
        "hour": (values % 86_400) / 86_400,
        "weekday": ((days.astype(np.int64) + 3) % 7) / 7,
        "day": (days - months.astype("datetime64[D]")).astype(np.int64) / length,
        "month": (months.astype(np.int64) % 12) / 12,
    }


def as_texts(array: Any, where: str) -> Any:
    """Returns a column as texts, as an export to CSV would: booleans are true and false, times ISO
    8601, bytes hexadecimal. Raises `DatasetError` for lists, maps and structs."""
    pa, types = need("pyarrow"), need("pyarrow").types
    array = flat(array)
    if is_uuid(array.type):
        return uuid_texts(array)
    if types.is_binary(array.type) or types.is_fixed_size_binary(array.type):
        return pa.array([None if one is None else one.hex() for one in array.to_pylist()], pa.string())
    if types.is_nested(array.type):
        fact = f"has the type {array.type}, expected texts, numbers, times or booleans"
        raise DatasetError(f"{where}: {fact}; give another column, or store the type as one of these")
    return array.cast(pa.string())


#: What exports write differently, and how it is written here.
_SPELLINGS = (
    *((r"^(-?\d+)\.0+$", r"\1"), ("^(?i:true)$", "true"), ("^(?i:false)$", "false")),
    (r"(:\d\d)\.0+(Z?)$", r"\1\2"),
)


def as_categories(array: Any, where: str) -> Any:
    """Returns a column as texts, the same for all kinds of files: "1" for 1, 1.0 and "1.0"; "true"
    for True, "True" and "TRUE". NaN is missing."""
    pa, pc, types = need("pyarrow"), need("pyarrow.compute"), need("pyarrow").types
    array = flat(array)
    texts, kind = as_texts(array, where), array.type
    if types.is_floating(kind):
        values = array.cast(pa.float64())
        texts = pc.if_else(pc.is_nan(values), None, texts)
        is_whole = pc.and_(pc.equal(values, pc.floor(values)), pc.less(pc.abs(values), 2.0**63))
        whole = pc.if_else(is_whole, values, 0.0).cast(pa.int64()).cast(pa.string())
        return pc.if_else(is_whole, whole, texts)
    for pattern, plain in (*_SPELLINGS, (r"(\.\d*[1-9])0+$", r"\1"))[: 5 if types.is_decimal(kind) else 4]:
        texts = pc.replace_substring_regex(texts, pattern, plain)
    return texts


def places_among(array: Any, names: Sequence[str], where: str) -> np.ndarray:
    """Returns [n] int64, the index of each value in ``names``, -1 for none. A name that is spelled
    like the value comes before others of the same category."""
    pa, found = need("pyarrow"), []
    plain = as_categories(pa.array(names, pa.string()), where).to_pylist()
    for texts, own in ((as_texts(array, where), names), (as_categories(array, where), plain)):
        known = {name: at for at, name in reversed(list(enumerate(own)))}
        encoded = flat(texts.dictionary_encode())
        of = np.asarray([known.get(one, -1) for one in encoded.dictionary.to_pylist()] + [-1], np.int64)
        found.append(of[encoded.indices.fill_null(len(of) - 1).to_numpy(zero_copy_only=False)])
    return np.where(found[0] < 0, found[1], found[0])


def is_uuid(kind: Any) -> bool:
    return getattr(kind, "extension_name", "") == "arrow.uuid"


_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


def uuid_texts(array: Any) -> Any:
    pa = need("pyarrow")
    storage = array.storage if hasattr(array, "storage") else array
    count = len(storage)
    filled = storage.fill_null(b"\0" * 16)
    raw = np.frombuffer(filled.buffers()[1], np.uint8)[filled.offset * 16 :][: count * 16].reshape(count, 16)
    shown = np.full((count, 36), ord("-"), np.uint8)
    places = [at for at in range(36) if at not in (8, 13, 18, 23)]
    shown[:, places[0::2]], shown[:, places[1::2]] = _HEX[raw >> 4], _HEX[raw & 15]
    offsets = np.arange(count + 1, dtype=np.int32) * 36
    texts = pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(shown))
    return need("pyarrow.compute").if_else(storage.is_null(), None, texts) if storage.null_count else texts


#: The base and the last steps of the hash, from splitmix64.
_BASE, _MIX = 0x9E3779B97F4A7C15, (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


def hash_texts(array: Any) -> np.ndarray:
    """Returns [n] uint64, a hash of each text, the same everywhere and for ever: the polynomial of
    the text's bytes (+ 1) in an odd base modulo 2^64, mixed by splitmix64. A missing text has the
    hash of the empty one."""
    array = flat(array).fill_null("")
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset :][: len(array) + 1].astype(np.int64)
    if not len(array):
        return np.zeros(0, np.uint64)
    data = array.buffers()[2]
    data = np.frombuffer(data if data is not None else b"", np.uint8)[offsets[0] : offsets[-1]]
    starts, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
    powers = np.cumprod(np.full(max(int(lengths.max()), 1), _BASE, np.uint64))
    terms = (data.astype(np.uint64) + np.uint64(1)) * powers[
        np.arange(len(data)) - np.repeat(starts, lengths)
    ]
    sums = np.concatenate([[np.uint64(0)], np.cumsum(terms, dtype=np.uint64)])
    return mixed(sums[starts + lengths] - sums[starts])


def mixed(values: np.ndarray) -> np.ndarray:
    for factor, shift in zip(_MIX, (30, 27), strict=True):
        values = (values ^ (values >> np.uint64(shift))) * np.uint64(factor)
    return values ^ (values >> np.uint64(31))
