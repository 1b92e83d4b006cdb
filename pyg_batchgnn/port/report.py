"""The report of what was replaced."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Replaced:
    """A module that is native now.

    Attributes:
        name: its path in the model; empty for the model itself.
        kind: the name of PyG's or torch's class.
    """

    name: str
    kind: str


@dataclass(frozen=True)
class Left:
    """A module that PyG or torch still computes.

    Attributes:
        name: its path in the model; empty for the model itself.
        kind: the name of its class.
        why: the reason.
    """

    name: str
    kind: str
    why: str


@dataclass(frozen=True)
class AccelerationReport:
    """The modules of a model that were replaced, and those that were left with the reason."""

    replaced: list[Replaced] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{len(self.replaced)} modules replaced, {len(self.left)} left"]
        lines += [f"  replaced {_named(one.name, one.kind)}" for one in self.replaced]
        lines += [f"  left {_named(one.name, one.kind)}: {one.why}" for one in self.left]
        return "\n".join(lines)


def _named(name: str, kind: str) -> str:
    return f"{name or 'the model'} ({kind})"
