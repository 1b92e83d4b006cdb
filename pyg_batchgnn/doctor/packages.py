"""Checks of packages: those that are needed, and those that are used where they are installed."""

from __future__ import annotations

import ctypes.util
import importlib.metadata
import importlib.util
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pyg_batchgnn.comm.ccl import CclMissingError, find_libraries
from pyg_batchgnn.doctor.finding import Finding, FindingState
from pyg_batchgnn.versions import OLDEST

#: Seconds that importing a package may take, in a process of its own.
_IMPORT_SECONDS = 60.0


@dataclass(frozen=True)
class Package:
    """A package that may be installed.

    Attributes:
        name: the name that users know.
        module: the module that is imported.
        distribution: the name on the package index.
        remedy: what the package is for, and how to install it.
        least: the oldest version that works, () for any.
    """

    name: str
    module: str
    distribution: str
    remedy: str
    least: tuple[int, ...] = ()

    @property
    def needed(self) -> bool:
        """True if pyg_batchgnn cannot work without the package."""
        return bool(self.least)


PACKAGES = (
    Package(
        *("torch", "torch", "torch"),
        "pip install torch==2.13.0 --extra-index-url https://download.pytorch.org/whl/cpu, then install "
        "pyg_batchgnn again: its operators are compiled against torch",
        OLDEST["torch"],
    ),
    Package(
        "PyG",
        "torch_geometric",
        "torch-geometric",
        "pip install 'torch-geometric>=2.8'",
        OLDEST["torch-geometric"],
    ),
    Package(
        *("pyg-lib", "pyg_lib", "pyg-lib"),
        "only to compare with PyG's own sampler; take the wheel for this version of torch",
    ),
    Package(
        "DGL", "dgl", "dgl", "only for Minibatch.to_dgl() and benchmarks: pip install dgl==1.1.3 packaging"
    ),
    Package("OGB", "ogb", "ogb", "only to download OGB's graphs: pip install 'pyg_batchgnn[ogb]'"),
)


def check_packages() -> list[Finding]:
    """Checks each package in a process of its own.

    A library that was built for another torch may crash it.
    """
    with ThreadPoolExecutor() as pool:
        return [*pool.map(check_package, PACKAGES), check_metis(), check_oneccl()]


def check_package(package: Package) -> Finding:
    """Checks that a package is installed, is new enough, and can be imported."""
    if importlib.util.find_spec(package.module) is None:
        state = FindingState.BROKEN if package.needed else FindingState.ABSENT
        return Finding(package.name, state, "not installed", package.remedy, package.needed)
    version = _version(package)
    if package.least and _numbers(version) < package.least:
        least = ".".join(map(str, package.least))
        return Finding(package.name, FindingState.BROKEN, f"{version}, not {least}", package.remedy, True)
    if problem := _import_error(package.module):
        seen = f"{version} cannot be imported: {problem}"
        return Finding(package.name, FindingState.BROKEN, seen, package.remedy, package.needed)
    return Finding(package.name, FindingState.WORKS, version, needed=package.needed)


def check_metis() -> Finding:
    """Checks for METIS, as a Python package or as the system's library."""
    if importlib.util.find_spec("pymetis"):
        return Finding("METIS", FindingState.WORKS, f"pymetis {importlib.metadata.version('pymetis')}")
    if library := ctypes.util.find_library("metis"):
        return Finding("METIS", FindingState.WORKS, library)
    remedy = "only for benchmarks of partitioning against it: pip install pymetis"
    return Finding("METIS", FindingState.ABSENT, "not installed", remedy)


def check_oneccl() -> Finding:
    """Checks for oneCCL's libraries. `check_backends` tells whether the backend works."""
    try:
        libraries = find_libraries()
    except CclMissingError as error:
        what, _, remedy = str(error).partition("; ")
        return Finding("oneCCL", FindingState.ABSENT, what, f"for --backend ccl: {remedy}")
    return Finding("oneCCL", FindingState.WORKS, str(libraries.oneccl))


def _version(package: Package) -> str:
    try:
        return importlib.metadata.version(package.distribution)
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version"


def _numbers(version: str) -> tuple[int, ...]:
    """Returns the leading numbers of a version, () where it is not known."""
    return tuple(int(number) for number in re.findall(r"\d+", version.partition("+")[0])[:2])


def _import_error(module: str) -> str:
    """Returns what went wrong with an import: the last line of its errors or its exit status."""
    try:
        ran = subprocess.run(
            [sys.executable, "-c", f"import {module}"],
            capture_output=True,
            text=True,
            timeout=_IMPORT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"the import had not ended after {_IMPORT_SECONDS:.0f} s"
    if ran.returncode == 0:
        return ""
    said = ran.stderr.strip().splitlines()
    return said[-1] if ran.returncode > 0 and said else f"the process ended with {ran.returncode}"
