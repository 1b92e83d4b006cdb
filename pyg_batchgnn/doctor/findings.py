"""Checks of packages, the machine and the backends of torch.distributed, as a table or as JSON."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import timedelta
from enum import Enum
from pathlib import Path
from resource import RLIM_INFINITY, RLIMIT_MEMLOCK, getrlimit
from typing import Any

import psutil
import torch
import torch.distributed as dist
from rich.markup import escape
from rich.table import Table
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from pyg_batchgnn import machine, ops
from pyg_batchgnn.comm import why_unavailable
from pyg_batchgnn.comm.ccl import CclMissingError, find_libraries
from pyg_batchgnn.partition import has_metis
from pyg_batchgnn.spinning import TURNS, chosen_by_user, is_bounded
from pyg_batchgnn.versions import OLDEST


class FindingState(str, Enum):
    """The outcome of a check."""

    WORKS = "works"
    ABSENT = "absent"  # not installed, and not needed
    LIMITED = "limited"  # works, and could work better
    BROKEN = "broken"  # installed but does not work, or needed but not installed


@dataclass(frozen=True)
class Finding:
    """The result of one check, a line of the doctor's table."""

    name: str  # the thing that was checked
    state: FindingState
    seen: str = ""  # its version or size, or what a test measured
    remedy: str = ""  # what to do, or what the thing is used for; empty where nothing is to be done
    needed: bool = False  # whether the package cannot work without it


def works(name: str, seen: str, remedy: str = "", needed: bool = False) -> Finding:
    return Finding(name, FindingState.WORKS, seen, remedy, needed)


def absent(name: str, seen: str, remedy: str = "") -> Finding:
    return Finding(name, FindingState.ABSENT, seen, remedy)


def limited(name: str, seen: str, remedy: str) -> Finding:
    return Finding(name, FindingState.LIMITED, seen, remedy)


def broken(name: str, seen: str, remedy: str = "", needed: bool = False) -> Finding:
    return Finding(name, FindingState.BROKEN, seen, remedy, needed)


_SECONDS = 0.4  # about the length of each measurement
_RANK_LIMIT = timedelta(seconds=20)


def exchange_rows(backend: str) -> None:
    """Exchanges uneven numbers of rows as one of two ranks, checks them, and prints the time."""
    dist.init_process_group(backend, timeout=_RANK_LIMIT)
    rank, size = dist.get_rank(), dist.get_world_size()
    sent, received = [rank + to for to in range(size)], [source + rank for source in range(size)]
    out = torch.empty(sum(received), dtype=torch.int64)
    dist.all_to_all_single(out, torch.full((sum(sent),), rank), received, sent)
    assert out.tolist() == [source for source in range(size) for _ in range(source + rank)], out.tolist()
    small, large = _seconds(size * 128), _seconds(size << 17)
    dist.destroy_process_group()
    print(json.dumps({"microseconds": small * 1e6, "gigabytes": (size - 1 << 20) / large / 1e9}))


def _seconds(words: int) -> float:
    """Returns the seconds of an all-to-all of 8-byte words, repeated equally on every rank."""
    rows = torch.zeros(words, dtype=torch.int64)
    out = torch.empty_like(rows)

    def repeat(times: int) -> float:
        dist.barrier()
        begun = time.perf_counter()
        for _ in range(times):
            dist.all_to_all_single(out, rows)
        return (time.perf_counter() - begun) / times

    first = torch.tensor([repeat(5)], dtype=torch.float64)
    dist.broadcast(first, 0)
    return repeat(max(5, min(1000, int(_SECONDS / float(first)))))


BACKENDS = ("gloo", "ccl", "mpi")
#: Seconds that both processes may take, including the import of torch.
LIMIT = 60.0
#: The remedies where the backend's own text gives none.
_REMEDIES = {
    "gloo": "if this host has several networks, name one: GLOO_SOCKET_IFNAME=lo (or eth0, ...)",
    "ccl": "see docs/how-to/ccl.md, and what CCL_LOG_LEVEL=info says",
    "mpi": "only needed where a cluster requires its own MPI: build torch from source with MPI",
}


def check_backends() -> list[Finding]:
    """Checks the backends one after the other, as they are timed."""
    return [check_backend_works(name) for name in BACKENDS]


