"""The extension pyg_batchgnn._ccl, which is built if PYG_BATCHGNN_CCL=1."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from pathlib import Path

from torch.utils.cpp_extension import CppExtension

SOURCES = [
    "csrc/ccl/backend.cpp",
    "csrc/ccl/collectives.cpp",
    "csrc/ccl/engine.cpp",
    "csrc/ccl/group.cpp",
    "csrc/ccl/module.cpp",
    "csrc/ccl/work.cpp",
]
_HEADER = Path("oneapi/ccl.hpp")
_MISSING = """
PYG_BATCHGNN_CCL=1 asks for the ccl backend, but oneCCL's headers (oneapi/ccl.hpp) are in none of
{folders}
Install them and repeat the command:

    pip install oneccl-devel==2021.13.1

or set CCL_ROOT to the folder that holds include/ and lib/.
"""


def wanted() -> bool:
    """Returns whether the extension is to be built."""
    return os.environ.get("PYG_BATCHGNN_CCL") == "1"


def headers() -> Path:
    """Returns the folder of oneCCL's headers: of CCL_ROOT, the installed package or the
    environment."""
    folders = []
    if root := os.environ.get("CCL_ROOT"):
        folders.append(Path(root) / "include")
    for entry in _packaged():
        if str(entry).endswith(str(_HEADER)):
            folders.append(Path(str(entry.locate())).resolve().parents[1])
    folders.append(Path(sys.prefix) / "include")
    for folder in folders:
        if (folder / _HEADER).exists():
            return folder
    sys.exit(_MISSING.format(folders="\n".join(f"    {folder}" for folder in folders)))


def _packaged() -> list[importlib.metadata.PackagePath]:
    try:
        return importlib.metadata.files("oneccl-devel") or []
    except importlib.metadata.PackageNotFoundError:
        return []


def extension(flags: list[str]) -> CppExtension:
    """Returns the extension. It is not linked with oneCCL, which is loaded by its path at run time.

    Args:
        flags: compiler flags in addition to those for the include folders.
    """
    made = CppExtension("pyg_batchgnn._ccl", SOURCES, extra_compile_args=["-std=c++20", "-O2", "-g0", *flags])
    foreign = [*made.include_dirs, str(headers())]
    made.extra_compile_args += [flag for folder in foreign for flag in ("-isystem", folder)]
    made.include_dirs = [str(Path(__file__).resolve().parents[1] / "csrc")]
    return made
