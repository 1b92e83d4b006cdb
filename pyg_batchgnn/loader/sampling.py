"""The user's wishes about sampling, as given to a loader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyg_batchgnn.sample import NeighborChoice, as_integer


@dataclass(frozen=True)
class SamplingRequest:
    """The sampling that a loader is asked for.

    Attributes:
        num_neighbors: fanouts by hop in one of PyG's forms.
        replace: True to sample with replacement.
        seed: the key of every random choice; None draws one.
        sampler: the user's own sampler, or None.
        schedule: which minibatches a rank trains; None is the default.
        choice: the rules by which neighbours are chosen.

    Raises:
        ValueError: a schedule that does not exist.
    """

    num_neighbors: Any
    replace: bool
    seed: int | None
    sampler: Any
    schedule: str | None
    choice: NeighborChoice = field(default_factory=NeighborChoice)

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> SamplingRequest:
        """Returns what the arguments of a loader, by name, ask for."""
        return cls(
            arguments["num_neighbors"],
            arguments["replace"],
            as_seed(arguments["seed"]),
            arguments["neighbor_sampler"],
            arguments.get("schedule"),
            NeighborChoice.of(arguments),
        )

    def __post_init__(self) -> None:
        if self.schedule not in (None, "local", "global"):
            raise ValueError(f"schedule must be 'local' or 'global', got {self.schedule!r}")


def as_seed(seed: Any) -> int | None:
    """Returns a seed of Python, NumPy or torch as Python's integer; None stays None.

    Raises:
        TypeError: it is something else.
    """
    number = None if seed is None else as_integer(seed)
    if seed is not None and number is None:
        raise TypeError(f"seed must be an integer or None, got {seed!r}")
    return number
