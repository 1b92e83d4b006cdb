"""The user's wishes about sampling, as given to a loader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyg_batchgnn.loader.schedule import ScheduleName
from pyg_batchgnn.sample import NeighborChoice, as_integer


@dataclass(frozen=True)
class SamplingRequest:
    """The sampling that a loader is asked for.

    Attributes:
        num_neighbors: fanouts by hop in one of PyG's forms.
        replace: True to sample with replacement.
        seed: the key of every random choice; None draws one.
        sampler: the user's own sampler, or None.
        schedule: which minibatches a rank trains; None if the user did not say.
        choice: the rules by which neighbours are chosen.
    """

    num_neighbors: Any
    replace: bool
    seed: int | None
    sampler: Any
    schedule: ScheduleName | None
    choice: NeighborChoice = field(default_factory=NeighborChoice)

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> SamplingRequest:
        """Returns what the arguments of a loader, by name, ask for.

        Raises:
            TypeError, ValueError: an argument is none that there is.
        """
        return cls(
            arguments["num_neighbors"],
            arguments["replace"],
            as_seed(arguments["seed"]),
            arguments["neighbor_sampler"],
            ScheduleName.of(arguments.get("schedule")),
            NeighborChoice.of(arguments),
        )


def as_seed(seed: Any) -> int | None:
    """Returns a seed of Python, NumPy or torch as Python's integer; None stays None.

    Raises:
        TypeError: it is something else.
    """
    number = None if seed is None else as_integer(seed)
    if seed is not None and number is None:
        raise TypeError(f"seed must be an integer or None, got {seed!r}")
    return number
