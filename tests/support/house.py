"""The size of the house: lines of rooms, files of the package that a call crosses, modules loaded.

    python -m tests.support.house

prints the figures beside their bounds (tests/house_bounds.py).
"""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch_geometric.data import Data

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "pyg_batchgnn"

_COUNT_MODULES = """
import sys, torch, torch_geometric.loader, torch_geometric.nn
before = set(sys.modules)
from pyg_batchgnn import MacrobatchNeighborLoader, accelerate
print(len(set(sys.modules) - before))
"""


def sizes() -> dict[str, int]:
    """Returns the numbers of files, lines and bytes, and the lines of each room."""
    package = list(PACKAGE.rglob("*.py"))
    native = [path for path in (ROOT / "csrc").rglob("*") if path.suffix in {".cpp", ".h"}]
    results = [path for path in (ROOT / "benchmark" / "results").iterdir() if path.is_file()]
    rooms: Counter[str] = Counter()
    for path in package:
        inside = path.relative_to(PACKAGE).parts
        rooms[f"lines of {inside[0] if len(inside) > 1 else 'top level'}"] += _lines([path])
    return {
        "package: Python files": len(package),
        "package: Python lines": _lines(package),
        "C++: files": len(native),
        "C++: lines": _lines(native),
        "tests: lines": _lines((ROOT / "tests").rglob("*.py")),
        "benchmark: lines": _lines((ROOT / "benchmark").rglob("*.py")),
        "benchmark: bytes of results": sum(path.stat().st_size for path in results),
        **rooms,
    }


def crossed() -> dict[str, int]:
    """Returns how many files of the package run in a loader's constructor, in a step of SAGE, and
    in an epoch of ``batchgnn train`` in one process."""
    from pyg_batchgnn import MacrobatchNeighborLoader
    from pyg_batchgnn.nn import SAGE
    from pyg_batchgnn.train.cli import main

    draw = torch.Generator().manual_seed(0)
    x, edge_index = torch.randn(100, 8, generator=draw), torch.randint(100, (2, 600), generator=draw)
    data = Data(x=x, edge_index=edge_index)

    def make_loader() -> Any:
        return MacrobatchNeighborLoader(data, [4, 3], batch_size=10, export="native")

    model, batch = SAGE(8, 16, 2, 3), next(iter(make_loader()))

    def step() -> None:
        model(batch).sum().backward()

    def train() -> None:
        printed = contextlib.redirect_stdout(io.StringIO())
        with tempfile.TemporaryDirectory() as folder, contextlib.suppress(SystemExit), printed:
            main(["train", "generated:nodes=300", "--epochs", "1", "--run", f"{folder}/run"])

    step()  # makes what is made once
    return {
        "files crossed: batchgnn train": len(files_crossed(train)),
        "files crossed: constructing a loader": len(files_crossed(make_loader)),
        "files crossed: a step of native SAGE": len(files_crossed(step)),
    }


def loaded() -> dict[str, int]:
    found = subprocess.check_output([sys.executable, "-c", _COUNT_MODULES], text=True, cwd=ROOT)
    return {"modules loaded: a loader and accelerate": int(found)}


def files_crossed(call: Callable[[], Any]) -> set[str]:
    """Returns the files of the package in which a function runs during a call, on this thread."""
    found: set[str] = set()
    importing = 0

    def watch(frame: FrameType, event: str, _: Any) -> None:
        nonlocal importing
        importing += (frame.f_code.co_name == "<module>") * ((event == "call") - (event == "return"))
        if event == "call" and not importing and frame.f_code.co_filename.startswith(str(PACKAGE)):
            found.add(frame.f_code.co_filename)

    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


def _lines(paths: Iterable[Path]) -> int:
    return sum(path.read_bytes().count(b"\n") for path in paths)


if __name__ == "__main__":
    from tests.house_bounds import BOUNDS

    for name, value in {**sizes(), **crossed(), **loaded()}.items():
        print(f"{name:45} {value:>10,} of {BOUNDS[name]:,}")
