"""The jobs of the ranks in test_small_data.py."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor

from pyg_batchgnn.comm import AgreementError, CommError, Communicator, DivergenceError, MessageKind
from pyg_batchgnn.comm.mailbox import BackendMailbox, Mailbox, SharedMailbox

T = TypeVar("T")
#: A sum of more bytes goes in pieces out and in sums back, after the counts.
LARGEST_GATHERED = 8192


class Calls:
    """Counts how often a communicator's ranks wait for each other: swaps of messages, and rounds of
    data that did not travel with them."""

    def __init__(self, comm: Communicator) -> None:
        self.number, self._inside = 0, False
        transport, mailbox = comm._channel._link.transport, mailbox_of(comm)
        for owner, name in ((mailbox, "swap"), (transport, "all_to_all"), (transport, "pairwise_exchange")):
            setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, function: Callable[..., T]) -> Callable[..., T]:
        def call(*arguments: Any) -> T:
            if self._inside:  # a swap through the backend
                return function(*arguments)
            self.number, self._inside = self.number + 1, True
            answer = function(*arguments)
            self._inside = False
            return answer

        return call

    def of(self, operation: Callable[[], T]) -> tuple[int, T]:
        """Returns the number of calls of an operation, and its result."""
        before = self.number
        result = operation()
        return self.number - before, result


def mailbox_of(comm: Communicator) -> Mailbox:
    """Returns the mailbox, and checks that it is the one for the places of the ranks."""
    mailbox = comm._channel._link.mailbox
    assert isinstance(mailbox, SharedMailbox if len(set(comm.hosts)) == 1 else BackendMailbox)
    return mailbox


def message(source: int, to: int, size: int) -> Tensor:
    """Returns bytes that are different for every pair."""
    return torch.randint(
        0, 256, (size,), dtype=torch.uint8, generator=torch.Generator().manual_seed(97 * source + to)
    )


def exchanged(comm: Communicator, sizes: Sequence[Sequence[int]]) -> None:
    """Exchanges ``sizes[source][to]`` bytes in all ways and checks what arrives."""
    sends = [message(comm.rank, to, size) for to, size in enumerate(sizes[comm.rank])]
    wanted = [message(source, comm.rank, theirs[comm.rank]) for source, theirs in enumerate(sizes)]
    joined, counts = torch.cat(sends), [len(part) for part in sends]
    for answer in (
        comm.exchange(joined, counts, MessageKind.PARTITION),
        comm.exchange(sends, None, MessageKind.PARTITION),
        comm.start_exchange(joined, counts, MessageKind.PARTITION).wait(),
    ):
        assert answer.counts == [len(part) for part in wanted]
        assert torch.equal(answer.rows, torch.cat(wanted))


def sent_to_all(comm: Communicator, size: int) -> dict[str, Callable[[], None]]:
    """Returns every operation that sends the same bytes to all ranks, with that many bytes."""

    def gathered() -> None:
        answer = comm.all_gather(message(comm.rank, 0, size))
        assert torch.equal(answer.rows, torch.cat([message(rank, 0, size) for rank in range(comm.size)]))

    def broadcast() -> None:
        tensor = message(comm.rank, 0, size)
        assert comm.broadcast(tensor, comm.size - 1) is tensor
        assert torch.equal(tensor, message(comm.size - 1, 0, size))

    def summed() -> None:
        total = comm.all_reduce(message(comm.rank, 0, size))
        terms = [message(rank, 0, size) for rank in range(comm.size)]
        assert torch.equal(total, torch.stack(terms).sum(0, dtype=torch.uint8))

    def values() -> None:  # a text and its quotes
        texts = [chr(97 + rank) * (size - 2) for rank in range(comm.size)]
        assert comm.all_gather_json(texts[comm.rank]) == texts

    operations = {"all_gather": gathered, "broadcast": broadcast, "all_reduce": summed}
    return {**operations, "all_gather_json": values} if size >= 2 else operations


def sizes_around_the_room() -> None:
    with Communicator.create("small", timeout=20) as comm:
        calls, room = Calls(comm), mailbox_of(comm).room
        for size in (0, 1, room - 1, room, room + 1, 5 * room):
            wanted = 1 if size <= room else 2
            even = [[size] * comm.size] * comm.size
            assert calls.of(lambda even=even: exchanged(comm, even))[0] == 3 * wanted, size
            for name, operation in sent_to_all(comm, size).items():
                needed = wanted
                if name == "all_reduce" and size > LARGEST_GATHERED:
                    needed = 2 if -(-size // comm.size) <= room else 3  # pieces out, and sums back
                assert calls.of(operation)[0] == needed, (name, size)


def one_message_is_large() -> None:
    """All ranks take the second round where one pair needs it, or what one rank keeps."""
    with Communicator.create("uneven", timeout=20) as comm:
        calls, room = Calls(comm), mailbox_of(comm).room
        for source, to in ((0, 1), (comm.size - 1, 0), (1, 1)):
            for size, wanted in ((room, 1), (room + 1, 2)):
                sizes = [[3 * rank + other for other in range(comm.size)] for rank in range(comm.size)]
                sizes[source][to] = size
                assert calls.of(lambda sizes=sizes: exchanged(comm, sizes))[0] == 3 * wanted
                texts = ["x" * ((size - 2) if rank == source else rank) for rank in range(comm.size)]
                number, answers = calls.of(lambda texts=texts: comm.all_gather_json(texts[comm.rank]))
                assert (number, answers) == (wanted, texts)
                rows = size if comm.rank == source else comm.rank
                number, gathered = calls.of(lambda rows=rows: comm.all_gather(message(comm.rank, 0, rows)))
                parts = [message(rank, 0, size if rank == source else rank) for rank in range(comm.size)]
                assert number == wanted and torch.equal(gathered.rows, torch.cat(parts))


def nothing() -> None:
    with Communicator.create("nothing", timeout=20) as comm:
        calls, empty = Calls(comm), [0] * comm.size
        for rows, counts in (
            (torch.empty(0, 700), empty),
            (torch.empty(900 * comm.size, 0), [900] * comm.size),
        ):
            number, answer = calls.of(
                lambda rows=rows, counts=counts: comm.exchange(rows, counts, MessageKind.TOPOLOGY)
            )
            assert number == 1 and answer.counts == counts and answer.rows.shape == rows.shape
        assert calls.of(lambda: comm.all_gather(torch.empty(0, 700)))[0] == 1
        assert calls.of(lambda: comm.all_reduce(torch.empty(0)))[0] == 1
        assert calls.of(comm.barrier)[0] == 1
        assert comm.counters.snapshot().total.bytes_sent == 0


def values() -> None:
    """Checks that small values take one call, errors included."""
    with Communicator.create("values", timeout=20) as comm:
        calls = Calls(comm)
        assert calls.of(lambda: comm.max(comm.rank)) == (1, comm.size - 1)
        assert calls.of(lambda: comm.min(comm.rank)) == (1, 0)
        assert calls.of(lambda: comm.sum(comm.rank)) == (1, comm.size * (comm.size - 1) // 2)
        assert calls.of(lambda: comm.run_together(lambda: comm.rank)) == (1, comm.rank)
        assert calls.of(lambda: comm.check_agreement({"seed": 1}))[0] == 1
        before = calls.number
        with pytest.raises(AgreementError, match="seed"):
            comm.check_agreement({"seed": comm.rank})
        with pytest.raises(CommError, match="no disk"):
            comm.run_together(_fails if comm.rank == 1 else lambda: None)
        assert calls.number == before + 2
        weighted = comm.all_reduce(torch.full((4,), float(comm.rank)), weight=float(comm.rank == 1))
        assert torch.equal(weighted, torch.ones(4)) and calls.number == before + 3


def _fails() -> None:
    raise OSError("no disk")


def low_limit(extra: int) -> None:
    """Checks that data that one call may not carry never travel with the counts."""
    with Communicator.create("low", timeout=20) as probe:
        limit = probe.size + extra
    with Communicator.create("limited", timeout=20, limit=limit) as comm:
        calls, room = Calls(comm), mailbox_of(comm).room
        for size in (0, 1, 2, 9, 512, 513):
            at_once = size <= room and size * comm.size <= limit
            number, _ = calls.of(lambda size=size: exchanged(comm, [[size] * comm.size] * comm.size))
            assert (number == 3) == at_once, (size, limit, number)
            for name, operation in sent_to_all(comm, size).items():
                number, _ = calls.of(operation)
                assert (number == 1) == at_once, (name, size, limit, number)


def counted() -> None:
    """Checks that small and large data count as one round each, with their bytes."""
    for extra in (0, 1):
        with Communicator.create("counted", timeout=20) as comm:
            mailbox = mailbox_of(comm)
            size = mailbox.room + extra
            comm.exchange(torch.zeros(comm.size, size, dtype=torch.uint8), [1] * comm.size, MessageKind.PUSH)
            push = comm.counters.snapshot()[MessageKind.PUSH]
            assert (push.rounds, push.count_rounds) == (1, 1)
            assert (push.rows_sent, push.rows_received) == (comm.size - 1,) * 2
            assert (push.bytes_sent, push.bytes_received) == ((comm.size - 1) * size,) * 2
            assert push.count_bytes == 2 * (comm.size - 1) * mailbox.message_bytes and push.seconds > 0


def divergence() -> None:
    """Nothing is done with the data of ranks that are in another exchange."""
    asked: list[Any] = []

    def allocate(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        asked.append(shape)
        return torch.empty(shape, dtype=dtype)

    operations: list[Callable[[Communicator, Tensor], Any]] = [
        lambda comm, own: comm.exchange(own[: comm.size], [1] * comm.size, MessageKind.FEATURES, allocate),
        lambda comm, own: comm.all_reduce(own),
        lambda comm, own: comm.broadcast(own, 1),
        lambda comm, _: comm.all_gather_json("not a number" * 30),
        lambda comm, _: comm.barrier(),
    ]
    for first, second in itertools.permutations(operations, 2):
        comm, own = Communicator.create("diverging", timeout=20), torch.full((8,), 3.0)
        with pytest.raises(DivergenceError):
            (second if comm.rank else first)(comm, own)
        assert not asked and torch.equal(own, torch.full((8,), 3.0))
    comm, own = Communicator.create("sources", timeout=20), torch.full((8,), 3.0)
    with pytest.raises(DivergenceError, match="different sources"):
        comm.broadcast(own, comm.rank)
    assert torch.equal(own, torch.full((8,), 3.0))
