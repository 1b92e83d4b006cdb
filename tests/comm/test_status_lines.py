"""The status lines in shared memory: the last exchange that a rank entered, whole."""

from __future__ import annotations

import threading

import torch

from pyg_batchgnn.comm.diagnosis import LINE_BYTES, StatusLines


def lines(ranks: int) -> list[StatusLines]:
    memory = {rank: torch.zeros(LINE_BYTES, dtype=torch.uint8) for rank in range(ranks)}
    return [StatusLines(memory, rank) for rank in range(ranks)]


def test_the_last_exchange_of_each_rank_is_read() -> None:
    first, second = lines(2)
    assert first.read(0) is None and first.read(1) is None
    for exchange in range(1, 6):
        second.write(exchange, "x" * exchange)
        assert first.read(1) == second.read(1) == (exchange, "x" * exchange)
    assert second.read(0) is None
    second.write(6, "shorter")
    assert first.read(1) == (6, "shorter")


def test_long_texts_are_cut_off() -> None:
    own, other = lines(2)
    own.write(1, "ä" * 100)
    assert other.read(0) == (1, "ä" * 60)
    own.write(2, "x" + "ä" * 100)
    assert other.read(0) == (2, "x" + "ä" * 59 + "�")


def test_a_reader_sees_whole_statuses_only() -> None:
    writer, reader = lines(2)
    done = threading.Event()

    def write() -> None:
        for exchange in range(1, 20_000):
            writer.write(exchange, f"exchange {exchange} of all" * (1 + exchange % 3))
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    seen = 0
    while not done.is_set():
        found = reader.read(0)
        if found is not None:
            number, text = found
            assert text == f"exchange {number} of all" * (1 + number % 3)
            assert number >= seen
            seen = number
    thread.join()
    assert reader.read(0) == (19_999, "exchange 19999 of all" * 2)
