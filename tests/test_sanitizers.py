"""Every kernel on random graphs under the sanitizers of addresses, undefined behaviour and threads."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: Programs and the kernels that each runs.
PROGRAMS = {
    "sanitize": [
        *("csc", "gather", "node_set", "parallel", "sample", "simd/dispatch", "simd/scan"),
        *("relay/answer", "relay/relay"),
    ],
    "sanitize_aggregation": [
        *("parallel", "nn/aggregate", "nn/edge_dots", "nn/max", "nn/transpose", "simd/dispatch"),
        *("simd/sum_rows", "simd/sum_rows_avx2", "simd/sum_rows_avx512"),
    ],
    "sanitize_attention": [
        *("parallel", "nn/attention", "nn/attention_blocks", "simd/dispatch"),
        *("simd/attention", *(f"simd/attention_{level}" for level in ("avx512", "avx2", "baseline"))),
    ],
    "sanitize_linear": [
        *("parallel", "nn/linear", "nn/linear_grads", "nn/linear_grads_pairs"),
        *("simd/dispatch", "simd/products", "simd/sparse_pairs"),
        *(f"simd/products_{level}" for level in ("avx512", "avx2", "baseline", "pairs")),
    ],
}
#: Vector instructions that a program is run with.
LEVELS = {name: ["", "avx2", "baseline"] for name in ("sanitize_attention", "sanitize_linear")}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_no_kernel_steps_out_of_line(sanitizer: str, name: str, tmp_path: Path) -> None:
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    assert compiler, "no C++ compiler found; the package needs one to be built, and so does this test"
    program = tmp_path / "sanitize"
    kernels = [ROOT / "csrc/kernels" / f"{kernel}.cpp" for kernel in PROGRAMS[name]]
    sources = [ROOT / "tests" / f"{name}.cpp", *kernels]
    flags = ["-std=c++20", "-O1", "-g", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"]
    subprocess.run(
        [compiler, *flags, "-I", ROOT / "csrc", *sources, "-o", program, "-pthread"], check=True, timeout=240
    )
    for level in LEVELS.get(name, [""]):
        environment = {**os.environ, "PYG_BATCHGNN_SIMD": level}
        ran = subprocess.run([program], capture_output=True, text=True, timeout=240, env=environment)
        assert (ran.returncode, ran.stdout) == (0, "done\n"), ran.stderr[-3000:]
