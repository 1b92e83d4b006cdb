"""Every kernel on random graphs under the address, behaviour and thread sanitizers."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from .build import PROGRAMS, SANITIZERS, build, kernels, processors

#: Programs whose kernels are the same, but for a loop or two, whatever vector instructions there
#: are.
SCALAR = {"history", "messages", "multilevel", "partition", "sampling"}
#: Programs, and the vector instructions that each is run with.
RUNS = [
    (name, level) for name in PROGRAMS for level in ([""] if name in SCALAR else ["", "avx2", "baseline"])
]


@dataclass(frozen=True)
class Sanitized:
    """The build of a sanitizer's programs, and the result of each run."""

    linked: dict[str, set[str]]
    runs: dict[tuple[str, str], subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module", params=SANITIZERS)
def sanitized(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sanitized:
    folder = tmp_path_factory.mktemp(request.param)
    linked = build(request.param, folder)

    def run(job: tuple[str, str]) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYG_BATCHGNN_SIMD": job[1]}
        return subprocess.run(
            [folder / job[0]], capture_output=True, text=True, timeout=240, env=environment, check=False
        )

    with ThreadPoolExecutor(processors()) as pool:
        return Sanitized(linked, dict(zip(RUNS, pool.map(run, RUNS), strict=True)))


@pytest.mark.timeout(900)  # the first test waits for all compilers
@pytest.mark.parametrize(("name", "level"), RUNS)
def test_no_kernel_steps_out_of_line(sanitized: Sanitized, name: str, level: str) -> None:
    ran = sanitized.runs[name, level]
    assert (ran.returncode, ran.stdout) == (0, "done\n"), ran.stderr[-3000:]


def test_every_kernel_is_run(sanitized: Sanitized) -> None:
    assert set().union(*sanitized.linked.values()) == set(kernels())
