"""Every kernel on random graphs under the address, behaviour and thread sanitizers."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.tiers import ALL, all_only

from .build import HERE, KERNELS, PROGRAMS, SANITIZERS, build, digest, kernels, processors

#: Programs whose kernels are the same, but for a loop or two, whatever vector instructions there
#: are.
SCALAR = {"disk", "equivalents", "history", "messages", "multilevel", "partition", "sampling"}
#: Vector instructions that programs are run with. Their width says how far a loop reads, and hardly
#: how rows are shared among threads.
LEVELS = {"addresses": ["", "avx2", "baseline"], "threads": ["", "baseline"]}
#: The digest of the sources for which the build that `make test` runs was green.
GREEN = HERE / "green.txt"
CONTENTS = digest([], [*KERNELS.rglob("*.*"), *HERE.glob("*.cpp"), *HERE.glob("*.h"), HERE / "build.py"])
IS_DUE = ALL or not GREEN.exists() or GREEN.read_text().strip() != CONTENTS

pytestmark = pytest.mark.skipif(not IS_DUE, reason="no kernel has changed since the build was green")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("sanitizer", ["addresses", pytest.param("threads", marks=all_only)])
def test_no_kernel_steps_out_of_line(sanitizer: str, tmp_path: Path) -> None:
    assert sanitizer in SANITIZERS
    linked = build(sanitizer, tmp_path)
    assert set().union(*linked.values()) == set(kernels()), "every kernel is run"
    levels = LEVELS[sanitizer] if ALL else ["baseline"]
    jobs = [(name, level) for name in PROGRAMS for level in (levels[:1] if name in SCALAR else levels)]

    def run(job: tuple[str, str]) -> str:
        environment = {**os.environ, "PYG_BATCHGNN_SIMD": job[1], "ASAN_OPTIONS": "handle_sigill=1"}
        ran = subprocess.run(
            [tmp_path / job[0]], capture_output=True, text=True, timeout=240, env=environment
        )
        is_green = ran.returncode == 0 and ran.stdout.startswith("done ")
        return "" if is_green else f"{job}: {ran.stderr[-3000:]}"

    with ThreadPoolExecutor(processors()) as pool:
        failed = [text for text in pool.map(run, jobs) if text]
    assert not failed, "\n".join(failed)
    GREEN.write_text(CONTENTS + "\n")
