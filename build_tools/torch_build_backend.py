"""The PEP 517 backend of setuptools, with the torch of the surrounding environment made visible.

pip builds in an isolated environment. A package that is compiled against torch must see the torch
that it will run with, not a new copy of several gigabytes. The isolated interpreter knows the
package folder of the surrounding environment. That folder is appended to the path, behind the
packages of the isolated build.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig

#: The last release with a shared library for CPUs, as in the extra "ccl" of pyproject.toml.
ONECCL = "oneccl-devel==2021.13.1"

_MISSING = """
pyg_batchgnn is compiled against the PyTorch that is installed, and {python} has none.
Install one first, for instance the CPU build:

    pip install torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu

and repeat the command. If torch is installed in another environment, use that environment's pip.
"""


def _show_installed_packages() -> None:
    folders = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    for folder in dict.fromkeys(folders):
        if folder and folder not in sys.path:
            sys.path.append(folder)


def _require_torch() -> None:
    _show_installed_packages()
    if importlib.util.find_spec("torch") is None:
        sys.exit(_MISSING.format(python=sys.executable))


from setuptools import build_meta as _setuptools  # noqa: E402

get_requires_for_build_sdist = _setuptools.get_requires_for_build_sdist
build_sdist = _setuptools.build_sdist


def _requirements(of_setuptools, config_settings):  # type: ignore[no-untyped-def]
    """Returns the requirements of an isolated build, with oneCCL's headers for the ccl backend.

    The headers are not installed yet when setuptools is asked, so the question leaves them out.
    """
    _require_torch()
    asked = os.environ.pop("PYG_BATCHGNN_CCL", None)
    try:
        found = of_setuptools(config_settings)
    finally:
        if asked is not None:
            os.environ["PYG_BATCHGNN_CCL"] = asked
    return [*found, ONECCL] if asked == "1" and "CCL_ROOT" not in os.environ else found


def get_requires_for_build_wheel(config_settings=None):  # type: ignore[no-untyped-def]
    return _requirements(_setuptools.get_requires_for_build_wheel, config_settings)


def get_requires_for_build_editable(config_settings=None):  # type: ignore[no-untyped-def]
    return _requirements(_setuptools.get_requires_for_build_editable, config_settings)


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):  # type: ignore[no-untyped-def]
    _require_torch()
    return _setuptools.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


def prepare_metadata_for_build_editable(metadata_directory, config_settings=None):  # type: ignore[no-untyped-def]
    _require_torch()
    return _setuptools.prepare_metadata_for_build_editable(metadata_directory, config_settings)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):  # type: ignore[no-untyped-def]
    _require_torch()
    return _setuptools.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):  # type: ignore[no-untyped-def]
    _require_torch()
    return _setuptools.build_editable(wheel_directory, config_settings, metadata_directory)
