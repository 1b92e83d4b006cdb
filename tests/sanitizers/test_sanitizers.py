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
#: The vector instructions that the other programs are run with, by sanitizer.
LEVELS = {"addresses": ["", "avx2", "baseline"], "threads": [""]}


#: What no program calls. Nothing chooses between levels where there is one.
LEFT_OUT = {"addresses": set[str](), "threads": {"simd.level"}}


@dataclass(frozen=True)
class Sanitized:
    """The build of a sanitizer's programs, and the result of each run."""

    name: str
    linked: dict[str, set[str]]
    runs: dict[tuple[str, str], subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module", params=SANITIZERS)
def sanitized(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sanitized:
    folder = tmp_path_factory.mktemp(request.param)
    linked = build(request.param, folder)
    levels = LEVELS[request.param]
    jobs = [(name, level) for name in PROGRAMS for level in ([""] if name in SCALAR else levels)]

    def run(job: tuple[str, str]) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYG_BATCHGNN_SIMD": job[1]}
        return subprocess.run(
            [folder / job[0]], capture_output=True, text=True, timeout=240, env=environment, check=False
        )

    with ThreadPoolExecutor(processors()) as pool:
        return Sanitized(request.param, linked, dict(zip(jobs, pool.map(run, jobs), strict=True)))


@pytest.mark.timeout(900)  # the first test waits for all compilers
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_kernel_steps_out_of_line(sanitized: Sanitized, name: str) -> None:
    of_levels = {level: ran for (program, level), ran in sanitized.runs.items() if program == name}
    assert of_levels
    for level, ran in of_levels.items():
        assert (ran.returncode, ran.stdout) == (0, "done\n"), f"{level}\n{ran.stderr[-3000:]}"


def test_every_kernel_is_run(sanitized: Sanitized) -> None:
    missing = set(kernels()).difference(*sanitized.linked.values())
    assert missing == LEFT_OUT[sanitized.name]
