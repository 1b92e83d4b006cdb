"""Small C++ helpers of the benchmarks, compiled when first needed."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmark.support.settings import BENCHMARK

SOURCES = Path(__file__).with_name("native_sources")
CACHE = Path(os.environ.get("PYG_BATCHGNN_BENCHMARK_CACHE", BENCHMARK / "build"))


def compiled(source: str, *flags: str) -> Path:
    """Returns the program or library of ``native_sources/SOURCE.cpp``; builds it where it is old.

    Raises:
        RuntimeError: there is no C++ compiler, or it refuses the file.
    """
    text, target = SOURCES / f"{source}.cpp", CACHE / source
    if target.is_file() and target.stat().st_mtime >= text.stat().st_mtime:
        return target
    CACHE.mkdir(parents=True, exist_ok=True)
    compiler = os.environ.get("CXX", "c++")
    command = [compiler, "-std=c++17", "-O3", "-march=native", *flags, str(text), "-o", str(target)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise RuntimeError(f"no C++ compiler named {compiler!r}; install one or name it with CXX=") from error
    except subprocess.CalledProcessError as error:
        raise RuntimeError(f"{' '.join(command)} failed:\n{error.stderr}") from error
    return target


def gather_limit(threads: int, mebibytes: int = 1024) -> dict[str, Any]:
    """Measures random 8-byte loads per second on this machine; see ``gather_limit.cpp``."""
    program = compiled("gather_limit", "-pthread")
    out = subprocess.run(
        [str(program), str(threads), str(mebibytes)], check=True, capture_output=True, text=True
    )
    return json.loads(out.stdout)


def row_gather_limit(threads: int, tables: Sequence[tuple[int, int]]) -> list[dict[str, Any]]:
    """Measures bytes per second from random rows of tables of (rows, bytes per row)."""
    program = compiled("row_gather_limit", "-pthread")
    sizes = [f"{rows}:{row_bytes}" for rows, row_bytes in tables]
    out = subprocess.run([str(program), str(threads), *sizes], check=True, capture_output=True, text=True)
    return json.loads(out.stdout)
