"""The ranks of each attempt share a new namespace, whatever earlier attempts left in the store."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from torch.distributed import HashStore, Store, TCPStore

from pyg_batchgnn.comm import PeerError
from pyg_batchgnn.comm.communicator import fresh_namespace


def meet(stores: Sequence[Store], order: Sequence[int], timeout: float = 20.0) -> list[str]:
    """Returns what rank 0 wrote in the namespace, as each rank reads it.

    Ranks come in ``order``.
    """
    size = len(stores)

    def rank(number: int) -> str:
        time.sleep(0.02 * order.index(number))
        namespace = fresh_namespace(stores[number], number, size, timeout)
        if number == 0:
            assert not namespace.check(["said"]), "nobody was here before"
            namespace.set("said", f"{random.random()}")
        namespace.wait(["said"], timedelta(seconds=timeout))
        return namespace.get("said").decode()

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(rank, range(size)))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_each_attempt_has_its_own_namespace(order: tuple[int, ...]) -> None:
    host = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    # One connection per rank, as processes have. While a rank waits, no other can use it.
    stores = [TCPStore("127.0.0.1", host.port, is_master=False) for _ in range(3)]
    said = [meet(stores, order) for _ in range(3)]
    assert all(len(set(attempt)) == 1 for attempt in said)
    assert len({attempt[0] for attempt in said}) == 3


def test_an_attempt_may_have_another_number_of_ranks() -> None:
    store = HashStore()
    assert [len(set(meet([store] * size, range(size)))) for size in (3, 2, 4, 1)] == [1, 1, 1, 1]


def test_ranks_that_died_before_they_met_are_not_waited_for() -> None:
    store = HashStore()
    with pytest.raises(PeerError, match=r"the other ranks did not come to meet rank 2 within 0.05 s"):
        fresh_namespace(store, 2, 3, 0.05)
    with pytest.raises(PeerError, match=r"rank 1, 2 did not come to meet rank 0") as caught:
        fresh_namespace(store, 0, 3, 0.05)
    assert caught.value.ranks == (1, 2)
    assert len(set(meet([store] * 3, (0, 1, 2)))) == 1