def check_backend_works(name: str) -> Finding:
    """Checks that two processes of this machine exchange rows correctly. Only gloo is needed."""
    title, needed = f"backend {name}", name == "gloo"
    if problem := why_unavailable(name):
        what, _, remedy = problem.partition("; ")
        state = FindingState.BROKEN if needed else FindingState.ABSENT
        return Finding(title, state, what, remedy or _REMEDIES[name], needed)
    if name == "mpi" and not shutil.which("mpirun"):
        return absent(title, "no mpirun here", "add MPI's bin folder to PATH")
    try:
        command = ["mpirun", "-np", "2", *_program("mpi")]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        output = _end(subprocess.Popen(command, **pipes)) if name == "mpi" else _exchange(name)
        seen = json.loads(output.strip().splitlines()[-1])
    except (RuntimeError, ValueError, IndexError) as error:
        return broken(title, str(error), _REMEDIES[name], needed)
    speed = f"{seen['microseconds']:.0f} us, {seen['gigabytes']:.1f} GB/s between two processes"
    return works(title, speed, needed=needed)


def _exchange(name: str) -> str:
    """Returns the output of the first of two processes."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=LIMIT))
    common = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "0",
        "OMP_NUM_THREADS": "1",
    }
    ranks = [
        subprocess.Popen(
            _program(name),
            env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        with ThreadPoolExecutor() as pool:
            outputs = list(pool.map(_end, ranks))
    finally:
        for process in ranks:
            process.kill()
            process.wait()
        del store
    return outputs[0]


def _program(backend: str) -> list[str]:
    return [sys.executable, "-c", f"from {__name__} import exchange_rows; exchange_rows({backend!r})"]


def _end(process: subprocess.Popen[str]) -> str:
    try:
        out, err = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise RuntimeError(f"two processes had not exchanged anything after {LIMIT:.0f} s") from None
    if process.returncode:
        last = err.strip().splitlines()[-1:] or [f"a process ended with {process.returncode}"]
        raise RuntimeError(last[0])
    return out


#: The instruction sets that kernels or torch's products use, the oldest first.
_SETS = ("avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_bf16", "amx_bf16")
_LEVELS = {512: "AVX-512", 256: "AVX2", 0: "none (baseline)"}
_HUGE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_SHARED = Path("/dev/shm")
#: Bytes of shared memory that the ranks of a host need at least.
_ROOM = 256 << 20


def check_machine() -> list[Finding]:
    """Checks the processor, memory, huge pages, shared memory and the host's name."""
    return [
        cores(len(os.sched_getaffinity(0)), machine.processors(), os.environ),
        _instructions(),
        waiting_threads(chosen_by_user()),
        _memory(),
        huge_pages(_HUGE),
        shared_memory(_SHARED),
        host_name(),
    ]


def cores(seen: int, usable: int, environment: Mapping[str, str]) -> Finding:
    """Checks whether this process may use all the cores that torch sees."""
    model = re.search(r"model name\s*: (.*)", _text(Path("/proc/cpuinfo")))
    name = model[1] if model else platform.machine()
    if usable == seen:
        return works("processor", f"{seen} cores, {name}")
    shown = f"{usable} of {seen} cores, by the limit of this container or job; {name}"
    remedy = f"batchgnn's commands use {usable} threads; for scripts export OMP_NUM_THREADS={usable}"
    return works("processor", shown, "" if "OMP_NUM_THREADS" in environment else remedy)


def _instructions() -> Finding:
    flags = re.search(r"flags\s*: (.*)", _text(Path("/proc/cpuinfo")))
    found = [name for name in _SETS if flags and name in flags[1].split()]
    level = ops.simd_level()
    products = f"bfloat16 products {ops.bfloat16_level()}"
    seen = f"{_LEVELS[level]} in use, {products}; {', '.join(found) or 'none of those that are used'}"
    limit = os.environ.get("PYG_BATCHGNN_SIMD")
    remedy = f"PYG_BATCHGNN_SIMD={limit} limits it; unset it" if limit else ""
    if not limit and level == 0:
        remedy = "kernels are several times slower without AVX2"
    return works("instructions", seen, remedy)


def waiting_threads(chosen: Mapping[str, str]) -> Finding:
    """Checks whether the threads of scripts soon sleep when they wait. Those of commands do."""
    shown = ", ".join(f"{name}={value}" for name, value in chosen.items())
    if is_bounded(chosen):
        return works("waiting threads", shown)
    remedy = (
        f"batchgnn's commands bound it; scripts on a machine with other work are 2 to 8 times slower: "
        f"export GOMP_SPINCOUNT={TURNS} before python starts"
    )
    return limited("waiting threads", shown or "spin for milliseconds in scripts", remedy)


