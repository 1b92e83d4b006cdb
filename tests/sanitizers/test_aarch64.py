"""The kernels give the same bits on aarch64 as on the processor at hand, at the baseline."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from torch.utils import cpp_extension

from tests.support.tiers import all_only

from .build import CROSS_COMPILER, EMULATOR, PROCESSORS, PROGRAMS, ROOT, build, processors

ABSENT = [tool for tool in (CROSS_COMPILER, EMULATOR[0]) if shutil.which(tool) is None]

pytestmark = [
    all_only,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        bool(ABSENT),
        reason=f"no {' and no '.join(ABSENT)}; on Debian: apt install g++-aarch64-linux-gnu qemu-user",
    ),
]


@pytest.fixture(scope="module")
def digests(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], str]:
    environment = {**os.environ, "PYG_BATCHGNN_SIMD": "baseline"}
    folder = {kind: tmp_path_factory.mktemp(kind) for kind in PROCESSORS}
    for kind in PROCESSORS:
        build(kind, folder[kind])

    def run(job: tuple[str, str]) -> str:
        kind, program = job
        command = [*(EMULATOR if kind == "aarch64" else []), str(folder[kind] / program)]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=900, env=environment, check=True
        ).stdout

    jobs = [(kind, program) for kind in PROCESSORS for program in PROGRAMS]
    with ThreadPoolExecutor(processors()) as pool:
        return dict(zip(jobs, pool.map(run, jobs), strict=True))


@pytest.mark.parametrize("program", PROGRAMS)
def test_equal_results(digests: dict[tuple[str, str], str], program: str) -> None:
    assert digests["here", program].startswith("done ")
    assert digests["aarch64", program] == digests["here", program]


def test_bindings_compile() -> None:
    folders = [str(ROOT / "csrc"), *cpp_extension.include_paths(), sysconfig.get_path("include")]
    options = [
        "-std=c++20",
        "-fsyntax-only",
        "-fvisibility=hidden",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-I",
        folders[0],
    ]
    options += [flag for folder in folders[1:] for flag in ("-isystem", folder)]
    options += ["-DTORCH_TARGET_VERSION=0x020b000000000000", "-DPy_LIMITED_API=0x030a0000"]

    def compile_one(source: Path) -> str:
        command = [CROSS_COMPILER, *options, str(source)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600).stderr

    sources = sorted((ROOT / "csrc" / "bindings").glob("*.cpp"))
    with ThreadPoolExecutor(processors()) as pool:
        assert "".join(pool.map(compile_one, sources)) == ""
