"""META.json: what a folder holds, with dtype, shape and checksum of each array."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyg_batchgnn.data.errors import DatasetError, broken, missing
from pyg_batchgnn.data.files.durable import read_json, write_json
from pyg_batchgnn.data.files.npy import META_FILE, ArrayPromise


@dataclass(frozen=True)
class MetaFormat:
    """A kind of folder that this package writes, with its META.json."""

    name: str  # the value of ``format`` in META.json
    versions: tuple[int, ...]  # versions that can be read
    writer: str  # the function that writes such folders, for errors
    remedy: str  # what helps if META.json is damaged, for errors

    def is_in(self, folder: str | Path) -> bool:
        path = Path(folder).expanduser() / META_FILE
        return path.is_file() and read_json(path).get("format") == self.name

    def write(
        self, folder: Path, version: int, content: Mapping[str, Any], arrays: Mapping[str, ArrayPromise]
    ) -> None:
        promises = {name: promise.to_json() for name, promise in sorted(arrays.items())}
        write_json(
            folder / META_FILE, {"format": self.name, "version": version, **content, "arrays": promises}
        )

    def read(self, folder: Path) -> tuple[dict[str, Any], str]:
        """Returns the content of META.json, and the file's SHA-256, by which ranks compare it.
        Raises `DatasetError` if it is missing, or of another format or version."""
        path = folder / META_FILE
        if not path.is_file():
            raise missing(path, "META", f"give a folder that {self.writer} wrote")
        content = read_json(path)
        self.check(path, content)
        return content, hashlib.sha256(path.read_bytes()).hexdigest()

    def check(self, path: Path, content: Mapping[str, Any]) -> None:
        """Raises `DatasetError` if ``content`` is of another format or of an unknown version."""
        if content.get("format") != self.name:
            fact = f"is {content.get('format')!r}, expected {self.name!r}"
            remedy = f"this folder holds something else: give one that {self.writer} wrote"
            raise broken(path, "format", fact, remedy)
        if content.get("version") not in self.versions:
            known = " or ".join(map(str, self.versions))
            fact = f"is {content.get('version')!r}, this release reads {known}"
            raise broken(path, "version", fact, f"update pyg_batchgnn, or {self.remedy}")

    @contextlib.contextmanager
    def parsing(self, folder: Path) -> Iterator[None]:
        """Turns errors of reading entries in the block into a `DatasetError` for META.json."""
        try:
            yield
        except DatasetError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError) as error:
            raise broken(folder / META_FILE, "contents", f"damaged ({error!r})", self.remedy) from error


def promises(path: Path, said: Any, remedy: str) -> dict[str, ArrayPromise]:
    """Returns the promises by array from ``said``, the entry "arrays" of the META.json at `path`.
    Raises `DatasetError` if one is damaged, or names a file outside of the folder."""
    if not isinstance(said, Mapping):
        raise broken(path, "arrays", "missing or not an object", remedy)
    found = {}
    for array, one in said.items():
        if not {"", ".", ".."}.isdisjoint(array.split("/")[:-1]) or "\0" in array:
            raise broken(path, "arrays", f"{array!r} is no name of a file in the folder", remedy)
        try:
            found[array] = ArrayPromise.from_json(one)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            fact = f"its entry lacks or garbles one of dtype, shape, sha256 ({error!r})"
            raise broken(path, array, fact, remedy) from error
    return found
