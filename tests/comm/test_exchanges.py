"""Rows, small data, sums and messages arrive whole, in order, and counted."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from pyg_batchgnn.comm import Communicator, Header, MessageKind, share_on_host
from pyg_batchgnn.comm.message import NUMBERS, ROOM, SharedMailbox, block_bytes
from tests.support.ranks import run_ranks
from tests.support.thread_ranks import run_threads
from tests.support.tiers import in_all

JOBS = "tests.comm.job_exchanges"


@pytest.mark.parametrize("hosts", [[0, 0], [0, 1], *in_all([0] * 4, [0, 0, 1, 1])])
def test_rows_of_every_dtype_and_shape_arrive(hosts: list[int]) -> None:
    run_ranks(f"{JOBS}:every_dtype", len(hosts), hosts=hosts)


def test_large_messages_are_cut_into_pieces_that_count_as_one_round() -> None:
    whole = run_ranks(f"{JOBS}:every_dtype", 2, {"most": 9, "dtypes": 3})
    pieces = run_ranks(f"{JOBS}:every_dtype", 2, {"most": 9, "dtypes": 3, "limit": 7})
    for one, other in zip(whole, pieces, strict=True):
        for counts in (*one.value.values(), *other.value.values()):
            counts.pop("seconds")
        assert one.value == other.value
        assert one.value["features"]["rounds"] == 3 * 5 * 3


def test_rows_are_received_into_memory_of_the_caller() -> None:
    def exchange(comm: Communicator) -> None:
        memory: list[torch.Tensor] = []

        def allocate(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
            memory.append(torch.zeros(shape, dtype=dtype))
            return memory[-1]

        sends = [torch.full((comm.rank + 2 * to, 3), comm.rank * 10 + to) for to in range(comm.size)]
        answer = comm.exchange(sends, None, Header(MessageKind.FEATURES), allocate)
        assert len(memory) == 1 and answer.rows is memory[0]
        for source, rows in enumerate(answer.split()):
            assert torch.equal(rows, torch.full((source + 2 * comm.rank, 3), source * 10 + comm.rank))

    run_threads(exchange, 3)


@pytest.mark.parametrize("hosts", [[0, 0], [0, 0, 1], *in_all([0, 1])])
def test_counts_are_exact(hosts: list[int]) -> None:
    ranks = len(hosts)
    message = 13 * 8 + 512 * (
        len(set(hosts)) > 1
    )  # bytes of a count message; the backend also moves its room
    for result in run_ranks(f"{JOBS}:counted", ranks, hosts=hosts):
        counts, total = result.value
        others = [rank for rank in range(ranks) if rank != result.rank]
        features, gradients = counts["features"], counts["gradients"]
        assert (features["rounds"], features["count_rounds"]) == (1, 1)
        assert features["rows_sent"] == (result.rank + 1) * len(others)
        assert features["rows_received"] == sum(rank + 1 for rank in others)
        assert features["bytes_sent"] == 12 * features["rows_sent"]
        assert features["bytes_received"] == 12 * features["rows_received"]
        assert features["count_bytes"] == 2 * len(others) * message
        assert counts["topology"]["rounds"] == 2
        assert counts["topology"]["bytes_sent"] == 2 * features["bytes_sent"]
        # where the rows hold other things, those are counted
        assert counts["partition"]["rows_sent"] == (result.rank + 7) * len(others)
        assert counts["partition"]["rows_received"] == sum(rank + 7 for rank in others)
        assert counts["partition"]["bytes_received"] == features["bytes_received"]
        # Ten floats are gathered in one round. Four thousand go in pieces out and in sums back,
        # both of which have room in the messages of one host.
        count_rounds = 1 + (2 if len(set(hosts)) == 1 else 1)
        assert (gradients["rounds"], gradients["count_rounds"]) == (1 + 2, count_rounds)
        sizes = [4000 // ranks + (rank < 4000 % ranks) for rank in range(ranks)]
        large = 4 * (sum(sizes[rank] for rank in others) + sizes[result.rank] * len(others))
        assert gradients["bytes_sent"] == 40 * len(others) + large
        assert (counts["control"]["rounds"], counts["control"]["count_rounds"]) == (0, 1)
        assert total == {"total": 7}


#: The host of every rank. Ranks of one host share memory.
HOSTS = [[0, 0], [0, 1], *in_all([0, 0, 0, 0], [0, 1, 1, 2], [0, 1, 1])]


@pytest.mark.parametrize("hosts", HOSTS)
@pytest.mark.parametrize("job", ["sizes_around_the_room", "one_message_is_large", "nothing"])
def test_small_and_large_data_arrive_whole(job: str, hosts: list[int]) -> None:
    run_ranks(f"{JOBS}:{job}", len(hosts), hosts=hosts)


@pytest.mark.parametrize("hosts", [[0, 0], [0, 1]])
def test_data_of_another_exchange_are_never_used(hosts: list[int]) -> None:
    run_ranks(f"{JOBS}:divergence", 2, hosts=hosts)


@pytest.mark.parametrize("size", [0, 1, ROOM, ROOM + 1])
def test_without_a_launcher_one_rank_keeps_data_of_any_size(size: int) -> None:
    rows = torch.arange(size, dtype=torch.uint8)
    with Communicator.create("alone") as comm:
        assert (comm.rank, comm.size, comm.group) == (0, 1, None)
        assert torch.equal(comm.exchange(rows, [size], MessageKind.FEATURES).rows, rows)
        assert torch.equal(comm.exchange([rows], None, MessageKind.FEATURES).rows, rows)
        counts = comm.counters.snapshot()[MessageKind.FEATURES]
        assert (counts.rounds, counts.bytes_sent) == (2, 0)
        assert torch.equal(comm.all_gather(rows).rows, rows)
        assert torch.equal(comm.all_reduce(rows.clone()), rows)
        assert torch.equal(comm.all_reduce(rows.float(), weight=5), rows.float())
        assert torch.equal(comm.broadcast(rows.clone()), rows)
        assert comm.all_gather_json("x" * size) == ["x" * size]
        comm.check_agreement({"seed": 1})
        share_on_host(comm, 10)[0][:] = 3


def test_rows_of_a_model_travel_without_their_gradients() -> None:
    def exchange(comm: Communicator) -> torch.Tensor:
        rows = torch.full((comm.size, 3), float(comm.rank), requires_grad=True)
        return comm.exchange(rows * 2, [1] * comm.size, MessageKind.FEATURES).rows

    for rows in run_threads(exchange, 3):
        assert torch.equal(rows, torch.tensor([[0.0], [2.0], [4.0]]).expand(3, 3)) and not rows.requires_grad


@pytest.mark.parametrize("hosts", [[0, 0], [0, 1], *in_all([0, 1, 2], [0] * 4)])
def test_sums_have_the_bits_of_adding_in_the_order_of_ranks(hosts: list[int]) -> None:
    run_ranks(f"{JOBS}:sums", len(hosts), hosts=hosts)


def test_values() -> None:
    results = run_ranks(f"{JOBS}:summed_values", 4, hosts=[0, 1, 0, 1])
    for result in results:
        hosts = result.value.pop("hosts")
        assert hosts == [result.rank % 2, [0, 1, 0, 1], [result.rank % 2, result.rank % 2 + 2]]
        assert result.value == {
            "sum": 0.1 + 0.2 + 0.1 * 3 + 0.4,
            "max": -2,
            "min": -5,
            "json": [{"rank": rank, "text": "é" * rank} for rank in range(4)],
        }


# Messages through shared memory: whole, of the right turn, and through the backend where there is
# no memory.


def content(source: int, to: int, turn: int, room: int) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    words = np.arange(NUMBERS + room // 8) * 3 + (turn << 20) + (source << 10) + to
    return words[:NUMBERS], words[NUMBERS:].view(np.uint8)


@pytest.mark.parametrize("ranks", [*in_all(1, 2, 8), 3])
def test_messages_are_those_of_the_turn_whoever_is_slow(ranks: int) -> None:
    def run(rank: int, mailbox: SharedMailbox) -> None:
        draw = random.Random(rank)
        for turn in range(60):
            for to, message in enumerate(mailbox.outgoing()):
                message.numbers[:], message.room[:] = content(rank, to, turn, mailbox.room)
            answers = mailbox.swap()
            if draw.random() < 0.3:
                time.sleep(draw.random() / 300)  # the others go on, but not over these messages
            assert len(answers) == ranks
            for source, message in enumerate(answers):
                numbers, room = content(source, rank, turn, mailbox.room)
                assert np.array_equal(message.numbers, numbers), (rank, source, turn)
                assert np.array_equal(message.room, room), (rank, source, turn)

    blocks = {rank: torch.zeros(block_bytes(ranks), dtype=torch.uint8) for rank in range(ranks)}
    mailboxes = [SharedMailbox(blocks, rank, 30.0, lambda _: None) for rank in range(ranks)]
    with ThreadPoolExecutor(ranks) as pool:
        list(pool.map(run, range(ranks), mailboxes))


def test_ranks_that_can_share_no_memory_use_the_backend() -> None:
    for result in run_ranks(f"{JOBS}:without_memory", 2):
        assert result.value == ["BackendMailbox", [0, 1]]


@pytest.mark.parametrize("how", ["close", "fail"])
def test_memory_goes_back_when_the_communicator_ends(how: str) -> None:
    for result in run_ranks(f"{JOBS}:memory_of_one_communicator", 3, {"how": how}, check=False):
        assert result.value == [3, 0], result.stderr


def test_a_rank_that_fails_while_memory_is_shared_is_named() -> None:
    results = run_ranks(f"{JOBS}:killed_while_sharing", 2, check=False)
    assert results[1].code == -9
    assert results[0].value[0] == "PeerError" and "rank 1 (host 0" in results[0].value[1]
