"""Reads the links of a data set's folder."""

from __future__ import annotations

from torch import Tensor

from pyg_batchgnn.data.convert import to_index
from pyg_batchgnn.data.errors import missing
from pyg_batchgnn.data.folder_reader import FolderReader
from pyg_batchgnn.data.groups import Group
from pyg_batchgnn.data.layout import LINKS_FOLDER, LinkArray, link_of
from pyg_batchgnn.data.links import INDEX, NEGATIVE_TARGETS, NEGATIVES, LinkSplit
from pyg_batchgnn.data.schema import Schema


def read_links(folder: FolderReader, schema: Schema) -> dict[Group, dict[str, LinkSplit]]:
    """Returns the links of each split, by relation.

    Raises:
        DatasetNotFoundError: a split has other arrays, but no links.
        DatasetError: a file is damaged, or belongs to no relation.
    """
    found: dict[Group, dict[str, dict[str, Tensor]]] = {group: {} for group in schema.edge_groups}
    for array in folder.arrays_in(LINKS_FOLDER):
        place, values = link_of(array), folder.opened(array)
        folder.known(array, None if place is None else (place.group, place.split), found)
        assert place is not None, "`known` has refused it"
        if place.name in (INDEX, NEGATIVES, NEGATIVE_TARGETS):
            values = to_index(values.numpy(), folder.file(array), place.name)
        found[place.group].setdefault(place.split, {})[place.name] = values
    for group, splits in found.items():
        for split, arrays in splits.items():
            if INDEX not in arrays:
                file = folder.file(str(LinkArray(group, split, INDEX)))
                raise missing(file, INDEX, "put the links [2, n] of the split there")
    return {
        group: {split: LinkSplit.of_arrays(arrays) for split, arrays in splits.items()}
        for group, splits in found.items()
    }
