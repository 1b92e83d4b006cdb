"""The machine that the figures come from, and its rates, by small C++ programs."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmark.support.harness import BENCHMARK

EXTENSIONS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")


def _cpu_fields() -> dict[str, str]:
    first, _, _ = Path("/proc/cpuinfo").read_text().partition("\n\n")
    lines = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in lines}


def _cpu_model(fields: dict[str, str]) -> str:
    model = fields.get("model name", platform.processor())
    return f"{model} (family {fields.get('cpu family', '?')}, model {fields.get('model', '?')})"


def _caches() -> dict[str, str]:
    sizes = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        kind, level = (index / "type").read_text().strip(), (index / "level").read_text().strip()
        sizes[f"L{level} {kind.lower()}"] = (index / "size").read_text().strip()
    return sizes


def _huge_pages() -> str:
    path = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not path.is_file():
        return "not supported"
    return path.read_text().split("[")[1].split("]")[0]


def _first_line(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "not found"


def describe() -> dict[str, Any]:
    """Returns CPU, memory, huge pages and compiler of this machine, for result files."""
    fields = _cpu_fields()
    flags = fields.get("flags", "").split()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": _cpu_model(fields),
        "cores": os.cpu_count(),
        "vector_extensions": [one for one in EXTENSIONS if one in flags],
        "caches": _caches(),
        "memory_gib": round(memory / 2**30, 1),
        "transparent_huge_pages": _huge_pages(),
        "kernel": platform.release(),
        "compiler": _first_line([os.environ.get("CXX", "c++"), "--version"]),
        "load_average": round(os.getloadavg()[0], 2),
    }


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
    found: dict[str, Any] = _found("gather_limit", threads, mebibytes)
    return found


def row_gather_limit(threads: int, tables: Sequence[tuple[int, int]]) -> list[dict[str, Any]]:
    """Measures bytes per second from random rows of tables of (rows, bytes per row)."""
    sizes = (f"{rows}:{row_bytes}" for rows, row_bytes in tables)
    found: list[dict[str, Any]] = _found("row_gather_limit", threads, *sizes)
    return found


def _found(program: str, *arguments: object) -> Any:
    words = [str(compiled(program, "-pthread")), *map(str, arguments)]
    return json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
