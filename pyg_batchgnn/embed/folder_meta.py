"""META.json of a folder of tables.

A folder has META.json, and for each part its nodes, its rows and what lies beside the rows. Every
rank writes its own rows. Any number of ranks, under any partition of the graph, reads them: rows
are found by the original ids of their nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyg_batchgnn.data.files import META_FILE, ArrayPromise, broken, missing, read_json, write_json

FORMAT = "pyg_batchgnn.embedding"
VERSION = 1
REMEDY = "restore the file or save the tables again"
OTHER = "give a folder that Embedding.save wrote for tables of these node types"


def part_name(number: int) -> str:
    """Returns the name of the sub-folder of a part."""
    return f"part-{number:05}"


@dataclass(frozen=True)
class EmbeddingMeta:
    """The contents of META.json.

    Attributes:
        columns: the number of columns of each table, by node type.
        num_nodes: the number of rows of each table, over all parts.
        state: how many numbers lie beside each weight.
        steps: the number of steps that the optimizer had made.
        parts: the number of parts.
        arrays: what is promised of each array, by part and name.
    """

    columns: Mapping[str, int]
    num_nodes: Mapping[str, int]
    state: int
    steps: int
    parts: int
    arrays: Mapping[str, ArrayPromise]

    def write(self, folder: Path) -> None:
        """Writes META.json."""
        content = {
            "format": FORMAT,
            "version": VERSION,
            "columns": dict(self.columns),
            "num_nodes": dict(self.num_nodes),
            "state": self.state,
            "steps": self.steps,
            "parts": self.parts,
            "arrays": {name: promise.to_json() for name, promise in sorted(self.arrays.items())},
        }
        write_json(folder / META_FILE, content)

    @classmethod
    def read(cls, folder: Path) -> EmbeddingMeta:
        """Reads and checks META.json.

        Raises:
            DatasetNotFoundError: no such file.
            DatasetError: damaged, or of another format or version.
        """
        path = folder / META_FILE
        if not path.is_file():
            raise missing(path, "META", "give a folder that Embedding.save wrote")
        content = read_json(path)
        if (content.get("format"), content.get("version")) != (FORMAT, VERSION):
            seen = f"{content.get('format')!r} {content.get('version')!r}"
            fact = f"and version are {seen}, expected {FORMAT!r} {VERSION}"
            raise broken(path, "format", fact, OTHER)
        try:
            return cls(
                columns={str(name): int(count) for name, count in content["columns"].items()},
                num_nodes={str(name): int(count) for name, count in content["num_nodes"].items()},
                state=int(content["state"]),
                steps=int(content["steps"]),
                parts=int(content["parts"]),
                arrays={name: ArrayPromise.from_json(said) for name, said in content["arrays"].items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise broken(path, "contents", f"damaged ({error!r})", REMEDY) from error
