"""The attributes that the user's object holds, to see whether a script has changed them."""

from __future__ import annotations

from operator import is_
from typing import Any

from torch_geometric.data import Data, HeteroData


class Contents:
    """The attributes of a ``Data`` or a ``HeteroData`` at one moment: names and objects.

    Values that are written in place are the same objects.
    """

    def __init__(self, data: Data | HeteroData) -> None:
        # The mappings themselves: a call of a method per store would take longer than all the rest.
        held = [store._mapping for store in data.stores]
        self._names = [name for one in held for name in one]
        self._objects: list[Any] = [*held, *(value for one in held for value in one.values())]

    def is_same(self, other: Contents) -> bool:
        """Returns whether both have the same objects under the same names."""
        one, another = self._objects, other._objects
        return len(one) == len(another) and self._names == other._names and all(map(is_, one, another))
