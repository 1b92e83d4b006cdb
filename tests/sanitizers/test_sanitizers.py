"""Every kernel on random graphs under the address, behaviour and thread sanitizers."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.tiers import ALL, Stamp, contents

from .build import HERE, KERNELS, PROGRAMS, SANITIZERS, build, kernels, processors

#: Programs whose kernels are the same, but for a loop or two, whatever vector instructions there
#: are.
SCALAR = {"disk", "history", "messages", "multilevel", "partition", "sampling"}
#: Vector instructions that programs are run with. Their width says how far a loop reads, and hardly
#: how rows are shared among threads. `make test` leaves some out.
LEVELS = (
    {"addresses": ["", "avx2", "baseline"], "threads": ["", "baseline"]}
    if ALL
    else {"addresses": ["", "baseline"], "threads": [""]}
)
RUNS = [
    (sanitizer, name, level)
    for sanitizer in SANITIZERS
    for name in PROGRAMS
    for level in ([""] if name in SCALAR else LEVELS[sanitizer])
]


GREEN = {
    name: Stamp.of(f"sanitizers-{name}", contents([*KERNELS.rglob("*.*"), *HERE.glob("*.*")]))
    for name in SANITIZERS
}
#: Where tests run in several processes, each reads this before one of them writes a stamp.
DUE = any(stamp.is_due for stamp in GREEN.values())

pytestmark = pytest.mark.skipif(not DUE, reason="no kernel has changed since they were green")


@dataclass(frozen=True)
class Sanitized:
    """The build of a sanitizer's programs, and the result of each run."""

    linked: dict[str, set[str]]
    runs: dict[tuple[str, str], subprocess.CompletedProcess[str]]


def _build_and_run(sanitizer: str, folder: Path) -> Sanitized:
    linked = build(sanitizer, folder)
    jobs = [(name, level) for other, name, level in RUNS if other == sanitizer]

    def run(job: tuple[str, str]) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYG_BATCHGNN_SIMD": job[1], "ASAN_OPTIONS": "handle_sigill=1"}
        return subprocess.run(
            [folder / job[0]], capture_output=True, text=True, timeout=240, env=environment, check=False
        )

    with ThreadPoolExecutor(processors()) as pool:
        runs = dict(zip(jobs, pool.map(run, jobs), strict=True))
    if all(map(_is_green, runs.values())) and set().union(*linked.values()) == set(kernels()):
        GREEN[sanitizer].write()
    return Sanitized(linked, runs)


def _is_green(ran: subprocess.CompletedProcess[str]) -> bool:
    return ran.returncode == 0 and ran.stdout.startswith("done ")


# A fixture each: what one of them raises fails its tests without another try.
@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Sanitized:
    return _build_and_run("addresses", tmp_path_factory.mktemp("addresses"))


@pytest.fixture(scope="module")
def threads(tmp_path_factory: pytest.TempPathFactory) -> Sanitized:
    return _build_and_run("threads", tmp_path_factory.mktemp("threads"))


@pytest.fixture
def sanitized(request: pytest.FixtureRequest, sanitizer: str) -> Sanitized:
    return request.getfixturevalue(sanitizer)


@pytest.mark.timeout(900)  # the first test waits for all compilers
@pytest.mark.parametrize(("sanitizer", "name", "level"), RUNS)
def test_no_kernel_steps_out_of_line(sanitized: Sanitized, name: str, level: str) -> None:
    ran = sanitized.runs[name, level]
    assert _is_green(ran), ran.stderr[-3000:]


@pytest.mark.timeout(900)  # where it runs alone, it waits for all compilers, too
@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_every_kernel_is_run(sanitized: Sanitized) -> None:
    assert set().union(*sanitized.linked.values()) == set(kernels())
