"""The result of one check."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class FindingState(str, Enum):
    """The state of a thing that was checked."""

    WORKS = "works"
    ABSENT = "absent"  # not installed, and not needed
    BROKEN = "broken"  # installed but does not work, or needed but not installed


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's table.

    Attributes:
        name: the thing that was checked.
        state: its state.
        seen: its version or size, or what a test measured.
        remedy: what to do, or what the thing is used for. Empty where nothing is to be done.
        needed: whether the package cannot work without it.
    """

    name: str
    state: FindingState
    seen: str = ""
    remedy: str = ""
    needed: bool = False
