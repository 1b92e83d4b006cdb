"""Signals become requests while training, and what they were before afterwards."""

from __future__ import annotations

import os
import signal

import pytest

from pyg_batchgnn.train.trainer import StopRequest


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_a_request(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with StopRequest() as stop:
        assert not stop
        os.kill(os.getpid(), number)
        assert stop
        assert stop.signal is number
    assert signal.getsignal(number) is before


def test_a_second_interrupt_is_not_polite() -> None:
    with StopRequest(), pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
