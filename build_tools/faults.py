"""Harms one of two ranks of training runs at random moments, and looks at what the others do.

    python build_tools/faults.py /tmp/faults --runs 100 --seed 8

Each mode first runs undisturbed. A disturbed run must end in time, with a status other than 0 and
a line that names the rank, and must leave neither processes, ports nor shared memory. It is resumed
then, and must end with the weights of the undisturbed run. Lines go to ``faults.jsonl``; a run that
is started again goes on behind the last one. Some need root: ``no space`` mounts a file system of 3
MiB, ``memory group`` limits the memory of a control group (version 1), and ``connections reset``
takes the sockets of the other process.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import filecmp
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch
from safetensors.torch import load_file

TIMEOUT = 10.0
#: Seconds after which a run that was harmed should have ended: torchrun gives ranks 30 s to stop.
LATE = 2 * TIMEOUT + 45
SMALL = (
    "--num-layers 2 --fanout 4,3 --test-fanout 5,5 --hidden 16 --threads 1 --seed 5 "
    "--set run.malloc=default --set run.matrix_product=native --set run.checkpoint_seconds=0.2"
)
MODES = {
    "nodes": "cora --batch-size 24 --macrobatch 2 --epochs 25",
    "GAT, ldg": "cora --batch-size 24 --macrobatch 1 --partition ldg --model gat --epochs 20",
    "global schedule": "cora --batch-size 24 --macrobatch 2 --schedule global --epochs 20",
    "exact evaluation": "cora --batch-size 24 --evaluation exact --epochs 15",
    "learned rows": "cora --batch-size 24 --macrobatch 2 --embed all --epochs 20",
    "typed": "oewn_hetero --node-type noun --batch-size 2048 --macrobatch 2 --schedule global --epochs 1",
    "links": "cora:hold_out=0.1 --task link --batch-size 256 --macrobatch 4 --epochs 3",
    "historical rows": "amazon_photo --batch-size 256 --macrobatch 1 --remote historical --epochs 8",
    "aggregates": "amazon_photo --batch-size 256 --cache aggregation --epochs 8",
    "memory budget": "amazon_photo --batch-size 256 --memory-budget 900MiB --epochs 6",
    "partitioning": "generated:nodes=400000 --policy multilevel --out",
}
#: The folder of the control groups of memory, version 1.
GROUPS = Path("/sys/fs/cgroup/memory")


def _limit(pid: int, resource: str, value: int) -> None:
    subprocess.run(["prlimit", "--pid", str(pid), f"--{resource}={value}:{value}"], check=True)


def _few_files(pid: int, _: Path) -> None:
    _limit(pid, "nofile", max(3, len(list(Path(f"/proc/{pid}/fd").iterdir())) - 3))


def _no_memory(pid: int, _: Path) -> None:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
    _limit(pid, "as", pages * os.sysconf("SC_PAGE_SIZE"))


def _fill(_: int, run: Path) -> None:
    command = ["dd", "if=/dev/zero", f"of={run.parent / 'fill'}", "bs=64k"]
    subprocess.run(command, stderr=subprocess.DEVNULL, check=False)


def _memory_group(pid: int, _: Path) -> None:
    group = GROUPS / f"faults-{pid}"
    group.mkdir()
    (group / "memory.limit_in_bytes").write_text("1M")
    (group / "cgroup.procs").write_text(str(pid))  # what it has stays counted where it was


def _reset(pid: int, _: Path) -> None:
    """Resets all TCP connections of another process: a socket that is connected to no family."""
    libc, process = ctypes.CDLL(None), os.pidfd_open(pid)
    for connection in psutil.Process(pid).net_connections("tcp"):
        copy = libc.syscall(438, process, connection.fd, 0)  # pidfd_getfd
        if connection.raddr and copy >= 0:
            libc.connect(copy, bytes(16), 16)
        os.close(copy)
    os.close(process)


def _host_gone(pid: int, _: Path) -> None:
    os.kill(psutil.Process(pid).ppid(), signal.SIGKILL)  # its torchrun, with the store
    os.kill(pid, signal.SIGKILL)


def _slow(pid: int, _: Path) -> None:
    for _again in range(6):
        os.kill(pid, signal.SIGSTOP)
        time.sleep(1.0)
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.1)


def _signal(number: int) -> Callable[[int, Path], None]:
    return lambda pid, _: os.kill(pid, number)


FAULTS: dict[str, Callable[[int, Path], None]] = {
    "killed": _signal(signal.SIGKILL),
    "rank 0 killed": _signal(signal.SIGKILL),
    "stopped": _signal(signal.SIGSTOP),
    "SIGTERM": _signal(signal.SIGTERM),
    "SIGINT": _signal(signal.SIGINT),
    "slow": _slow,
    "few files": _few_files,
    "no memory": _no_memory,
    "no space": _fill,
    "memory group": _memory_group,
    "connections reset": _reset,
    "host gone": _host_gone,
}
#: Those that meet rank 0.
FIRST = {"rank 0 killed", "host gone"}
#: Those after which the others must name the rank, and those after which no run may succeed.
NAMED = {"killed", "stopped", "few files", "no memory", "memory group", "connections reset"} | FIRST
FATAL = {"killed", *FIRST}


@dataclass
class Ended:
    """How a run ended."""

    status: int
    text: str  # what it printed
    seconds: float  # of the run
    victim: int | None = None  # the rank that was harmed
    after: float = 0.0  # seconds from the fault to the end
    left: tuple[str, ...] = ()  # processes, ports and shared memory that are still there


def shared_memory() -> set[str]:
    return set(map(str, Path("/dev/shm").iterdir()))


def family(pid: int) -> set[int]:
    with contextlib.suppress(psutil.Error):
        return {one.pid for one in psutil.Process(pid).children(recursive=True)}
    return set()


def rank_processes(pid: int) -> dict[int, int]:
    """Returns the processes of ranks among the children of torchrun."""
    found = {}
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(pid).children():
            if rank := child.environ().get("RANK"):
                found[int(rank)] = child.pid
    return found


def commands(mode: str, run: Path, hosts: int, resume: bool) -> list[list[str]]:
    """Returns the command of each host."""
    start = [sys.executable, "-m", "torch.distributed.run"]
    timed = ["--timeout", str(TIMEOUT)]
    if mode == "partitioning":
        rest = ["-m", "pyg_batchgnn", "partition", *MODES[mode].split(), str(run), *timed]
    else:
        rest = ["-m", "pyg_batchgnn", "train", *f"{MODES[mode]} {SMALL}".split(), *timed]
        rest += ["--run-folder", str(run), *(["--resume", "auto"] if resume else [])]
    if hosts == 1:
        return [[*start, "--standalone", "--nproc-per-node=2", *rest]]
    with socket.create_server(("127.0.0.1", 0)) as free:
        place = ["--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={free.getsockname()[1]}"]
    return [[*start, *place, f"--node-rank={host}", *rest] for host in range(hosts)]


def train(
    mode: str, run: Path, fault: str | None = None, delay: float = 0.0, victim: int = 0, resume: bool = False
) -> Ended:
    """Runs a mode on two ranks. A fault meets a rank ``delay`` seconds after training began, or 5 s
    later after the ranks of another command did."""
    log = run.with_name(f"{run.name}.log")
    shared, begun, began, harmed = shared_memory(), time.monotonic(), 0.0, 0.0
    with log.open("w") as out:
        launched = [
            subprocess.Popen(one, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
            for one in commands(mode, run, 2 if fault == "host gone" else 1, resume)
        ]
        seen: set[int] = set()
        while any(one.poll() is None for one in launched):
            seen = seen.union(*(family(one.pid) for one in launched))
            now, ranks = time.monotonic(), {}
            if fault and not harmed:
                ranks = {rank: pid for one in launched for rank, pid in rank_processes(one.pid).items()}
            if fault and not began and re.search(r"^epoch", log.read_text(errors="replace"), re.M):
                began = now
            if not began and len(ranks) == 2 and mode == "partitioning":
                began = now + 5.0
            if began and victim in ranks and now >= began + delay:
                try:
                    FAULTS[fault or ""](ranks[victim], run)
                    harmed = time.monotonic()
                except (ProcessLookupError, FileNotFoundError, subprocess.CalledProcessError):
                    began, fault = 0.0, None  # it had just ended
            if now - begun > 10 * LATE or (harmed and now - harmed > 2 * LATE):
                for pid in [*seen, *(one.pid for one in launched)]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
    ended = time.monotonic()
    for _again in range(50):  # other programs have shared memory for a moment
        left = [str(pid) for pid in seen if _runs(pid)]
        left += shared_memory() - shared
        left += [f"port {one.laddr.port}" for one in psutil.net_connections("tcp") if one.pid in seen]
        if not left:
            break
        time.sleep(0.1)
    for group in GROUPS.glob("faults-*"):
        group.rmdir()
    return Ended(
        launched[-1].returncode,
        log.read_text(errors="replace"),
        ended - begun,
        victim if harmed else None,
        ended - harmed if harmed else 0.0,
        tuple(left),
    )


def _runs(pid: int) -> bool:
    with contextlib.suppress(psutil.Error):
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return False


def is_finished(run: Path) -> bool:
    return any((run / name).is_file() for name in ("result.json", "META.json"))


def problems_of(ended: Ended, fault: str, finished: bool) -> list[str]:
    """Returns what is wrong with the end of a run that was harmed. One that had finished may wait:
    torchrun does for a rank that is stopped then."""
    found = []
    if ended.after > LATE and not finished:
        found.append(f"it ended after {ended.after:.0f} s")
    if ended.left:
        found.append(f"left behind: {', '.join(ended.left)}")
    if (
        ended.status
        and not finished
        and fault in NAMED
        and not re.search(rf"rank\s*:? {ended.victim}\b", ended.text)
    ):
        found.append("the rank is not named")
    if not ended.status and fault in FATAL and not finished:
        found.append("the status is 0")
    return found


def same_result(one: Path, other: Path) -> bool:
    if not (one / "checkpoint.safetensors").is_file():
        files = [file.relative_to(one) for file in one.rglob("*.npy")]
        return all(filecmp.cmp(one / file, other / file, shallow=False) for file in files)
    expected, found = (load_file(run / "checkpoint.safetensors") for run in (one, other))
    names = [name for name in expected if "seconds" not in name]
    return all(name in found and torch.equal(expected[name], found[name]) for name in names)


def disturb(folder: Path, mode: str, fault: str, random_: random.Random, number: int) -> dict[str, Any]:
    """Harms a run, resumes it, and returns what was seen."""
    undisturbed = folder / "undisturbed" / mode.replace(" ", "-")
    if not is_finished(undisturbed):
        shutil.rmtree(undisturbed, ignore_errors=True)
        undisturbed.parent.mkdir(parents=True, exist_ok=True)
        ended = train(mode, undisturbed)
        if ended.status:
            raise RuntimeError(f"{mode} does not run by itself:\n{ended.text[-2000:]}")
    victim, delay = 0 if fault in FIRST else random_.randrange(2), random_.uniform(0.0, 4.0)
    place = folder / f"run-{number}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    small = fault == "no space"
    if small:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(place)], check=True)
    try:
        ended = train(mode, place / "run", fault, delay, victim)
        (place / "fill").unlink(missing_ok=True)
        if small:
            subprocess.run(["mount", "-o", "remount,size=1g", str(place)], check=True)
        if ended.status and ended.victim is None:
            raise RuntimeError(f"{mode} does not run by itself:\n{ended.text[-2000:]}")
        finished = is_finished(place / "run")
        found = problems_of(ended, fault, finished) if ended.victim is not None else []
        saved = (place / "run" / "checkpoint.safetensors").is_file()
        if ended.status and (saved or mode == "partitioning"):
            resumed = train(mode, place / "run", resume=True)
            if resumed.status:
                found.append(f"resuming ended with {resumed.status}: {resumed.text[-300:]}")
        if not found and is_finished(place / "run"):
            found += [] if same_result(undisturbed, place / "run") else ["another result"]
    finally:
        if small:
            subprocess.run(["umount", "-l", str(place)], check=True)
    if not found:
        shutil.rmtree(place)
    about = {"number": number, "mode": mode, "fault": fault, "delay": round(delay, 2), "victim": ended.victim}
    return {**about, "status": ended.status, "seconds": round(ended.after, 1), "problems": found}


def table(lines: Sequence[dict[str, Any]]) -> str:
    """Returns a table of the runs that were harmed, by fault, and what went wrong."""
    rows = ["| fault | runs | end with a status other than 0 | seconds to the end |", "|---|---:|---:|---|"]
    for fault in FAULTS:
        of = [one for one in lines if one["fault"] == fault and one["victim"] is not None]
        seconds = sorted(one["seconds"] for one in of) or [0]
        bad = sum(one["status"] != 0 for one in of)
        rows.append(f"| {fault} | {len(of)} | {bad} | {seconds[0]:.0f} to {seconds[-1]:.0f} |")
    return "\n".join([*rows, *(json.dumps(one) for one in lines if one["problems"])])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--faults", nargs="+", choices=FAULTS, default=list(FAULTS))
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    file = chosen.folder / "faults.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []
    for number in range(len(lines), chosen.runs):
        random_ = random.Random(f"{chosen.seed} {number}")
        mode, fault = random_.choice(chosen.modes), random_.choice(chosen.faults)
        lines.append(disturb(chosen.folder, mode, fault, random_, number))
        with file.open("a") as out:
            out.write(json.dumps(lines[-1]) + "\n")
        print(json.dumps(lines[-1]), flush=True)
    print(table(lines))


if __name__ == "__main__":
    main()
