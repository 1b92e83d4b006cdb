"""The operators that read rows of files beside slow and obvious ones."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyg_batchgnn.ops import Requests, RowFile, RunRule, count_operations, direct_block, read_rows
from tests.support.tiers import examples

SIZE = 300_001  # no whole blocks


@dataclass(frozen=True)
class OpenFile:
    content: np.ndarray
    direct: int
    plain: int


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenFile]:
    path = tmp_path_factory.mktemp("rows") / "bytes"
    content = np.random.default_rng(0).integers(0, 256, SIZE, dtype=np.uint8)
    content.tofile(path)
    files = [os.open(path, os.O_RDONLY | flag) for flag in (getattr(os, "O_DIRECT", 0), 0)]
    yield OpenFile(content, *files)
    for file in files:
        os.close(file)


def operations(rows: RowFile, row: Sequence[int], rule: RunRule) -> list[tuple[int, int]]:
    """The bytes of each operation: what the text of `RunRule` says, block by block."""
    blocks = set[int]()
    last = None
    for one in row:
        begin = rows.offset + one * rows.row_bytes
        own = range(begin // rule.block, (begin + rows.row_bytes - 1) // rule.block + 1)
        if last is not None and (own.start - last) * rule.block <= rule.gap:
            blocks |= set(range(last, own.start))
        blocks |= set(own)
        last = own.stop
    found = []
    for block in sorted(blocks):
        if found and found[-1][1] == block and (block - found[-1][0]) * rule.block < rule.largest:
            found[-1] = (found[-1][0], block + 1)
        else:
            found.append((block, block + 1))
    return [(begin * rule.block, end * rule.block) for begin, end in found]


@st.composite
def reads(draw: st.DrawFn) -> tuple[RowFile, list[int], RunRule]:
    row_bytes = draw(st.one_of(st.integers(1, 64), st.integers(1, 9000)))
    offset = draw(st.one_of(st.just(0), st.integers(0, 5000)))
    rows = (SIZE - offset) // row_bytes
    ends = st.sampled_from(sorted({0, min(1, rows - 1), rows - 1}))
    row = sorted(draw(st.lists(st.one_of(st.integers(0, rows - 1), ends), max_size=40)))
    block = draw(st.sampled_from([512, 4096]))
    gap = draw(st.sampled_from([0, 512, 1000, 4096, 65536]))
    largest = block * draw(st.integers(1, 6))
    return RowFile(offset, row_bytes, rows), row, RunRule(block, gap, largest, draw(st.integers(1, 5)))


@examples(150, deadline=None)
@given(reads(), st.sampled_from([Requests.ANY, Requests.THREADS]), st.booleans(), st.data())
def test_the_bytes_of_the_file(
    opened: OpenFile,
    read: tuple[RowFile, list[int], RunRule],
    requests: Requests,
    is_direct: bool,
    data: st.DataObject,
) -> None:
    rows, row, rule = read
    if is_direct:
        rule = replace(rule, largest=max(rule.largest, direct_block(opened.direct)))
    out = torch.zeros(len(row) + 3, rows.row_bytes, dtype=torch.uint8)
    place = data.draw(st.none() | st.permutations(range(len(out))))
    wanted = out.clone()
    for at, one in enumerate(row):
        begin = rows.offset + one * rows.row_bytes
        found = torch.from_numpy(opened.content[begin : begin + rows.row_bytes].copy())
        wanted[at if place is None else place[at]] = found
    file = opened.direct if is_direct else opened.plain
    places = None if place is None else torch.tensor(place[: len(row)], dtype=torch.int64)
    result = read_rows(file, rows, torch.tensor(row, dtype=torch.int64), out, places, rule, requests)
    assert not result.error and not result.ends
    assert torch.equal(out, wanted)
    asked = operations(rows, row, rule)
    counted = len(asked), sum(end - begin for begin, end in asked)
    assert (result.operations, result.bytes) == counted
    assert count_operations(rows, torch.tensor(row, dtype=torch.int64), rule) == counted


@pytest.mark.parametrize("requests", Requests)
def test_every_way_to_ask(opened: OpenFile, requests: Requests) -> None:
    row, out = torch.arange(0, 3000, 7), torch.zeros(429, 100, dtype=torch.uint8)
    try:
        read_rows(opened.direct, RowFile(1, 100, 3000), row, out, None, RunRule(), requests)
    except RuntimeError as error:
        assert requests is Requests.QUEUE and "io_uring" in str(error)
        return
    assert torch.equal(out, torch.from_numpy(opened.content[1:300_001].reshape(3000, 100)[::7].copy()))


@pytest.mark.parametrize("requests", [Requests.ANY, Requests.THREADS])
@pytest.mark.parametrize("largest", [4096, 1 << 18])
def test_errors_say_where(opened: OpenFile, tmp_path: Path, requests: Requests, largest: int) -> None:
    rows, rule = RowFile(0, 1000, 1000), RunRule(largest=largest)
    out = torch.zeros(1000, 1000, dtype=torch.uint8)
    cut = read_rows(opened.direct, rows, torch.arange(1000), out, None, rule, requests)
    assert cut.ends and cut.error_at == SIZE
    assert torch.equal(out.view(-1)[:4096], torch.from_numpy(opened.content[:4096].copy()))
    with (tmp_path / "written").open("wb") as file:
        refused = read_rows(file.fileno(), rows, torch.tensor([3, 900]), out, None, rule, requests)
    assert refused.error == errno.EBADF and refused.error_at in (0, 897_024)
    closed = read_rows(1 << 20, rows, torch.tensor([5]), out, None, rule, requests)
    assert closed.error == errno.EBADF and closed.error_at == 4096


def test_bad_arguments(opened: OpenFile) -> None:
    rows, out = RowFile(0, 8, 100), torch.zeros(4, 8, dtype=torch.uint8)
    ids = torch.tensor

    def read(row: torch.Tensor, out: torch.Tensor = out, place: torch.Tensor | None = None) -> None:
        read_rows(opened.plain, rows, row, out, place, RunRule())

    for row in ([3, 2], [5, 4, 6]):
        with pytest.raises(ValueError, match="must ascend"):
            read(ids(row))
    for row in ([-1, 3], [3, 100]):
        with pytest.raises(IndexError, match="from 0 to 99"):
            read(ids(row))
    with pytest.raises(TypeError, match="int64"):
        read(ids([1], dtype=torch.int32))
    with pytest.raises(ValueError, match="do not fit"):
        read(torch.arange(5))
    with pytest.raises(ValueError, match="rows of 4 bytes"):
        read(ids([1]), torch.zeros(4, 1))
    with pytest.raises(ValueError, match="contiguous"):
        read(ids([1]), torch.zeros(8, 4, dtype=torch.uint8).t())
    with pytest.raises(IndexError, match="place holds 4"):
        read(ids([1]), place=ids([4]))
    with pytest.raises(ValueError, match="2 places for 1 rows"):
        read(ids([1]), place=ids([0, 1]))
    with pytest.raises(ValueError, match="at least one byte"):
        read_rows(opened.plain, RowFile(0, 0, 4), ids([1]), out, None, RunRule())


@pytest.mark.parametrize(
    "wrong",
    [{"block": 500}, {"block": 1536}, {"gap": -1}, {"largest": 5000}, {"depth": 0}, {"depth": 1 << 20}],
)
def test_bad_rules(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must|under way"):
        RunRule(**wrong)
