"""Errors of communication. Each names the ranks that it is about."""

from __future__ import annotations

from collections.abc import Iterable


class CommError(RuntimeError):
    """The communication between ranks failed. The message names the rank, the exchange and the
    reason. ``ranks``: the ranks at fault, ascending, as far as they are known."""

    def __init__(self, message: str, ranks: Iterable[int] = ()) -> None:
        super().__init__(message)
        self.ranks = tuple(sorted(set(ranks)))


class PeerError(CommError):
    """A peer is dead, stopped, silent or gone, or raised an error of its own. ``exchange``: the
    number of the failed exchange, 0 before the first. ``waited``: seconds in it."""

    def __init__(
        self, message: str, ranks: Iterable[int] = (), exchange: int = 0, waited: float = 0.0
    ) -> None:
        super().__init__(message, ranks)
        self.exchange, self.waited = exchange, waited


class DivergenceError(CommError):
    """Ranks called different operations, or the same one with another header."""


class AgreementError(CommError):
    """Ranks were given different arguments."""


class BrokenCommunicatorError(CommError):
    """The communicator was used after an error or after it was closed."""
