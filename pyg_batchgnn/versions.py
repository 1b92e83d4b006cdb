"""Checks the releases of PyTorch and PyTorch Geometric before anything is imported from them.

The compiled operators use torch's stable ABI, which promises that they load beside later releases
of torch. All tests run with the releases named in `TESTED`. A tenth of them run with a wheel and
the other releases in `WHEEL_TESTED`; later releases are expected to work.
"""

from __future__ import annotations

import re
from importlib import metadata
from typing import Any

#: The oldest release of each package that works.
OLDEST = {"torch": (2, 11), "torch-geometric": (2, 8)}
#: The releases that the tests run with, and that `make install` takes.
TESTED = {"torch": "2.13.0", "torch-geometric": "2.8.1"}
#: The releases of torch beside which a wheel and a tenth of the tests ran, with that of Python
#: (`build_tools/test_wheel.py`).
WHEEL_TESTED = {"2.11.0": "3.10", "2.15.0": "3.13"}
#: How to install the tested releases.
COMMANDS = {
    "torch": "pip install torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu",
    "torch-geometric": "pip install torch-geometric==2.8.1",
}


def check_versions() -> None:
    """Raises ImportError, with the release found and the command that installs a tested one, unless
    torch and torch-geometric are installed and recent enough. Reads the packages' metadata and
    imports neither. A package without metadata, such as a source tree, is not checked."""
    for package, oldest in OLDEST.items():
        try:
            found = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
        if is_older(found, oldest):
            wanted = ".".join(map(str, oldest))
            raise ImportError(
                f"pyg_batchgnn needs {package} {wanted} or later, but {package} {found} is installed. "
                f"Install the release that it is tested with: {COMMANDS[package]}"
            )


def private(owner: Any, name: str) -> Any:
    """Returns a private name of torch. Called while a module is imported.

    Raises:
        ImportError: this release of torch lacks it. The message says how to install a tested one.
    """
    if not hasattr(owner, name):
        raise ImportError(
            f"torch {metadata.version('torch')} has no {getattr(owner, '__name__', owner)}.{name}, which "
            f"pyg_batchgnn uses. Install the release that it is tested with: {COMMANDS['torch']}"
        )
    return getattr(owner, name)


def is_older(version: str, oldest: tuple[int, int]) -> bool:
    """Returns whether a version such as "2.9.1+cpu" is older than the release ``oldest``. False if
    it does not begin with two numbers."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return numbers is not None and (int(numbers[1]), int(numbers[2])) < oldest
