"""Ctrl-C and SIGTERM as requests to stop, which all ranks notice between the same two
minibatches."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any

from torch import Tensor

from pyg_batchgnn.train.ranks import Ranks


class StopRequest:
    """A context in which the first SIGINT or SIGTERM only sets `signal`.

    A second SIGINT interrupts at once.

    Attributes:
        signal: the received signal, or None.
    """

    _SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def __bool__(self) -> bool:
        return self.signal is not None

    def __enter__(self) -> StopRequest:
        for number in self._SIGNALS:
            self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = signal.Signals(number)


class AgreedStop:
    """A request to any rank, which all ranks see at the same step.

    Attributes:
        seen: True if all ranks know of a request.
    """

    def __init__(self, request: StopRequest, ranks: Ranks) -> None:
        self._request = request
        self._ranks = ranks
        self.seen = False

    @property
    def asked(self) -> bool:
        """True if this rank was asked to stop."""
        return bool(self._request)

    def hear(self, asked: Tensor) -> None:
        """Takes note of the requests to all ranks.

        Args:
            asked: [R], `asked` of each rank.
        """
        self.seen = self.seen or bool(asked.any())

    def __call__(self) -> bool:
        """Returns whether any rank was asked to stop; collective."""
        self.seen = self.seen or self._ranks.any(self.asked)
        return self.seen
