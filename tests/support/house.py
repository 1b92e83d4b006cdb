"""The size of the house: files, lines, and the files of the package that a call crosses.

    python -m tests.support.house

prints the figures beside their bounds (tests/house_bounds.py).
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
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
    """Returns the numbers of files, lines and bytes."""
    package = list(PACKAGE.rglob("*.py"))
    native = [path for path in (ROOT / "csrc").rglob("*") if path.suffix in {".cpp", ".h"}]
    results = [path for path in (ROOT / "benchmark" / "results").iterdir() if path.is_file()]
    return {
        "package: Python files": len(package),
        "package: Python lines": _lines(package),
        "C++: files": len(native),
        "C++: lines": _lines(native),
        "tests: lines": _lines((ROOT / "tests").rglob("*.py")),
        "benchmark: lines": _lines((ROOT / "benchmark").rglob("*.py")),
        "benchmark: bytes of results": sum(path.stat().st_size for path in results),
    }


def rooms() -> dict[str, int]:
    """Returns the lines of each room of the package."""
    found: dict[str, list[Path]] = {}
    for path in PACKAGE.rglob("*.py"):
        inside = path.relative_to(PACKAGE).parts
        found.setdefault(inside[0] if len(inside) > 1 else "top level", []).append(path)
    return {f"lines of {name}": _lines(paths) for name, paths in found.items()}


def crossed() -> dict[str, int]:
    """Returns how many files of the package some calls cross. Each call has run once before."""
    return {
        "files crossed: constructing a loader": len(_crossed_twice(_make_loader)),
        "files crossed: a step of native SAGE": len(_crossed_twice(_native_step())),
        "files crossed: a hop over ranks": len(_hop()),
        "files crossed: batchgnn train": _train(),
    }


def loaded() -> dict[str, int]:
    """Returns how many modules an import of a loader and of `accelerate` loads."""
    found = subprocess.run(
        [sys.executable, "-c", _COUNT_MODULES], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return {"modules loaded: a loader and accelerate": int(found.stdout)}


def files_crossed(call: Callable[[], Any], within: str | None = None) -> set[str]:
    """Returns the files of the package in which a function runs during a call, on this thread."""
    found: set[str] = set()
    depth = importing = 0

    def watch(frame: FrameType, event: str, _: Any) -> None:
        nonlocal depth, importing
        if event not in ("call", "return"):
            return
        code, step = frame.f_code, 1 if event == "call" else -1
        depth += step * (code.co_name == within)
        importing += step * (code.co_name == "<module>")
        is_counted = event == "call" and not importing and (within is None or depth > 0)
        if is_counted and code.co_filename.startswith(str(PACKAGE)):
            found.add(code.co_filename)

    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


def _lines(paths: Iterable[Path]) -> int:
    return sum(path.read_bytes().count(b"\n") for path in paths)


def _crossed_twice(call: Callable[[], Any]) -> set[str]:
    call()
    return files_crossed(call)


def _data() -> Data:
    draw = torch.Generator().manual_seed(0)
    return Data(
        x=torch.randn(100, 8, generator=draw),
        y=torch.randint(3, (100,), generator=draw),
        edge_index=torch.randint(100, (2, 600), generator=draw),
    )


def _make_loader() -> Any:
    from pyg_batchgnn import MacrobatchNeighborLoader

    return MacrobatchNeighborLoader(_data(), [4, 3], batch_size=10, export="native")


def _native_step() -> Callable[[], None]:
    from pyg_batchgnn.nn import SAGE

    model, batch = SAGE(8, 16, 2, 3), next(iter(_make_loader()))

    def step() -> None:
        torch.nn.functional.cross_entropy(model(batch), batch.y[: batch.batch_size]).backward()

    return step


def _hop() -> set[str]:
    """Returns the files that a hop of a macrobatch over two ranks crosses on rank 0."""
    from pyg_batchgnn import DistFeatureStore, DistGraphStore, MacrobatchNeighborLoader
    from pyg_batchgnn.comm import Communicator
    from pyg_batchgnn.data import from_pyg
    from pyg_batchgnn.partition import partition
    from tests.support.thread_ranks import run_threads

    dataset = from_pyg(_data(), name="drawn")

    def run(comm: Communicator) -> set[str]:
        part = partition(dataset, "random", comm=comm, seed=0)
        stores = DistFeatureStore(part, comm), DistGraphStore(part, comm)
        loader = MacrobatchNeighborLoader(stores, [4, 3], batch_size=10, export="native", seed=0)
        return files_crossed(lambda: list(loader), within="_hop")

    return run_threads(run, 2)[0]


def _train() -> int:
    """Returns how many files ``batchgnn train`` crosses, in a process of its own."""
    code = "from tests.support.house import print_files_of_training; print_files_of_training()"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return int(found.stdout.split()[-1])


def print_files_of_training() -> None:
    from pyg_batchgnn.__main__ import main as batchgnn

    def train() -> None:
        with contextlib.suppress(SystemExit):
            batchgnn()

    with tempfile.TemporaryDirectory() as folder:
        given = ["train", "generated:nodes=2000", "--epochs", "1", "--run", f"{folder}/run"]
        sys.argv = ["batchgnn", *given]
        print(len(files_crossed(train)))


def main() -> None:
    """Prints the figures beside their bounds."""
    from tests.house_bounds import BOUNDS

    for name, value in {**sizes(), **rooms(), **crossed(), **loaded()}.items():
        print(f"{name:45} {value:>10,} of {BOUNDS[name]:,}")


if __name__ == "__main__":
    main()
