"""Who may know whom (design, sections 1 and 6)."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "pyg_batchgnn"
KERNELS = ROOT / "csrc" / "kernels"

#: From left to right; a room imports rooms to its left.
ROOMS = ("data", "comm", "partition", "store", "cache", "sample", "fetch", "loader", "planner", "train")
#: Everybody's: the compiled operators. Of the package's own files only the front door knows rooms.
EVERYBODYS = {"ops"}
#: Layers know nothing but the operators; training builds models from them.
MAY_IMPORT = {room: {*ROOMS[:at], *EVERYBODYS, "comm"} for at, room in enumerate(ROOMS)}
MAY_IMPORT["data"] = {"comm", *EVERYBODYS}
MAY_IMPORT["comm"] = {*EVERYBODYS}
MAY_IMPORT["nn"] = {*EVERYBODYS}
MAY_IMPORT["doctor"] = {"comm", *EVERYBODYS}
MAY_IMPORT["train"] |= {"doctor", "nn"}
MAY_IMPORT["planner"] |= {"nn"}
MAY_IMPORT["ops"] = set()
MAY_IMPORT["__main__"] = {"train"}
MAY_IMPORT["registration"] = {"comm"}
MAY_IMPORT["versions"] = set()
MAY_IMPORT["__init__"] = {*ROOMS, "nn", "registration", "versions", *EVERYBODYS}


def imported_rooms(source: str, module: str, package: str = "pyg_batchgnn") -> set[str]:
    """Rooms that a module's source imports, absolutely or relatively, at the top or inside functions."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parent = module.split(".")[: -node.level]
                base = ".".join([*parent, base]).rstrip(".")
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith(f"{package}.")}
    return found


def modules() -> list[tuple[str, Path]]:
    paths = sorted(PACKAGE.rglob("*.py"))
    return [(".".join(path.relative_to(ROOT).with_suffix("").parts), path) for path in paths]


def may_import(room: str, other: str) -> bool:
    return other == room or other in MAY_IMPORT[room] or other == "__version__"


@pytest.mark.parametrize(("module", "path"), modules(), ids=[name for name, _ in modules()])
def test_a_room_imports_only_rooms_to_its_left(module: str, path: Path) -> None:
    room = module.split(".")[1]
    assert room in MAY_IMPORT, (
        f"{module}: the room {room!r} is not in the picture; put it into DESIGN and this table"
    )
    forbidden = {other for other in imported_rooms(path.read_text(), module) if not may_import(room, other)}
    assert not forbidden, f"{module} imports {sorted(forbidden)}"


@pytest.mark.parametrize(
    ("room", "source", "found"),
    [
        ("sample", "from pyg_batchgnn.loader import Counters", {"loader"}),
        ("sample", "import pyg_batchgnn.loader.stats", {"loader"}),
        ("sample", "from pyg_batchgnn import loader, ops", {"loader"}),
        ("sample", "from ..fetch import group", {"fetch"}),
        ("sample", "from .. import train", {"train"}),
        ("sample", "def f():\n    from pyg_batchgnn.fetch.group import fetch_group", {"fetch"}),
        ("sample", "if TYPE_CHECKING:\n    from pyg_batchgnn.loader import X", {"loader"}),
        ("sample", "from pyg_batchgnn.store import CscGraph\nfrom .plan import SamplingPlan", set()),
        ("store", "from pyg_batchgnn.data import Dataset", set()),
        ("data", "from pyg_batchgnn.store import CscGraph", {"store"}),
        ("nn", "from pyg_batchgnn.sample import Minibatch\nfrom pyg_batchgnn.ops import x", {"sample"}),
        ("comm", "from pyg_batchgnn.data import Dataset", {"data"}),
        ("ops", "from pyg_batchgnn.sample import Minibatch", {"sample"}),
        ("loader", "from pyg_batchgnn.train import cli", {"train"}),
    ],
)
def test_the_rule_sees_violations(room: str, source: str, found: set[str]) -> None:
    others = imported_rooms(source, f"pyg_batchgnn.{room}.module")
    assert {other for other in others if not may_import(room, other)} == found


# Kernels ##########################################################################################

