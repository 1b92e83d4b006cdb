"""Importing the package beside a release that is too old says what to install."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pyg_batchgnn import versions


@pytest.mark.parametrize(
    ("version", "older"),
    [
        ("2.10.9", True),
        ("2.10.1+cpu", True),
        ("1.13.0", True),
        ("2.9.0a0+git123", True),
        ("2.11.0", False),
        ("2.11.0a0", False),
        ("2.11", False),
        ("2.100.0", False),
        ("3.0", False),
        ("nightly", False),
    ],
)
def test_versions_are_compared_as_numbers(version: str, older: bool) -> None:
    assert versions.is_older(version, (2, 11)) is older


def test_what_is_installed_here_passes() -> None:
    versions.check_versions()


@pytest.mark.parametrize("package", sorted(versions.OLDEST))
def test_an_old_release_is_an_import_error_that_names_the_command(package: str, tmp_path: Path) -> None:
    """A folder with the metadata of an old release comes before the real one on the path."""
    info = tmp_path / f"{package.replace('-', '_')}-1.9.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.9.0\n")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import pyg_batchgnn"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 1
    assert f"{package} 1.9.0 is installed" in ran.stderr
    assert versions.COMMANDS[package] in ran.stderr


def test_the_wheel_was_tested_beside_the_oldest_release_and_a_later_one() -> None:
    releases = [tuple(map(int, release.split(".")[:2])) for release in versions.WHEEL_TESTED]
    assert min(releases) == versions.OLDEST["torch"]
    assert max(releases) > tuple(map(int, versions.TESTED["torch"].split(".")[:2]))
    readme = Path(__file__).parents[1].joinpath("README.md").read_text()
    assert all(release in readme for release in versions.WHEEL_TESTED)


def test_the_commands_install_the_tested_releases() -> None:
    for package, command in versions.COMMANDS.items():
        assert f"{package}=={versions.TESTED[package]}" in command