def _memory() -> Finding:
    memory, host = machine.memory(), psutil.virtual_memory().total
    limit = f", the limit of this container or job; the host has {_size(host)}" if memory.total < host else ""
    return works("memory", f"{_size(memory.available)} free of {_size(memory.total)}{limit}")


def huge_pages(setting: Path) -> Finding:
    """Checks that the kernel gives huge pages to memory that asks for them, as tables do."""
    chosen = re.search(r"\[(\w+)\]", _text(setting))
    mode = chosen[1] if chosen else "unknown"
    if mode in ("always", "madvise"):
        return works("huge pages", mode)
    remedy = f"random reads are slower without them: echo madvise > {setting} (as root)"
    return limited("huge pages", mode, remedy)


def shared_memory(folder: Path) -> Finding:
    """Checks the room in /dev/shm. Loader workers and oneCCL need it."""
    if not folder.is_dir():
        return limited("shared memory", f"no {folder}", "loader workers need it: mount a tmpfs there")
    usage = shutil.disk_usage(folder)
    seen = f"{_size(usage.free)} free of {_size(usage.total)} in {folder}"
    if usage.free >= _ROOM:
        return works("shared memory", seen)
    remedy = (
        "little room for loader workers and oneCCL; in a container start with --shm-size=2g, "
        f"otherwise remount {folder}"
    )
    return broken("shared memory", seen, remedy)


def host_name() -> Finding:
    """Checks that this host's name leads to an address by which other hosts can reach it."""
    name = socket.gethostname()
    try:
        address = socket.gethostbyname(name)
    except OSError:
        remedy = (
            "several hosts cannot meet by it: enter it in the name service, or in /etc/hosts of each host"
        )
        return limited("host name", f"{name} has no address", remedy)
    if not address.startswith("127."):
        return works("host name", f"{name}, {address}")
    remedy = "for several hosts name the network device: export GLOO_SOCKET_IFNAME=eth0"
    return limited("host name", f"{name}, {address}: this host alone", remedy)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"


#: Seconds that importing a package may take, in a process of its own.
_IMPORT_SECONDS = 60.0


@dataclass(frozen=True)
class Package:
    """A package that may be installed."""

    name: str  # the name that users know
    module: str  # the module that is imported
    distribution: str  # the name on the package index
    remedy: str  # what the package is for, and how to install it
    least: tuple[int, ...] = ()  # the oldest version that works, () for any

    @property
    def needed(self) -> bool:
        """True if pyg_batchgnn cannot work without the package."""
        return bool(self.least)


PACKAGES = (
    Package(
        *("torch", "torch", "torch"),
        "pip install torch==2.13.0 --extra-index-url https://download.pytorch.org/whl/cpu, then install "
        "pyg_batchgnn again: its operators are compiled against torch",
        OLDEST["torch"],
    ),
    Package(
        *("PyG", "torch_geometric", "torch-geometric"),
        "pip install 'torch-geometric>=2.8'",
        OLDEST["torch-geometric"],
    ),
    Package(
        *("pyg-lib", "pyg_lib", "pyg-lib"),
        "only to compare with PyG's own sampler; take the wheel for this version of torch",
    ),
    Package(
        "DGL", "dgl", "dgl", "only for Minibatch.to_dgl() and benchmarks: pip install dgl==1.1.3 packaging"
    ),
    Package("OGB", "ogb", "ogb", "only to download OGB's graphs: pip install 'pyg_batchgnn[ogb]'"),
)


def check_packages() -> list[Finding]:
    """Checks each package in a process of its own, as a library for another torch may crash."""
    with ThreadPoolExecutor() as pool:
        return [*pool.map(check_package, PACKAGES), check_metis(), check_oneccl()]


def check_package(package: Package) -> Finding:
    """Checks that a package is installed, is new enough, and can be imported."""
    if importlib.util.find_spec(package.module) is None:
        state = FindingState.BROKEN if package.needed else FindingState.ABSENT
        return Finding(package.name, state, "not installed", package.remedy, package.needed)
    version = _version(package)
    if package.least and _numbers(version) < package.least:
        least = ".".join(map(str, package.least))
        return broken(package.name, f"{version}, not {least}", package.remedy, True)
    if problem := _import_error(package.module):
        seen = f"{version} cannot be imported: {problem}"
        return broken(package.name, seen, package.remedy, package.needed)
    return works(package.name, version, needed=package.needed)


