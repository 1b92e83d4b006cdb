"""What was found out about one thing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class FindingState(str, Enum):
    """How a thing stands."""

    WORKS = "works"
    ABSENT = "absent"  # not there, and not needed
    BROKEN = "broken"  # there, and does not work; or needed, and not there


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's table.

    Attributes:
        name: of the thing.
        state: how it stands.
        seen: version, size or what a test measured.
        remedy: what to do, or what it would be good for; empty where nothing is to be done.
        needed: whether nothing works without it.
    """

    name: str
    state: FindingState
    seen: str = ""
    remedy: str = ""
    needed: bool = False
