"""The parts that need no peer: messages, processes, diagnoses; and how ranks meet."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from unittest.mock import Mock, patch

import numpy as np
import pytest
import torch
from torch.distributed import HashStore, Store, TCPStore

from pyg_batchgnn.comm import BrokenCommunicatorError, CommError, Communicator, MessageKind, PeerError
from pyg_batchgnn.comm.channel import Channel
from pyg_batchgnn.comm.collectives import Collectives
from pyg_batchgnn.comm.communicator import connect, fresh_namespace
from pyg_batchgnn.comm.diagnosis import (
    Evidence,
    Liveness,
    Peer,
    ProcessInfo,
    RankPhase,
    RankStatus,
    diagnose,
    endpoints,
    endpoints_in,
    host_from,
)
from pyg_batchgnn.comm.message import AGREED, PROTOCOL, Mailbox, Message, describe
from pyg_batchgnn.comm.serial_executor import SerialExecutor
from tests.support.limits import wait_until


def test_a_message_that_cannot_be_names_its_rank() -> None:
    channel = Channel("two", None, None, [Peer(rank, 0, ProcessInfo("", 1, 0)) for rank in (0, 1)], 0, 5.0)
    messages = [Message(np.zeros(24, np.int64)) for _rank in range(2)]

    def swap() -> list[Message]:
        messages[1].numbers[:] = [*messages[0].numbers[:AGREED], 10**9, 4, 4, 0]
        return messages

    channel.mailbox = Mock(Mailbox, room=88, message_bytes=192, outgoing=lambda: messages, swap=swap)
    with pytest.raises(CommError, match="rank 1 announces 1000000000 rows"):
        Collectives(channel).all_gather(torch.ones(1))


def test_what_a_diverged_peer_sent_is_described() -> None:
    assert all("something" in describe(numbers) for numbers in ([0] * 9, [PROTOCOL, *[99] * 8]))


def test_what_the_launcher_says_is_taken_and_checked() -> None:
    environments = [{}, {"GROUP_RANK": "3", "SLURM_NODEID": "1"}, {"SLURM_NODEID": "2"}]
    assert list(map(host_from, environments)) == [0, 3, 2]
    with pytest.raises(ValueError, match="GROUP_RANK must be a number"):
        host_from({"GROUP_RANK": "node-a"})
    with pytest.raises(ValueError, match="WORLD_SIZE is set but not RANK, MASTER_PORT"):
        connect(5.0, "gloo", {"WORLD_SIZE": "2", "MASTER_ADDR": "here"})
    with pytest.raises(ValueError, match="timeout must be positive"):
        Communicator.create("never", timeout=0)


def test_a_process_is_seen_to_run_to_stop_and_to_be_gone() -> None:
    assert ProcessInfo.own().liveness() is Liveness.RUNNING
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    started = int(open(f"/proc/{child.pid}/stat").read().rpartition(")")[2].split()[19])  # noqa: SIM115, PTH123
    process = replace(ProcessInfo.own(), pid=child.pid, started=started)
    try:
        assert process.liveness() is Liveness.RUNNING
        later = replace(process, started=started + 1)  # another process of that number
        assert later.liveness() is Liveness.GONE
        assert replace(process, machine="another").liveness() is Liveness.UNKNOWN
        os.kill(child.pid, signal.SIGSTOP)
        wait_until(lambda: process.liveness() is not Liveness.RUNNING, "a stopped process")
        assert process.liveness() is Liveness.STOPPED
    finally:
        child.kill()
    wait_until(lambda: process.liveness() is Liveness.GONE, "a killed process")  # a zombie is gone, too
    child.wait(timeout=60)
    assert process.liveness() is Liveness.GONE


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_addresses_of_connections_are_found_in_error_texts(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        server = socket.create_server((address, 0), family=family)
    except OSError:
        pytest.skip(f"no {address} here")
    with server, socket.create_connection(server.getsockname()[:2]) as client:
        for one in (server, client):
            text = f"Connection closed by peer [{address}]:{one.getsockname()[1]}. And [more] text:"
            assert len(endpoints_in(text)) == 1
            assert set(endpoints_in(text)) <= set(endpoints())


def test_the_diagnosis_without_a_store_names_the_address() -> None:
    far = ProcessInfo("another machine", 1, 1)
    peers = [Peer(rank, rank, far, (f"10.0.0.{rank} 5{rank}",)) for rank in range(3)]
    evidence = Evidence(0, "c", 4, "barrier", 0.1, 9.0, False, "closed by peer [10.0.0.2]:52", None, {})
    failure = diagnose(evidence, peers)
    assert failure.ranks == (2,) and "the store does not answer" in failure.text
    assert "closed its connection" in failure.text
    unknown = diagnose(replace(evidence, text="no address"), peers)
    assert unknown.ranks == () and "could not be identified" in unknown.text


def test_the_diagnosis_after_a_timeout_names_who_never_entered_or_never_left() -> None:
    far = ProcessInfo("another machine", 1, 1)
    peers = [Peer(rank, rank, far) for rank in range(4)]
    notes = {rank: RankStatus(last, RankPhase.ENTERED, "x") for rank, last in enumerate((4, 3, 4, 5))}
    evidence = Evidence(0, "c", 4, "barrier", 9.0, 9.0, True, "", notes, {})
    assert diagnose(evidence, peers).ranks == (1,)
    notes[1] = RankStatus(4, RankPhase.CLOSED, "")  # it took part and left, as it may
    assert diagnose(evidence, peers).ranks == (2,)
    notes[2] = RankStatus(5, RankPhase.ENTERED, "x")
    assert diagnose(evidence, peers).ranks == ()


def test_a_serial_executor_keeps_the_order_and_carries_errors() -> None:
    executor, seen = SerialExecutor("communicator 't'"), []
    gate = threading.Event()
    first = executor.start(lambda: (gate.wait(5), seen.append(1)))
    second = executor.start(lambda: 1 // 0)
    assert not first.done()
    threading.Timer(0.05, gate.set).start()
    executor.run(lambda: seen.append(3))
    assert seen == [1, 3] and first.done()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            second.wait()
    assert executor.stop(5.0)
    for _ in range(2):  # nobody is left who would do it: waiting for it would not end
        with pytest.raises(BrokenCommunicatorError, match="communicator 't' was closed"):
            executor.start(lambda: 4).wait()
    other = SerialExecutor("without threads")
    with patch.object(threading.Thread, "start", side_effect=OSError), pytest.raises(OSError):
        other.start(lambda: 5)
    assert other.stop(None)  # nobody waits for a thread that did not start


@pytest.mark.parametrize(
    ("rows", "counts", "text"),
    [
        (torch.zeros(3), None, "counts must give the rows"),
        (torch.zeros(3), [2], "do not add up"),
        (torch.zeros(()), [1], "first dimension"),
        ([torch.zeros(3)], [3], "their lengths are the counts"),
        ([torch.zeros(3)] * 2, None, "one tensor for each of 1 ranks"),
    ],
)
def test_rows_that_cannot_be_exchanged_break_nothing(
    rows: torch.Tensor, counts: list[int], text: str
) -> None:
    with Communicator.create("alone") as comm:
        with pytest.raises(ValueError, match=text):
            comm.exchange(rows, counts, MessageKind.FEATURES)
        with pytest.raises(TypeError, match="Header or a MessageKind"):
            comm.barrier("features")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="weight"):
            comm.all_reduce(torch.ones(1), weight=-1.0)
        comm.barrier()


def meet(stores: Sequence[Store], order: Sequence[int], timeout: float = 20.0) -> list[str]:
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