def check_metis() -> Finding:
    """Checks for the library that the policy "metis" calls. The package pymetis has none."""
    if has_metis():
        return works("METIS", "the library of METIS")
    return absent("METIS", "not installed", "only for partitions by --policy metis: pip install cmeel-metis")


def check_oneccl() -> Finding:
    """Checks for oneCCL's libraries. `check_backends` tells whether the backend works."""
    try:
        libraries = find_libraries()
    except CclMissingError as error:
        what, _, remedy = str(error).partition("; ")
        return absent("oneCCL", what, f"for --backend ccl: {remedy}")
    return works("oneCCL", str(libraries.oneccl))


def _version(package: Package) -> str:
    try:
        return importlib.metadata.version(package.distribution)
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version"


def _numbers(version: str) -> tuple[int, ...]:
    """Returns the leading numbers of a version, () where it is not known."""
    return tuple(int(number) for number in re.findall(r"\d+", version.partition("+")[0])[:2])


def _import_error(module: str) -> str:
    """Imports a module in another process. Returns what went wrong, in one line, or ""."""
    try:
        ran = subprocess.run(
            [sys.executable, "-c", f"import {module}"],
            capture_output=True,
            text=True,
            timeout=_IMPORT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"the import had not ended after {_IMPORT_SECONDS:.0f} s"
    if ran.returncode == 0:
        return ""
    said = ran.stderr.strip().splitlines()
    return said[-1] if ran.returncode > 0 and said else f"the process ended with {ran.returncode}"


def check_gpus() -> list[Finding]:
    """Checks what a loader's ``device`` needs: CUDA, Triton and page-locked memory."""
    return [_cuda(), _triton(torch.cuda.is_available()), locked_memory(*getrlimit(RLIMIT_MEMLOCK))]


def _cuda() -> Finding:
    built = torch.version.cuda
    if built is None:
        remedy = "only for batches on a GPU: install a torch with CUDA"
        return absent("CUDA", f"torch {torch.__version__} is built without it", remedy)
    if not torch.cuda.is_available():
        remedy = "only for batches on a GPU: see what nvidia-smi says of the driver"
        return absent("CUDA", f"{built}, but torch sees no GPU", remedy)
    names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return works("CUDA", f"{built}, {len(names)} x {names[0]}")


def _triton(has_gpu: bool) -> Finding:
    if importlib.util.find_spec("triton") is None:
        remedy = "only for GPUs: with it they read rows of the host themselves, else the CPU gathers them"
        return absent("Triton", "not installed", remedy)
    version = importlib.metadata.version("triton")
    if has_gpu and not any(map(shutil.which, ("cc", "gcc", "clang"))):
        remedy = "Triton compiles a small file at its first call: install gcc"
        return broken("Triton", f"{version}, but there is no C compiler", remedy)
    return works("Triton", version)


def locked_memory(soft: int, hard: int) -> Finding:
    """Checks the limit of memory that a process may lock, in bytes, now and at most."""
    if RLIM_INFINITY in (soft, hard) and soft in (hard, RLIM_INFINITY):
        return works("locked memory", "no limit")
    seen = f"{soft / 2**20:.1f} MiB (ulimit -l)"
    remedy = (
        "only for GPUs, whose driver may be bound by it: copies beyond it are slower; raise memlock in "
        "/etc/security/limits.conf, in a container start with --ulimit memlock=-1"
    )
    return works("locked memory", seen, remedy)


_COLOURS = dict(zip(FindingState, ("green", "yellow", "yellow", "bold red"), strict=True))


def examine() -> list[Finding]:
    """Checks packages, the machine, GPUs and backends, in a few seconds."""
    return [*check_packages(), *check_machine(), *check_gpus(), *check_backends()]


def is_healthy(findings: Sequence[Finding]) -> bool:
    """Returns whether everything that the package cannot do without works."""
    return not any(finding.needed and finding.state is FindingState.BROKEN for finding in findings)


def as_table(findings: Sequence[Finding]) -> Table:
    """Returns the findings as a table, a line each."""
    table = Table(box=None, pad_edge=False)
    for column in ("", "", "seen here", "what to do"):
        table.add_column(column, overflow="fold")
    for finding in findings:
        state = f"[{_COLOURS[finding.state]}]{finding.state.value}[/]"
        table.add_row(finding.name, state, escape(finding.seen), escape(finding.remedy))
    return table


def as_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """Returns the findings as ``batchgnn doctor --json`` prints them."""
    return {"healthy": is_healthy(findings), "findings": [asdict(finding) for finding in findings]}
