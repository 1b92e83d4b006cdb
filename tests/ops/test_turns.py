"""Turns of processes that share memory."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
import torch

from pyg_batchgnn.ops import Turns


def everyone(count: int) -> list[Turns]:
    """Returns the turns as each of some processes sees them."""
    words = list(torch.zeros(count, 1, dtype=torch.int32))
    return [Turns(word, [*words[:at], *words[at + 1 :]]) for at, word in enumerate(words)]


def test_a_turn_that_has_come_is_not_waited_for() -> None:
    own, other = everyone(2)
    other.announce(3)
    assert own.wait(3, 0.0) and own.wait(2, 0.0)
    assert not own.wait(4, 0.0)
    assert everyone(1)[0].wait(1, 0.0)


def test_numbers_start_again_after_all_bits() -> None:
    word = torch.zeros(1, dtype=torch.int32)
    own, other = Turns(torch.zeros(1, dtype=torch.int32), [word]), Turns(word, [])
    for turn in (2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**32 + 1):
        assert not own.wait(turn, 0.0)
        other.announce(turn)
        assert own.wait(turn, 0.0) and own.wait(turn - 1, 0.0)
    assert word.tolist() == [1]


def test_the_wait_ends_with_the_last_of_the_others() -> None:
    (own, *others), came = everyone(4), []

    def come() -> None:
        for at, other in enumerate(others):
            time.sleep(0.05)
            came.append(at)
            other.announce(1)

    thread = threading.Thread(target=come)
    thread.start()
    assert own.wait(1, 20.0)
    assert came == [0, 1, 2]
    thread.join()


def test_the_wait_ends_in_time() -> None:
    started = time.monotonic()
    assert not everyone(3)[0].wait(1, 0.2)
    assert 0.2 <= time.monotonic() - started < 10


def test_a_signal_ends_the_wait() -> None:
    came: list[int] = []
    previous = signal.signal(signal.SIGUSR1, lambda number, _: came.append(number))
    thread = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1))
    started = time.monotonic()
    try:
        thread.start()
        # The system gives the signal to any thread; it is handled on this one, when it next runs.
        while not came and time.monotonic() - started < 10:
            assert not everyone(2)[0].wait(1, 0.5)
        assert came == [signal.SIGUSR1]
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, previous)


@pytest.mark.parametrize(
    ("word", "error", "text"),
    [
        (torch.zeros(1, dtype=torch.int64), TypeError, "word must be torch.int32, got torch.int64"),
        (torch.zeros(2, dtype=torch.int32), ValueError, "word must be one aligned int32, not 2 numbers"),
        (torch.zeros(1, 1, dtype=torch.int32), ValueError, "one dimension"),
    ],
)
def test_refused(word: torch.Tensor, error: type[Exception], text: str) -> None:
    right = torch.zeros(1, dtype=torch.int32)
    with pytest.raises(error, match=text):
        Turns(word, [right])
    with pytest.raises(error, match=text):
        Turns(right, [word])
