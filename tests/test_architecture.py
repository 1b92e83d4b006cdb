"""The rules of who may import whom (docs/design.md, sections 1 and 6)."""

from __future__ import annotations

import ast
import functools
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Import:
    """One name that a module imports."""

    module: str
    name: str | None
    line: int


@functools.cache
def imports_of(source: str, module: str, is_package: bool = False) -> list[Import]:
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [Import(alias.name, None, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                up = node.level - is_package
                base = ".".join([*module.split(".")[: -up or None], base]).rstrip(".")
            found += [Import(base, alias.name, node.lineno) for alias in node.names]
    return found


@dataclass(frozen=True)
class Package:
    """The source of a package."""

    name: str
    files: dict[str, Path]

    @classmethod
    def read(cls, folder: Path) -> Package:
        files = {}
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder.parent).with_suffix("").parts
            files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
        return cls(folder.name, files)

    def imports(self, module: str) -> list[Import]:
        path = self.files[module]
        found = imports_of(path.read_text(), module, path.name == "__init__.py")
        return [item for item in found if item.module.split(".")[0] == self.name]

    def target(self, item: Import) -> str:
        """Returns the module that an import reads: a submodule where the name is one."""
        inner = f"{item.module}.{item.name}"
        return inner if inner in self.files else item.module

    def graph(self) -> dict[str, set[str]]:
        return {
            module: {
                target
                for item in self.imports(module)
                if (target := self.target(item)) in self.files and target != module
            }
            for module in self.files
        }


def circles(graph: dict[str, set[str]]) -> list[str]:
    left = dict(graph)
    while free := [node for node, others in left.items() if not others & left.keys()]:
        for node in free:
            del left[node]
    return sorted(left)


def classes(source: str) -> list[str]:
    body = ast.parse(source).body
    return [node.name for node in body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]


ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Package.read(ROOT / "pyg_batchgnn")
KERNELS = ROOT / "csrc" / "kernels"

#: From left to right; a room imports rooms to its left.
ROOMS = (
    "data",
    "comm",
    "partition",
    "store",
    "cache",
    "sample",
    "fetch",
    "device",
    "embed",
    "history",
    "loader",
    "port",
    "planner",
    "train",
)
#: The ground floor, for every room: operators, types, rows on disk, late imports, the machine, the
#: releases of torch.
EVERYBODYS = {"ops", "types", "disk", "late_imports", "machine", "versions"}
#: Layers know nothing but the ground floor; training builds models from them.
MAY_IMPORT = {room: {*ROOMS[:at], *EVERYBODYS, "comm"} for at, room in enumerate(ROOMS)}
MAY_IMPORT["data"] = {"comm", *EVERYBODYS}
MAY_IMPORT["tables"] = {"data", *EVERYBODYS}
MAY_IMPORT["comm"] = {*EVERYBODYS}
MAY_IMPORT["nn"] = {*EVERYBODYS}
MAY_IMPORT["doctor"] = {"comm", "partition", "spinning", *EVERYBODYS}
MAY_IMPORT["train"] |= {"doctor", "nn", "tables"}
MAY_IMPORT["planner"] |= {"nn"}
MAY_IMPORT["port"] |= {"nn"}
MAY_IMPORT["ops"] = {"machine", "late_imports", "versions"}
MAY_IMPORT["types"] = {"ops"}
MAY_IMPORT["disk"] = {"ops", "machine", "late_imports"}
MAY_IMPORT["__main__"] = {"train", "spinning"}
MAY_IMPORT["registration"] = {"comm"}
MAY_IMPORT["versions"] = set()
MAY_IMPORT["late_imports"] = set()
MAY_IMPORT["machine"] = set()
MAY_IMPORT["spinning"] = set()
#: Of the package's own files only the front door knows rooms.
MAY_IMPORT["__init__"] = {*ROOMS, "nn", "registration", *EVERYBODYS}

#: Packages inside a room that have a front door of their own.
INNER_DOORS = {"comm.ccl", "data.files", "nn.models", "train.cli"}


def room_of(module: str) -> str:
    """The room of a module of the package: the part of its name after the package's."""
    return module.split(".")[1] if "." in module else "__init__"


def imported_rooms(imports: list[Import]) -> set[str]:
    package = f"{PACKAGE.name}."
    names = [f"{item.module}.{item.name}" if item.name else item.module for item in imports]
    return {room_of(name) for name in names if name.startswith(package)}


def may_import(room: str, other: str) -> bool:
    return other == room or other in MAY_IMPORT[room] or other == "__version__"


def test_every_room_is_in_the_picture() -> None:
    unknown = {room_of(module) for module in PACKAGE.files} - MAY_IMPORT.keys()
    assert not unknown, f"put these rooms into docs/design.md and into this table: {sorted(unknown)}"


def test_a_room_imports_only_rooms_to_its_left() -> None:
    found = [
        f"{module} imports {other}"
        for module in PACKAGE.files
        for other in sorted(imported_rooms(PACKAGE.imports(module)))
        if not may_import(room_of(module), other)
    ]
    assert not found, "\n".join(found)


def past_the_door(package: Package, module: str) -> dict[str, int]:
    """The files inside other rooms that a module imports, with the line of the import."""
    found = {}
    for item in package.imports(module):
        target = package.target(item).removeprefix(f"{package.name}.")
        room = target.split(".")[0]
        if (
            room != room_of(module)
            and target != room
            and package.name != target
            and target not in INNER_DOORS
        ):
            found[target] = item.line
    return found


def shared_names(package: Package) -> dict[str, list[str]]:
    """The public classes of one name in several rooms, with their modules."""
    modules = defaultdict(list)
    for module, path in package.files.items():
        for name in classes(path.read_text()):
            modules[name].append(module)
    return {name: found for name, found in modules.items() if len({room_of(module) for module in found}) > 1}


def test_other_rooms_are_entered_by_their_front_doors() -> None:
    found = [
        f"{module}:{line} imports {target}: import from the room itself"
        for module in PACKAGE.files
        for target, line in past_the_door(PACKAGE, module).items()
    ]
    assert not found, "\n".join(found)


def test_files_do_not_import_each_other_in_a_circle() -> None:
    assert circles(PACKAGE.graph()) == []


def test_classes_of_different_rooms_have_different_names() -> None:
    assert shared_names(PACKAGE) == {}


def small_package(folder: Path, files: dict[str, str]) -> Package:
    for name, source in files.items():
        path = folder / "pyg_batchgnn" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return Package.read(folder / "pyg_batchgnn")


def test_the_rules_of_files_see_violations(tmp_path: Path) -> None:
    package = small_package(
        tmp_path,
        {
            "__init__.py": "from pyg_batchgnn.data import Graph",
            "data/__init__.py": "from pyg_batchgnn.data.graph import Graph",
            "data/graph.py": "from .nodes import Nodes\n\n\nclass Graph: ...\n\n\nclass Step: ...",
            "data/nodes.py": "def f():\n    from pyg_batchgnn.data import graph",
            "data/edges.py": "from pyg_batchgnn.data import Graph",
            "store/__init__.py": "",
            "store/rows.py": "import x\nfrom pyg_batchgnn.data.graph import Graph\n\n\nclass Step: ...",
            "store/more.py": "from pyg_batchgnn.data import Graph, nodes",
        },
    )
    assert past_the_door(package, "pyg_batchgnn.store.rows") == {"data.graph": 2}
    assert past_the_door(package, "pyg_batchgnn.store.more") == {"data.nodes": 1}
    assert past_the_door(package, "pyg_batchgnn.data.edges") == {}
    assert circles(package.graph()) != []
    assert shared_names(package) == {"Step": ["pyg_batchgnn.data.graph", "pyg_batchgnn.store.rows"]}


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


def foreign_includes(source: str, name: str) -> list[str]:
    """The headers that a kernel includes and may not. ``name``: its path inside csrc/kernels."""
    wrong = []
    for system, own in INCLUDE.findall(source):
        if own:
            allowed = own.startswith("kernels/")
        elif system in INTRINSICS:
            allowed = name.startswith("simd/")
        else:
            allowed = system in STANDARD or system in SYSTEM.get(name, ())
        if not allowed:
            wrong.append(system or own)
    return wrong


def kernel_files() -> dict[str, str]:
    files = [path for path in KERNELS.rglob("*") if path.suffix in {".h", ".cpp", ".hpp", ".cc", ".inc"}]
    return {str(path.relative_to(KERNELS)): path.read_text() for path in sorted(files)}


def test_kernels_know_only_the_standard_library() -> None:
    foreign = {name: foreign_includes(source, name) for name, source in kernel_files().items()}
    assert not {name: found for name, found in foreign.items() if found}


def test_no_kernel_speaks_of_torch() -> None:
    torch = re.compile(r"\b(torch|at|c10)::|\bTORCH_|\bPyObject\b|#\s*pragma\s+omp")
    comment = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
    assert not [name for name, source in kernel_files().items() if torch.search(comment.sub("", source))]


def test_vector_intrinsics_stay_in_their_folder() -> None:
    intrinsic = re.compile(r"\b_mm(256|512)?_\w+|\b__m(128|256|512)")
    users = [name for name, source in kernel_files().items() if intrinsic.search(source)]
    assert not [name for name in users if not name.startswith("simd/")]


def own_includes() -> dict[str, set[str]]:
    """Returns the kernels that each kernel includes, by path inside csrc/kernels."""
    included = {}
    for name, source in kernel_files().items():
        found = {own for _, own in INCLUDE.findall(source) if own}
        included[name] = {own.removeprefix("kernels/") for own in found}
    return included


@pytest.mark.parametrize(
    ("folder", "may_include"),
    [("", {"", "simd"}), ("simd", {"", "simd"}), ("nn", {"", "simd", "nn"}), ("disk", {"", "disk"})],
    ids=["kernels", "simd", "nn", "disk"],
)
def test_folders_of_kernels_include_lower_ones_only(folder: str, may_include: set[str]) -> None:
    for name, own in own_includes().items():
        if str(Path(name).parent).replace(".", "") == folder:
            others = {str(Path(other).parent).replace(".", "") for other in own}
            assert others <= may_include, f"{name} includes {sorted(own)}"


def test_kernels_do_not_include_each_other_in_a_circle() -> None:
    assert circles(own_includes()) == []


def test_threads_start_in_one_file() -> None:
    starters = [name for name, source in kernel_files().items() if "std::thread" in source]
    assert starters == ["parallel.cpp"]
