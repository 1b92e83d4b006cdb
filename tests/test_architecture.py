"""The rules of who may import whom (docs/design.md, sections 1 and 6)."""

from __future__ import annotations

import ast
import functools
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ROOT / "csrc" / "kernels"

#: From left to right; a room imports rooms to its left.
ROOMS = (
    *("data", "comm", "partition", "store", "cache", "sample", "fetch", "device", "embed", "history"),
    *("loader", "port", "planner", "train"),
)
#: The ground floor, for every room: operators, types, rows on disk, late imports, the machine, the
#: releases of torch.
EVERYBODYS = {"ops", "types", "disk", "late_imports", "machine", "versions"}
#: Layers know nothing but the ground floor; training builds models from them.
MAY_IMPORT = {room: {*ROOMS[:at], *EVERYBODYS, "comm"} for at, room in enumerate(ROOMS)}
MAY_IMPORT |= dict.fromkeys(("comm", "nn"), EVERYBODYS)
MAY_IMPORT |= {file: set() for file in ("versions", "late_imports", "machine", "spinning")}
MAY_IMPORT["tables"] = {"data", *EVERYBODYS}
MAY_IMPORT["doctor"] = {"comm", "partition", "spinning", *EVERYBODYS}
MAY_IMPORT["train"] |= {"doctor", "nn", "tables"}
MAY_IMPORT["planner"] |= {"nn"}
MAY_IMPORT["port"] |= {"nn"}
MAY_IMPORT["ops"] = {"machine", "late_imports", "versions"}
MAY_IMPORT["types"] = {"ops"}
MAY_IMPORT["disk"] = {"ops", "machine", "late_imports"}
MAY_IMPORT["__main__"] = {"train", "spinning"}
MAY_IMPORT["registration"] = {"comm"}
#: Of the package's own files only the front door knows rooms.
MAY_IMPORT["__init__"] = {*ROOMS, "nn", "registration", "__version__", *EVERYBODYS}
#: Packages inside a room that have a front door of their own.
INNER_DOORS = {"comm.ccl", "data.files", "nn.models", "train.cli"}


def read_package(folder: Path) -> dict[str, Path]:
    """Returns the files of the package by module; the package itself is ``__init__``."""
    files = {}
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "__init__"] = path
    return files


@functools.cache
def imported_names(path: Path, module: str) -> list[tuple[str, int]]:
    """Returns the names inside the package that a module imports, each with its line."""
    here = ["pyg_batchgnn", *(module.split(".") if module != "__init__" else [])]
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            up = node.level - (path.name == "__init__.py")
            base = [*here[: len(here) - up], *filter(None, [node.module])] if node.level else [node.module]
            names = [".".join([*base, alias.name]) for alias in node.names]
        else:
            continue
        found += [(name, node.lineno) for name in names if name.split(".")[0] == "pyg_batchgnn"]
    return found


def imports(files: dict[str, Path], module: str) -> Iterator[tuple[str, int]]:
    for name, line in imported_names(files[module], module):
        inner = name.removeprefix("pyg_batchgnn").lstrip(".") or "__init__"
        outer = inner.rpartition(".")[0] or "__init__"
        yield (inner if inner in files or outer not in files else outer), line


def circles(graph: dict[str, set[str]]) -> list[str]:
    left = dict(graph)
    while free := [node for node, others in left.items() if not others & left.keys()]:
        for node in free:
            del left[node]
    return sorted(left)


def past_the_door(files: dict[str, Path], module: str) -> dict[str, int]:
    """The files inside other rooms that a module imports, with the line of the import."""
    own = module.split(".")[0]
    return {
        other: line
        for other, line in imports(files, module)
        if "." in other and other.split(".")[0] != own and other not in INNER_DOORS
    }


def shared_names(files: dict[str, Path]) -> dict[str, list[str]]:
    modules = defaultdict(list)
    for module, path in files.items():
        for name in re.findall(r"^class ([A-Za-z]\w*)", path.read_text(), re.MULTILINE):
            modules[name].append(module)
    return {name: found for name, found in modules.items() if len({one.split(".")[0] for one in found}) > 1}


PACKAGE = read_package(ROOT / "pyg_batchgnn")