STANDARD = {
    *("algorithm", "array", "atomic", "bit", "cassert", "charconv", "chrono", "cmath", "compare", "concepts"),
    *(
        "cstddef",
        "cstdint",
        "cstdio",
        "cstdlib",
        "cstring",
        "deque",
        "exception",
        "functional",
        "initializer_list",
    ),
    *(
        "iterator",
        "limits",
        "map",
        "memory",
        "mutex",
        "new",
        "numeric",
        "optional",
        "ostream",
        "queue",
        "random",
    ),
    *(
        "ranges",
        "set",
        "shared_mutex",
        "span",
        "sstream",
        "stdexcept",
        "string",
        "string_view",
        "system_error",
    ),
    *("thread", "tuple", "type_traits", "unordered_map", "unordered_set", "utility", "variant", "vector"),
    *(
        "condition_variable",
        "iostream",
        "numbers",
        "source_location",
        "version",
        "bitset",
        "cerrno",
        "climits",
    ),
}
#: Headers of the system, and the one file that may include each.
ONE_FILE = {"pthread.h": "allocation.cpp", "sys/mman.h": "pages.cpp"}
INTRINSICS = {"immintrin.h", "x86intrin.h", "emmintrin.h", "xmmintrin.h", "arm_neon.h", "arm_sve.h"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:<([^>]+)>|"([^"]+)")', re.MULTILINE)


def foreign_includes(source: str, name: str) -> list[str]:
    """What a kernel includes and may not. ``name``: the file's path inside csrc/kernels."""
    wrong = []
    for system, own in INCLUDE.findall(source):
        if own:
            allowed = own.startswith("kernels/")
        elif system in INTRINSICS:
            allowed = name.startswith("simd/")
        else:
            allowed = system in STANDARD or ONE_FILE.get(system) == name
        if not allowed:
            wrong.append(system or own)
    return wrong


def kernel_files() -> list[str]:
    files = [path for path in KERNELS.rglob("*") if path.suffix in {".h", ".cpp", ".hpp", ".cc", ".inc"}]
    return sorted(str(path.relative_to(KERNELS)) for path in files)


def test_there_are_kernels() -> None:
    assert len(kernel_files()) > 10


@pytest.mark.parametrize("name", kernel_files())
def test_kernels_know_only_the_standard_library(name: str) -> None:
    assert foreign_includes((KERNELS / name).read_text(), name) == []


@pytest.mark.parametrize("name", kernel_files())
def test_no_kernel_speaks_of_torch(name: str) -> None:
    code = re.sub(r"//[^\n]*|/\*.*?\*/", "", (KERNELS / name).read_text(), flags=re.DOTALL)
    assert not re.search(r"\b(torch|at|c10)::|\bTORCH_|\bPyObject\b|#\s*pragma\s+omp", code)


@pytest.mark.parametrize("name", kernel_files())
def test_vector_intrinsics_stay_in_their_folder(name: str) -> None:
    uses = re.search(r"\b_mm(256|512)?_\w+|\b__m(128|256|512)", (KERNELS / name).read_text())
    assert uses is None or name.startswith("simd/"), uses


def test_threads_start_in_one_file() -> None:
    starters = [name for name in kernel_files() if "std::thread" in (KERNELS / name).read_text()]
    assert starters == ["parallel.cpp"]


@pytest.mark.parametrize(
    ("name", "source", "wrong"),
    [
        ("sample.cpp", "#include <torch/torch.h>", ["torch/torch.h"]),
        ("sample.cpp", '#include "bindings/tensors.h"', ["bindings/tensors.h"]),
        ("sample.cpp", "#include <pthread.h>", ["pthread.h"]),
        ("sample.cpp", "#include <sys/mman.h>", ["sys/mman.h"]),
        ("sample.cpp", "  #  include <immintrin.h>", ["immintrin.h"]),
        ("sample.cpp", "#include <omp.h>", ["omp.h"]),
        ("simd/copy.cpp", "#include <immintrin.h>\n#include <vector>", []),
        ("allocation.cpp", "#include <pthread.h>", []),
        ("pages.cpp", "#include <sys/mman.h>", []),
    ],
)
def test_the_kernel_rule_sees_violations(name: str, source: str, wrong: list[str]) -> None:
    assert foreign_includes(source, name) == wrong
