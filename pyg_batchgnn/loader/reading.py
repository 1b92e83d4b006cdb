"""The attributes that native batches carry, and whether they are copied."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


class Features(enum.Enum):
    """The place where the attributes of a native batch lie."""

    AUTO = "auto"  # in place if all of them are in memory, else copied
    IN_PLACE = "in_place"  # the user's own tensors
    COPY = "copy"  # a block of the fetch group's distinct nodes


@dataclass(frozen=True)
class Reading:
    """The user's choice, checked once.

    Attributes:
        features: where the attributes lie.
        attributes: their names; None stands for all.
    """

    features: Features = Features.AUTO
    attributes: tuple[str, ...] | None = None

    @classmethod
    def parse(cls, features: Any, attributes: Sequence[str] | None) -> Reading:
        """Returns the choice that the loader's arguments make.

        Raises:
            ValueError: an unknown choice.
            TypeError: attributes that are no list of names.
        """
        if features not in [choice.value for choice in Features]:
            choices = ", ".join(repr(choice.value) for choice in Features)
            raise ValueError(f"features must be one of {choices}, got {features!r}")
        if attributes is None:
            return cls(Features(features))
        if isinstance(attributes, str) or not isinstance(attributes, Sequence):
            raise TypeError(f'attributes must be a list of names like ["x", "y"], got {attributes!r}')
        if wrong := [name for name in attributes if not isinstance(name, str)]:
            raise TypeError(f"attributes must be names, got {wrong[0]!r}")
        return cls(Features(features), tuple(attributes))

    def chosen(self, names: Iterable[str]) -> list[str]:
        """Returns those of ``names`` that are wanted.

        Raises:
            ValueError: an attribute that is wanted is not among them.
        """
        known = list(names)
        if self.attributes is None:
            return known
        if missing := [name for name in self.attributes if name not in known]:
            held = ", ".join(map(repr, known)) or "none"
            raise ValueError(
                f"data has no node attribute {missing[0]!r} and no edge attribute of this name; it has {held}"
            )
        return [name for name in known if name in self.attributes]
