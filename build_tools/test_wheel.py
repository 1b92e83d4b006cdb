"""Tests a wheel beside several releases of torch, each in a fresh environment.

    python build_tools/test_wheel.py dist/*.whl --torch 2.11.0 python3.10 --torch 2.15.0 python3.13

For each release the script makes an environment, installs torch and the wheel, trains for a moment
without a compiler (smoke_test.py), and runs a tenth of the tests: always the same ones, from a copy
without the package's source. It prints a line for each release and ends with status 1 if any
failed. Torch comes from pip's index; builds with CUDA take several gigabytes each.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: What belongs to the source tree: architecture, size, documentation, benchmarks, and
#: the kernels under sanitizers.
LEFT_OUT = ("benchmarks", "docs", "pyg_suite", "sanitizers")
LEFT_OUT_FILES = ("test_architecture.py", "test_house.py")


def main() -> int:
    """Tests every release that was asked for. Returns the status of the process."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wheel", type=Path, help="the wheel, as `make wheel` builds it")
    parser.add_argument(
        *("--torch", "-t"),
        nargs=2,
        action="append",
        required=True,
        metavar=("RELEASE", "PYTHON"),
        help="a release of torch, and the interpreter to test it with; may be given several times",
    )
    parser.add_argument("--tests", nargs="+", default=["tests"], help="folders or files of tests")
    parser.add_argument("--keep", type=Path, help="makes the environments in this folder, and keeps them")
    parsed = parser.parse_args()
    if not parsed.wheel.is_file():
        parser.error(f"{parsed.wheel} does not exist; build it with `make wheel`")
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for release, python in parsed.torch:
            place = (parsed.keep or Path(folder)) / f"torch-{release}"
            passed = test_release(parsed.wheel.resolve(), release, python, place, parsed.tests)
            print(f"torch {release}, {python}: {'passed' if passed else 'FAILED'}", flush=True)
            failed += not passed
            if parsed.keep is None:
                shutil.rmtree(place)
    return 1 if failed else 0


def test_release(wheel: Path, release: str, python: str, place: Path, tests: list[str]) -> bool:
    """Tests a wheel beside one release of torch.

    Args:
        wheel: the wheel.
        release: the release of torch, such as "2.11.0".
        python: the interpreter of the environment.
        place: the environment's folder. An environment that is there is used.
        tests: the tests, relative to the source tree.

    Returns:
        Whether the smoke test and all of the tests passed.
    """
    own = place / "bin" / "python"
    if not own.exists():
        subprocess.run([python, "-m", "venv", place], check=True)
    install = [own, "-m", "pip", "install", "--quiet"]
    subprocess.run([*install, f"torch=={release}", "numpy"], check=True)
    subprocess.run([*install, f"pyg_batchgnn[test,parquet] @ {wheel.as_uri()}"], check=True)
    subprocess.run([*install, "--force-reinstall", "--no-deps", wheel], check=True)
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive"}
    environment.pop("PYTHONPATH", None)
    without_compiler = {**environment, "PATH": str(own.parent)}
    smoke = [own, ROOT / "build_tools" / "smoke_test.py"]
    if subprocess.run(smoke, cwd=place, env=without_compiler, check=False).returncode != 0:
        return False
    copy = place / "tests-of-wheel"
    shutil.rmtree(copy, ignore_errors=True)
    left_out = shutil.ignore_patterns("__pycache__", *LEFT_OUT, *LEFT_OUT_FILES)
    shutil.copytree(ROOT / "tests", copy / "tests", ignore=left_out)
    shutil.copy(ROOT / "pyproject.toml", copy)
    chosen = [own, "-m", "pytest", "--numprocesses", "2", "--dist", "loadfile", *tests]
    environment["PYG_BATCHGNN_TEST_TENTH"] = "1"
    return subprocess.run(chosen, cwd=copy, env=environment, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
