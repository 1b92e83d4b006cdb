"""Every kernel on random graphs under the sanitizers of addresses, undefined behaviour and threads."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
KERNELS = ["csc", "gather", "node_set", "parallel", "sample", "simd/dispatch", "simd/scan"]


@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_no_kernel_steps_out_of_line(sanitizer: str, tmp_path: Path) -> None:
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    assert compiler, "no C++ compiler found; the package needs one to be built, and so does this test"
    program = tmp_path / "sanitize"
    sources = [ROOT / "tests" / "sanitize.cpp", *(ROOT / "csrc/kernels" / f"{name}.cpp" for name in KERNELS)]
    flags = ["-std=c++20", "-O1", "-g", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"]
    subprocess.run(
        [compiler, *flags, "-I", ROOT / "csrc", *sources, "-o", program, "-pthread"], check=True, timeout=240
    )
    ran = subprocess.run([program], capture_output=True, text=True, timeout=240)
    assert (ran.returncode, ran.stdout) == (0, "done\n"), ran.stderr[-3000:]
