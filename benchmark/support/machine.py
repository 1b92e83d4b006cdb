"""The machine that the figures come from, in words."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any


def _cpu_model() -> str:
    """``model name`` of the first processor, with what tells its generation."""
    fields: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
        if not line:
            break
    model = fields.get("model name", platform.processor())
    return f"{model} (family {fields.get('cpu family', '?')}, model {fields.get('model', '?')})"


def _cpu_flags() -> list[str]:
    """The vector extensions that matter to the kernels."""
    text = Path("/proc/cpuinfo").read_text()
    flags = next((line.split(":")[1].split() for line in text.splitlines() if line.startswith("flags")), [])
    return [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if flag in flags]


def _caches() -> dict[str, str]:
    """Returns the size of each cache level of processor 0, as the kernel writes it."""
    sizes = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        kind, level = (index / "type").read_text().strip(), (index / "level").read_text().strip()
        sizes[f"L{level} {kind.lower()}"] = (index / "size").read_text().strip()
    return sizes


def _huge_pages() -> str:
    """The setting of transparent huge pages: always, madvise or never."""
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
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "vector_extensions": _cpu_flags(),
        "caches": _caches(),
        "memory_gib": round(memory / 2**30, 1),
        "transparent_huge_pages": _huge_pages(),
        "kernel": platform.release(),
        "compiler": _first_line([os.environ.get("CXX", "c++"), "--version"]),
        "load_average": round(os.getloadavg()[0], 2),
    }
