"""The package from outside: the command, releases that are too old, the page of an index."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from build_tools.package_page import package_page
from pyg_batchgnn import versions
from pyg_batchgnn.spinning import TURNS, VARIABLES
from tests.support.programs import run_python
from tests.support.tiers import in_all


@pytest.mark.skipif(
    not Path("/proc/self/maps").exists(), reason="sees through /proc when torch is being imported"
)
def test_interrupted_while_importing() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "pyg_batchgnn", "datasets"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # As in a terminal: a background job ignores the signal, and its children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        end = time.monotonic() + 60
        while "libtorch" not in Path(f"/proc/{process.pid}/maps").read_text() and time.monotonic() < end:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, errors) == (130, "batchgnn: interrupted\n")


def test_instructions_that_do_not_exist_are_refused_in_one_line() -> None:
    ran = run_python("-m", "pyg_batchgnn", "datasets", PYG_BATCHGNN_SIMD="avx3")
    said = "batchgnn: PYG_BATCHGNN_SIMD=avx3: it may be avx512, avx2, baseline, or unset\n"
    assert (ran.returncode, ran.stderr) == (2, said)


@pytest.mark.parametrize(
    ("chosen", "turns"),
    [({}, TURNS), *in_all(({"GOMP_SPINCOUNT": "77"}, 77), ({"OMP_WAIT_POLICY": "passive"}, 0))],
)
def test_a_command_bounds_the_spinning_of_threads_unless_the_user_has(
    chosen: dict[str, str], turns: int
) -> None:
    """OpenMP's runtime says how many turns it took over, when torch was loaded."""
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    ran = subprocess.run(
        [sys.executable, "-m", "pyg_batchgnn", "datasets", "generated:nodes=100"],
        env={**kept, "OMP_DISPLAY_ENV": "verbose", **chosen},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ran.returncode == 0, ran.stderr
    found = re.findall(r"GOMP_SPINCOUNT = '(\d+)'", ran.stderr)
    if not found:
        pytest.skip("another runtime than GNU's OpenMP")
    assert set(found) == {str(turns)}


def test_the_room_of_training_has_a_front_door() -> None:
    import pyg_batchgnn.train

    names = pyg_batchgnn.train.__all__
    assert set(names) <= set(dir(pyg_batchgnn.train)) and "train" not in names
    assert all(getattr(pyg_batchgnn.train, name).__name__ == name for name in names)
    with pytest.raises(AttributeError, match="has no attribute 'loss'"):
        _ = pyg_batchgnn.train.loss


def test_importing_leaves_the_environment_and_loads_rooms_when_they_are_used() -> None:
    program = (
        "import os, sys; before = dict(os.environ)\n"
        "import pyg_batchgnn as package, pyg_batchgnn.spinning as spinning\n"
        "assert not {'torch', 'torch_geometric'} & sys.modules.keys()\n"
        "assert package.nn.SAGE is package.nn.models.SAGE\n"
        "assert package.data.load_dataset and {'nn', 'plan'} <= set(dir(package))\n"
        "spinning.bound_spinning()\n"
        "assert dict(os.environ) == before and spinning.chosen_by_user() == {}\n"
        "try:\n    package.neural\nexcept AttributeError as error:\n    print(error)\n"
    )
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    answer = subprocess.run(
        [sys.executable, "-c", program], env=kept, capture_output=True, text=True, timeout=120
    )
    assert answer.stdout == "module 'pyg_batchgnn' has no attribute 'neural'\n", answer.stderr


@pytest.mark.parametrize(
    ("version", "older"),
    [
        ("2.10.1+cpu", True),
        ("2.9.0a0+git123", True),
        ("2.11.0", False),
        ("2.100.0", False),
        ("3.0", False),
        ("nightly", False),
    ],
)
def test_versions_are_compared_as_numbers(version: str, older: bool) -> None:
    assert versions.is_older(version, (2, 11)) is older
    versions.check_versions()  # what is installed here


def test_a_release_of_torch_without_a_private_name_is_named() -> None:
    """Torch has no upper bound, and may change what it does not promise."""
    code = (
        "import torch.distributed as dist; del dist.distributed_c10d._get_default_store; "
        "from pyg_batchgnn import Communicator"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    wanted = "ImportError: torch .* has no torch.distributed.distributed_c10d._get_default_store, which"
    assert re.search(wanted, ran.stderr) and versions.COMMANDS["torch"] in ran.stderr


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


def test_the_wheel_was_tested_beside_the_releases_that_commands_install() -> None:
    releases = [tuple(map(int, release.split(".")[:2])) for release in versions.WHEEL_TESTED]
    assert min(releases) == versions.OLDEST["torch"]
    assert max(releases) > tuple(map(int, versions.TESTED["torch"].split(".")[:2]))
    readme = Path(__file__).parents[1].joinpath("README.md").read_text()
    assert all(release in readme for release in versions.WHEEL_TESTED)
    for package, command in versions.COMMANDS.items():
        assert f"{package}=={versions.TESTED[package]}" in command


README = (Path(__file__).resolve().parent.parent / "README.md").read_text(encoding="utf-8")
TARGET = re.compile(r"\]\(([^)]+)\)")


@pytest.mark.parametrize("url", [None, "https://example.org/repository/blob/main/"])
def test_links_are_absolute_or_gone(url: str | None) -> None:
    page = package_page(README, url)
    targets = TARGET.findall(page)
    assert targets and all(target.startswith("https://") for target in targets)
    assert "<!--" not in page
    kept = [
        target for target in targets if target.startswith("https://example.org/repository/blob/main/docs/")
    ]
    assert bool(kept) == (url is not None)
