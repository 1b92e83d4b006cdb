"""The store's reader: answers, absent answers, and questions of several threads at once."""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from torch.distributed import HashStore, Store

from pyg_batchgnn.comm.diagnosis import StoreReader


@pytest.fixture
def reader() -> StoreReader:
    store = HashStore()
    store.set("key", "value")
    return StoreReader(store)


def look(store: Store) -> bytes:
    return store.get("key")


def test_an_error_of_the_store_is_no_answer(reader: StoreReader) -> None:
    def fail(store: Store) -> bytes:
        raise RuntimeError("the store is gone")

    assert reader.ask(fail, 5.0) is None
    assert reader.ask(look, 5.0) == b"value"


def test_a_question_without_an_answer_keeps_nobody_longer_than_told(reader: StoreReader) -> None:
    answered = threading.Event()

    def wait(store: Store) -> bytes:
        answered.wait(60)
        return b"late"

    with ThreadPoolExecutor(2) as pool:
        started = time.monotonic()
        lost = pool.submit(reader.ask, wait, 0.2)
        time.sleep(0.05)
        assert reader.ask(look, 30.0) is None, "the connection is taken"
        assert lost.result() is None
        assert reader.ask(look, 30.0) is None
        assert time.monotonic() - started < 20
    answered.set()
    deadline = time.monotonic() + 30
    while reader.ask(look, 5.0) != b"value":
        assert time.monotonic() < deadline


def test_threads_ask_at_the_same_time(reader: StoreReader) -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: reader.ask(look, 60.0), range(400)))
    finally:
        sys.setswitchinterval(interval)
    assert answers == [b"value"] * 400
