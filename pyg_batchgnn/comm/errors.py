"""Errors of communication. Each names the ranks that it is about."""

from __future__ import annotations

from collections.abc import Iterable


class CommError(RuntimeError):
    """Communication between ranks failed; the message says with whom, in what, and what was seen.

    Attributes:
        ranks: the ranks that the error is about, ascending; empty where none could be made out.
    """

    def __init__(self, message: str, ranks: Iterable[int] = ()) -> None:
        super().__init__(message)
        self.ranks = tuple(sorted(set(ranks)))


class PeerError(CommError):
    """A peer is dead, stopped, silent or gone, or raised an error of its own.

    Attributes:
        exchange: number of the exchange (from 1) that did not come about, 0 before the first.
        waited: seconds that this rank had waited in it.
    """

    def __init__(
        self, message: str, ranks: Iterable[int] = (), exchange: int = 0, waited: float = 0.0
    ) -> None:
        super().__init__(message, ranks)
        self.exchange = exchange
        self.waited = waited


class DivergenceError(CommError):
    """Ranks came together for different exchanges."""


class AgreementError(CommError):
    """Ranks were given different arguments."""


class BrokenCommunicatorError(CommError):
    """The communicator was used after an error or after it was closed."""
