"""Random graphs in tables, and what a conversion must make of them, in plain Python."""

from __future__ import annotations

import csv
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from pyg_batchgnn.tables import ColumnFeature, EdgeTable, ForeignKey, GraphDescription, NodeTable, TimeColumn

EPOCH = datetime(2024, 1, 1, tzinfo=timezone.utc)
#: A key of each kind for a number.
KEYS: dict[str, Any] = {
    "text": lambda at: (f"k-{at:x}",),
    "odd text": lambda at: (("", "a,b", 'quo"te', "ü", "O'Neill", " blank ")[at % 6] + f"/{at}",),
    "whole": lambda at: (at * 977 - 50,),
    "hash": lambda at: ((at * 0x9E3779B97F4A7C15 + 1) % 2**64,),
    "uuid": lambda at: (uuid.UUID(int=at * 0x1234567890ABCDEF1234567).bytes,),
    "date": lambda at: (date(2020, 1, 1) + timedelta(days=at),),
    "bytes": lambda at: (bytes([at % 251, at // 251, 7]),),
    "decimal": lambda at: (Decimal(at) / 4,),
    "two columns": lambda at: (f"bank{at % 3}", at // 3),
}
TYPES: dict[str, list[Any]] = {
    "hash": [pa.uint64()],
    "uuid": [pa.uuid() if hasattr(pa, "uuid") else pa.binary(16)],
    "bytes": [pa.binary()],
    "decimal": [pa.decimal128(12, 2)],
}


@dataclass
class TableGraph:
    """Users, items that only links name, and the links. All by number; -1 stands for none.

    ``order``, ``friend`` and ``amount`` have the user of each row, its friend in a foreign key, and
    its feature (None is missing). Links are (user, item, second). Files begin at the rows ``cuts``.
    """

    kind: str
    order: list[int]
    friend: list[int]
    amount: list[float | None]
    links: list[tuple[int, int, int]]
    cuts: tuple[int, int]

    def key(self, user: int) -> tuple[Any, ...]:
        return (None,) * len(KEYS[self.kind](0)) if user < 0 else KEYS[self.kind](user)

    def write(self, folder: Path, form: str, group: int = 3) -> GraphDescription:
        """Writes the tables as "parquet" or "csv", in several files; returns their description."""
        folder.mkdir(parents=True, exist_ok=True)
        width = len(self.key(0))
        names = [f"id {at}" for at in range(width)]
        friends = [f"friend{at}" for at in range(width)]
        types = TYPES.get(self.kind)
        kinds = dict(zip(names, types or [], strict=False)) | dict(zip(friends, types or [], strict=False))
        users = {
            **columns(names, [self.key(one) for one in self.order]),
            **columns(friends, [self.key(one) for one in self.friend]),
            "amount": self.amount,
        }
        links = {
            **columns(friends, [self.key(one) for one, _, _ in self.links]),
            "item": [f"item {one:02}" for _, one, _ in self.links],
            "at": [EPOCH + timedelta(seconds=one) for _, _, one in self.links],
        }
        kinds |= {"amount": pa.float64(), "item": pa.string(), "at": pa.timestamp("us", "UTC")}
        write_parts(folder, "users", users, kinds, (0, self.cuts[0], len(self.order)), form, group)
        write_parts(folder, "links", links, kinds, (0, self.cuts[1], len(self.links)), form, group)
        ending = f".*.{form}"
        return GraphDescription(
            {
                "user": NodeTable(
                    (f"users{ending}",),
                    tuple(names),
                    foreign_keys={"knows": ForeignKey(tuple(friends), "user")},
                    features={"amount": ColumnFeature("number")},
                )
            },
            {
                ("user", "buys", "item"): EdgeTable(
                    (f"links{ending}",), tuple(friends), ("item",), TimeColumn("at")
                )
            },
            folder=folder,
        )

    def expected(self) -> dict[str, np.ndarray]:
        ids = {user: at for at, user in enumerate(self.order)}
        items = {one: at for at, one in enumerate(sorted({item for _, item, _ in self.links}))}
        knows = [(at, ids[one]) for at, one in enumerate(self.friend) if one >= 0]
        buys = [(ids[user], items[item]) for user, item, _ in self.links]
        start = int(EPOCH.timestamp()) * 10**6
        found = {
            "edge_index/user__knows__user": pairs(knows),
            "edge_index/user__rev_knows__user": pairs([pair[::-1] for pair in knows]),
            "edge_index/user__buys__item": pairs(buys),
            "edge_index/item__rev_buys__user": pairs([pair[::-1] for pair in buys]),
            "nodes/user/x": self.features(),
        }
        times = np.asarray([start + at * 10**6 for _, _, at in self.links], np.int64)
        return found | {f"edges/{one}/time": times for one in ("user__buys__item", "item__rev_buys__user")}

    def features(self) -> np.ndarray:
        known = np.asarray([one for one in self.amount if one is not None])
        mean, deviation = (known.mean(), known.std()) if len(known) else (0.0, 0.0)
        rows = [
            [0.0, 1.0] if one is None else [(one - mean) / (deviation or 1.0), 0.0] for one in self.amount
        ]
        return np.asarray(rows, np.float32)[:, : 2 if None in self.amount else 1]


def pairs(edges: Sequence[tuple[int, int]]) -> np.ndarray:
    return np.asarray(edges, np.int32).reshape(-1, 2).T


def columns(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> dict[str, list[Any]]:
    return {name: [row[at] for row in rows] for at, name in enumerate(names)}


def write_parts(
    folder: Path,
    name: str,
    table: dict[str, list[Any]],
    kinds: dict[str, Any],
    cuts: Sequence[int],
    form: str,
    group: int,
) -> None:
    """Writes rows to files whose numbers are in order, but whose names are not: 9, 10, 11."""
    for number, (begin, end) in enumerate(pairwise(cuts), start=9):
        part = {column: values[begin:end] for column, values in table.items()}
        file = folder / f"{name}.{number}.{form}"
        if form == "csv":
            with file.open("w", newline="", encoding="utf-8") as stream:
                writer = csv.writer(stream)
                writer.writerow(part)
                writer.writerows(
                    zip(*([shown(one) for one in column] for column in part.values()), strict=True)
                )
            continue
        arrays = {
            column: pa.array(values, kinds.get(column) or kind_of(table[column]))
            for column, values in part.items()
        }
        pq.write_table(pa.table(arrays), file, row_group_size=group)


def kind_of(values: list[Any]) -> Any:
    known = [one for one in values if one is not None]
    return pa.array(known).type if known else pa.string()


def shown(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    return "" if value is None else str(value)


@st.composite
def table_graphs(draw: st.DrawFn, kinds: Sequence[str] = tuple(KEYS)) -> TableGraph:
    count = draw(st.integers(1, 12))
    users = draw(st.permutations(range(count)))
    amounts = st.none() | st.floats(-1e3, 1e3, allow_nan=False).map(lambda one: round(one, 3))
    links = draw(
        st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, 9), st.integers(0, 10**6)), max_size=15)
    )
    return TableGraph(
        draw(st.sampled_from(list(kinds))),
        list(users),
        draw(st.lists(st.integers(-1, count - 1), min_size=count, max_size=count)),
        draw(st.lists(amounts, min_size=count, max_size=count)),
        links,
        (draw(st.integers(0, count)), draw(st.integers(0, len(links)))),
    )
