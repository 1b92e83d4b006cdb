"""Finding oneCCL and libfabric, and loading oneCCL by its path."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: The packages with which the backend is built and tested. The extra "ccl" installs them.
ONECCL, LIBFABRIC = "oneccl-devel==2021.13.1", "impi-rt==2021.17.2"

_LIBRARY = Path("lib/ccl/cpu/lib/libccl.so.1")
_FABRIC = "libfabric.so.1"


class CclMissingError(RuntimeError):
    """The ccl backend cannot work here. The text says what is missing and what to do."""


@dataclass(frozen=True)
class Libraries:
    """The files of an installation.

    Attributes:
        oneccl: the shared library for CPUs, without SYCL.
        libfabric: libfabric. Its folder also has the providers (libtcp-fi.so, libshm-fi.so).
    """

    oneccl: Path
    libfabric: Path


def find_libraries() -> Libraries:
    """Finds the libraries in CCL_ROOT, in the installed packages, or in this environment, in this
    order.

    ``<environment>/lib/libccl.so.1`` is not used, because it may be the library with SYCL.

    Raises:
        CclMissingError: a library is in none of these places.
    """
    oneccl = _first(root / _LIBRARY for root in _roots("oneccl-devel"))
    if oneccl is None:
        raise CclMissingError(f"oneCCL ({_LIBRARY}) is not installed; {_remedy()}")
    libfabric = _first(root / "lib" / _FABRIC for root in _roots("impi-rt"))
    if libfabric is None:
        raise CclMissingError(f"libfabric (lib/{_FABRIC}) is not installed; {_remedy()}")
    return Libraries(oneccl, libfabric)


def load(oneccl: Path) -> None:
    """Loads oneCCL so that the extension finds its symbols."""
    ctypes.CDLL(str(oneccl), mode=os.RTLD_NOW | os.RTLD_GLOBAL)


def _remedy() -> str:
    return f"pip install {ONECCL} {LIBFABRIC}, or name its folder by CCL_ROOT"


def _roots(package: str) -> Iterator[Path]:
    """Returns the folders that may have lib/ and include/."""
    if root := os.environ.get("CCL_ROOT"):
        yield Path(root)
    try:
        for file in importlib.metadata.files(package) or []:
            path = Path(str(file.locate())).resolve()
            if path.name in (_LIBRARY.name, _FABRIC):
                yield from path.parents[1:5]
    except importlib.metadata.PackageNotFoundError:
        pass
    yield Path(sys.prefix)


def _first(paths: Iterator[Path]) -> Path | None:
    return next((path.resolve() for path in paths if path.exists()), None)
