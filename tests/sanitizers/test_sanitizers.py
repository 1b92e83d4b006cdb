"""Every kernel on random graphs under the address, behaviour and thread sanitizers."""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from .build import PROGRAMS, SANITIZERS, build, kernels, processors

#: Programs whose kernels are the same, but for a loop or two, whatever vector instructions there
#: are.
SCALAR = {"history", "messages", "multilevel", "partition", "sampling"}
#: Vector instructions that programs are run with. Their width says how far a loop reads, and hardly
#: how rows are shared among threads.
LEVELS = {"addresses": ["", "avx2", "baseline"], "threads": ["", "baseline"]}
RUNS = [
    (sanitizer, name, level)
    for sanitizer in SANITIZERS
    for name in PROGRAMS
    for level in ([""] if name in SCALAR else LEVELS[sanitizer])
]


@dataclass(frozen=True)
class Sanitized:
    """The build of a sanitizer's programs, and the result of each run."""

    linked: dict[str, set[str]]
    runs: dict[tuple[str, str], subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Sanitized]:
    """Builds and runs a sanitizer's programs, once each."""

    @functools.cache
    def build_and_run(sanitizer: str) -> Sanitized:
        folder = tmp_path_factory.mktemp(sanitizer)
        linked = build(sanitizer, folder)
        jobs = [(name, level) for other, name, level in RUNS if other == sanitizer]

        def run(job: tuple[str, str]) -> subprocess.CompletedProcess[str]:
            environment = {**os.environ, "PYG_BATCHGNN_SIMD": job[1]}
            return subprocess.run(
                [folder / job[0]], capture_output=True, text=True, timeout=240, env=environment, check=False
            )

        with ThreadPoolExecutor(processors()) as pool:
            return Sanitized(linked, dict(zip(jobs, pool.map(run, jobs), strict=True)))

    return build_and_run


@pytest.mark.timeout(900)  # the first test waits for all compilers
@pytest.mark.parametrize(("sanitizer", "name", "level"), RUNS)
def test_no_kernel_steps_out_of_line(
    sanitized: Callable[[str], Sanitized], sanitizer: str, name: str, level: str
) -> None:
    ran = sanitized(sanitizer).runs[name, level]
    assert (ran.returncode, ran.stdout) == (0, "done\n"), ran.stderr[-3000:]


@pytest.mark.timeout(900)  # where it runs alone, it waits for all compilers, too
@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_every_kernel_is_run(sanitized: Callable[[str], Sanitized], sanitizer: str) -> None:
    assert set().union(*sanitized(sanitizer).linked.values()) == set(kernels())
