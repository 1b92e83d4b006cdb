"""Checks of the processor and the system: what they offer, and what is in use."""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import psutil

from pyg_batchgnn import ops
from pyg_batchgnn.doctor.finding import Finding, FindingState
from pyg_batchgnn.spinning import TURNS, chosen_by_user, is_bounded

#: The instruction sets that kernels or torch's products use, the oldest first.
_SETS = ("avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_bf16", "amx_bf16")
_LEVELS = {512: "AVX-512", 256: "AVX2", 0: "none (baseline)"}
_HUGE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_SHARED = Path("/dev/shm")
#: Bytes of shared memory that the ranks of a host need at least.
_ROOM = 256 << 20


def check_machine() -> list[Finding]:
    """Checks the processor, memory, huge pages and shared memory."""
    return [
        _processor(),
        _instructions(),
        waiting_threads(chosen_by_user()),
        _memory(),
        huge_pages(_HUGE),
        shared_memory(_SHARED),
    ]


def _processor() -> Finding:
    model = re.search(r"model name\s*: (.*)", _text(Path("/proc/cpuinfo")))
    name = model[1] if model else platform.machine()
    return Finding("processor", FindingState.WORKS, f"{len(os.sched_getaffinity(0))} cores, {name}")


def _instructions() -> Finding:
    flags = re.search(r"flags\s*: (.*)", _text(Path("/proc/cpuinfo")))
    found = [name for name in _SETS if flags and name in flags[1].split()]
    level = ops.simd_level()
    seen = f"{_LEVELS[level]} in use; {', '.join(found) or 'none of those that are used'}"
    limit = os.environ.get("PYG_BATCHGNN_SIMD")
    remedy = f"PYG_BATCHGNN_SIMD={limit} limits it; unset it" if limit else ""
    if not limit and level == 0:
        remedy = "kernels are several times slower without AVX2"
    return Finding("instructions", FindingState.WORKS, seen, remedy)


def waiting_threads(chosen: Mapping[str, str]) -> Finding:
    """Checks whether the threads of scripts soon sleep when they wait. Those of commands do.

    Args:
        chosen: the variables that the user has set, with their values.
    """
    shown = ", ".join(f"{name}={value}" for name, value in chosen.items())
    if is_bounded(chosen):
        return Finding("waiting threads", FindingState.WORKS, shown)
    remedy = (
        f"batchgnn's commands bound it; scripts on a machine with other work are 2 to 8 times slower: "
        f"export GOMP_SPINCOUNT={TURNS} before python starts"
    )
    return Finding(
        "waiting threads", FindingState.ABSENT, shown or "spin for milliseconds in scripts", remedy
    )


def _memory() -> Finding:
    memory = psutil.virtual_memory()
    return Finding("memory", FindingState.WORKS, f"{_size(memory.available)} free of {_size(memory.total)}")


def huge_pages(setting: Path) -> Finding:
    """Checks that the kernel gives huge pages to memory that asks for them, as tables do."""
    chosen = re.search(r"\[(\w+)\]", _text(setting))
    mode = chosen[1] if chosen else "unknown"
    if mode in ("always", "madvise"):
        return Finding("huge pages", FindingState.WORKS, mode)
    remedy = f"random reads are slower without them: echo madvise > {setting} (as root)"
    return Finding("huge pages", FindingState.ABSENT, mode, remedy)


def shared_memory(folder: Path) -> Finding:
    """Checks the room in /dev/shm.

    Loader workers and oneCCL need it. Tables that ranks share do not, because they have no name.
    """
    if not folder.is_dir():
        remedy = "loader workers need it: mount a tmpfs there"
        return Finding("shared memory", FindingState.ABSENT, f"no {folder}", remedy)
    usage = shutil.disk_usage(folder)
    seen = f"{_size(usage.free)} free of {_size(usage.total)} in {folder}"
    if usage.free >= _ROOM:
        return Finding("shared memory", FindingState.WORKS, seen)
    remedy = (
        "little room for loader workers and oneCCL; in a container start with --shm-size=2g, "
        f"otherwise remount {folder}"
    )
    return Finding("shared memory", FindingState.BROKEN, seen, remedy)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"
