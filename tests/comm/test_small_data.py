"""Small data travel with the counts: in one call of the backend, or through shared memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.comm.mailbox import ROOM
from pyg_batchgnn.comm.message import NUMBERS, NUMBERS_BYTES, Message, read_data, write_data
from tests.support.ranks import run_ranks
from tests.support.thread_ranks import run_threads
from tests.support.tiers import in_all

JOBS = "tests.comm.job_small_data"
#: The host of every rank. Ranks of one host share memory.
HOSTS = [*in_all([0, 0]), [0, 1], *in_all([0, 0, 0, 0], [0, 1, 1, 2]), [0, 1, 1]]


@pytest.mark.parametrize("hosts", HOSTS)
@pytest.mark.parametrize(
    "job", ["sizes_around_the_room", "one_message_is_large", "nothing", "values", "counted"]
)
def test_small_data_take_one_call(job: str, hosts: list[int]) -> None:
    run_ranks(f"{JOBS}:{job}", len(hosts), hosts=hosts)


@pytest.mark.parametrize(
    ("hosts", "extra"), [*in_all(([0, 0], 0)), ([0] * 3, 0), ([0, 1, 2], 20), *in_all(([0, 1, 2, 3], 2000))]
)
def test_data_above_the_limit_of_a_call_take_their_own(hosts: list[int], extra: int) -> None:
    run_ranks(f"{JOBS}:low_limit", len(hosts), {"extra": extra}, hosts=hosts)


@pytest.mark.parametrize("hosts", [[0, 0], [0, 1]])
def test_data_of_another_exchange_are_never_used(hosts: list[int]) -> None:
    run_ranks(f"{JOBS}:divergence", 2, hosts=hosts)


@pytest.mark.parametrize("size", [0, 1, ROOM, ROOM + 1])
def test_one_rank_keeps_data_of_any_size(size: int) -> None:
    rows = torch.arange(size, dtype=torch.uint8)
    with Communicator.create("alone") as comm:
        assert torch.equal(comm.exchange(rows, [size], MessageKind.FEATURES).rows, rows)
        assert torch.equal(comm.all_gather(rows).rows, rows)
        assert torch.equal(comm.all_reduce(rows.clone()), rows)
        assert torch.equal(comm.broadcast(rows.clone()), rows)
        assert comm.all_gather_json("x" * size) == ["x" * size]


def test_rows_of_a_model_travel_without_their_gradients() -> None:
    def exchange(comm: Communicator) -> torch.Tensor:
        rows = torch.full((comm.size, 3), float(comm.rank), requires_grad=True)
        return comm.exchange(rows * 2, [1] * comm.size, MessageKind.FEATURES).rows

    for rows in run_threads(exchange, 3):
        assert torch.equal(rows, torch.tensor([[0.0], [2.0], [4.0]]).expand(3, 3)) and not rows.requires_grad


def test_a_message_has_room_behind_its_numbers() -> None:
    sizes = [0, ROOM, 5]
    data = torch.randint(0, 256, (sum(sizes),), dtype=torch.uint8)
    words = np.zeros((3, (NUMBERS_BYTES + ROOM) // 8), np.int64)
    words[:, :NUMBERS] = np.arange(NUMBERS) - 5
    messages = [Message(row) for row in words]
    write_data(messages, data, sizes)
    assert words[:, :NUMBERS].tolist() == [list(range(-5, NUMBERS - 5))] * 3
    assert [message.numbers.tolist() for message in messages] == words[:, :NUMBERS].tolist()
    out = torch.empty_like(data)
    read_data(messages, out, sizes)
    assert torch.equal(out, data)
