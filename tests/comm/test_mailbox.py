"""Messages through shared memory: whole, of the right turn, and through the backend where there is
no memory."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from pyg_batchgnn.comm.mailbox import ROOM, SharedMailbox, TransportTimeout, block_bytes
from pyg_batchgnn.comm.message import NUMBERS
from tests.support.ranks import run_ranks

JOBS = "tests.comm.job_mailbox"


def mailboxes(ranks: int, timeout: float = 30.0) -> list[SharedMailbox]:
    blocks = {rank: torch.zeros(block_bytes(ranks), dtype=torch.uint8) for rank in range(ranks)}
    return [SharedMailbox(blocks, rank, timeout, lambda _: None) for rank in range(ranks)]


def content(source: int, to: int, turn: int, room: int) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Returns the numbers and the data of a message."""
    words = np.arange(NUMBERS + room // 8) * 3 + (turn << 20) + (source << 10) + to
    return words[:NUMBERS], words[NUMBERS:].view(np.uint8)


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
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

    with ThreadPoolExecutor(ranks) as pool:
        list(pool.map(run, range(ranks), mailboxes(ranks)))


@pytest.mark.parametrize("ranks", [1, 2, 4, 64, 700, 5000])
def test_a_block_has_room_for_small_data_whatever_the_ranks(ranks: int) -> None:
    block = torch.zeros(block_bytes(ranks), dtype=torch.uint8)
    mailbox = SharedMailbox(dict.fromkeys(range(ranks), block), 0, 1.0, lambda _: None)
    assert mailbox.room >= ROOM and mailbox.room % 8 == 0 and len(mailbox.outgoing()) == ranks
    assert block_bytes(ranks) < 1.01 * 2**22 or ranks > 3000


def test_a_rank_that_does_not_come_is_not_waited_for_without_end() -> None:
    mailbox = mailboxes(2, timeout=0.2)[0]
    mailbox.outgoing()
    with pytest.raises(TransportTimeout, match="not ended after 0"):
        mailbox.swap()


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