def test_a_room_imports_only_rooms_to_its_left() -> None:
    unknown = {module.split(".")[0] for module in PACKAGE} - MAY_IMPORT.keys()
    assert not unknown, f"put these rooms into docs/design.md and into this table: {sorted(unknown)}"
    found = []
    for module in PACKAGE:
        room = module.split(".")[0]
        rooms = {other.split(".")[0] for other, _ in imports(PACKAGE, module)}
        found += [f"{module} imports {other}" for other in rooms - MAY_IMPORT[room] - {room, "__init__"}]
    assert not found, "\n".join(found)


def test_other_rooms_are_entered_by_their_front_doors() -> None:
    found = {module: past_the_door(PACKAGE, module) for module in PACKAGE}
    assert not {module: others for module, others in found.items() if others}, "import from the room itself"


def test_files_form_no_circles_and_classes_of_rooms_have_different_names() -> None:
    graph = {one: {other for other, _ in imports(PACKAGE, one)} & {*PACKAGE} - {one} for one in PACKAGE}
    assert circles(graph) == []
    assert shared_names(PACKAGE) == {}


STANDARD = frozenset(
    re.findall(
        r"\w+",
        """
    algorithm array atomic bit bitset cassert cerrno charconv chrono climits cmath compare
    concepts condition_variable cstddef cstdint cstdio cstdlib cstring ctime deque exception
    fstream functional initializer_list iostream iterator limits map memory mutex new numbers
    numeric optional ostream queue random ranges set shared_mutex source_location span sstream
    stdexcept string string_view system_error thread tuple type_traits unordered_map
    unordered_set utility variant vector version
    """,
    )
)
#: Headers of the system by the file that may include them: each has one subject of the system.
SYSTEM = {
    "allocation.cpp": {"pthread.h", "sys/mman.h"},
    "simd/tiles.cpp": {"cpuid.h", "sys/syscall.h", "unistd.h"},
    "turns.cpp": {"linux/futex.h", "sys/syscall.h", "unistd.h"},
    "disk/file.cpp": {
        *("fcntl.h", "linux/io_uring.h", "sys/mman.h", "sys/stat.h", "sys/syscall.h", "sys/uio.h", "unistd.h")
    },
}
INTRINSICS = {"immintrin.h", "x86intrin.h", "emmintrin.h", "xmmintrin.h", "arm_neon.h", "arm_sve.h"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:<([^>]+)>|"([^"]+)")', re.MULTILINE)
SOURCES = {str(path.relative_to(KERNELS)): path.read_text() for path in sorted(KERNELS.rglob("*.*"))}
KERNEL_FOLDERS = {name.rpartition("/")[0] for name in SOURCES}
#: The folders of kernels that each of them may include.
LOWER = {"": {"", "simd"}, "simd": {"", "simd"}, "nn": {"", "simd", "nn"}, "disk": {"", "disk"}}


def test_kernels_know_only_the_standard_library_and_kernels_below_them() -> None:
    graph = {}
    for name, source in SOURCES.items():
        folder = name.rpartition("/")[0]
        allowed = STANDARD | SYSTEM.get(name, set()) | (INTRINSICS if folder == "simd" else set())
        found = INCLUDE.findall(source)
        assert {system for system, _ in found if system} <= allowed, name
        own = {inner for _, inner in found if inner}
        assert all(inner.startswith("kernels/") for inner in own), name
        graph[name] = {inner.removeprefix("kernels/") for inner in own}
        assert {one.rpartition("/")[0] for one in graph[name]} <= LOWER.get(folder, KERNEL_FOLDERS), name
    assert circles(graph) == []


def test_torch_intrinsics_and_threads_stay_where_they_belong() -> None:
    torch = re.compile(r"\b(torch|at|c10)::|\bTORCH_|\bPyObject\b|#\s*pragma\s+omp")
    comment = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
    intrinsic = re.compile(r"\b_mm(256|512)?_\w+|\b__m(128|256|512)")
    assert not [name for name, source in SOURCES.items() if torch.search(comment.sub("", source))]
    assert all(name.startswith("simd/") for name, source in SOURCES.items() if intrinsic.search(source))
    assert [name for name, source in SOURCES.items() if "std::thread" in source] == ["parallel.cpp"]
