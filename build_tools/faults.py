"""Harms one of two ranks of training runs at random moments, and looks at what the others do.

    PYTHONPATH=. python build_tools/faults.py /tmp/faults --runs 100 --seed 8

Each mode first runs undisturbed. A disturbed run must end in time, with a status other than 0 and
a line that names the rank, and must leave neither processes nor shared memory. It is resumed then,
and must end with the weights of the undisturbed run. Lines go to ``faults.jsonl``; a run that is
started again goes on behind the last one. Some need root: ``no space`` mounts a file system of 3
MiB, ``memory group`` limits the memory of a control group (version 1), and ``connections reset``
takes the sockets of the other process.
"""

from __future__ import annotations

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
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import psutil
import torch
import typer
from psutil import Process

from tests.support.leftovers import shared_memory, stays
from tests.support.training_runs import weights

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


def _fill(_: Process, run: Path) -> None:
    command = ["dd", "if=/dev/zero", f"of={run.parent / 'fill'}", "bs=64k"]
    subprocess.run(command, stderr=subprocess.DEVNULL, check=False)


def _memory_group(process: Process, _: Path) -> None:
    group = GROUPS / f"faults-{process.pid}"
    group.mkdir()
    (group / "memory.limit_in_bytes").write_text("1M")
    (group / "cgroup.procs").write_text(str(process.pid))  # what it has stays counted where it was


def _reset(process: Process, _: Path) -> None:
    """Resets all TCP connections of another process: a socket that is connected to no family."""
    libc, handle = ctypes.CDLL(None), os.pidfd_open(process.pid)
    for connection in process.net_connections("tcp"):
        copy = libc.syscall(438, handle, connection.fd, 0)  # pidfd_getfd
        if connection.raddr and copy >= 0:
            libc.connect(copy, bytes(16), 16)
        os.close(copy)
    os.close(handle)


def _slow(process: Process, _: Path) -> None:
    for _again in range(6):
        process.suspend()
        time.sleep(1.0)
        process.resume()
        time.sleep(0.1)


FAULTS: dict[str, Callable[[Process, Path], object]] = {
    "killed": lambda process, _: process.kill(),
    "rank 0 killed": lambda process, _: process.kill(),
    "stopped": lambda process, _: process.suspend(),
    "SIGTERM": lambda process, _: process.terminate(),
    "SIGINT": lambda process, _: process.send_signal(signal.SIGINT),
    "slow": _slow,
    "few files": lambda process, _: process.rlimit(
        psutil.RLIMIT_NOFILE, (max(3, process.num_fds() - 3),) * 2
    ),
    "no memory": lambda process, _: process.rlimit(psutil.RLIMIT_AS, (process.memory_info().vms,) * 2),
    "no space": _fill,
    "memory group": _memory_group,
    "connections reset": _reset,
    "host gone": lambda process, _: (process.parent().kill(), process.kill()),  # torchrun has the store
}
#: Those that meet rank 0.
FIRST = {"rank 0 killed", "host gone"}
#: Those after which the others must name the rank, and those after which no run may succeed.
NAMED = {"killed", "stopped", "few files", "no memory", "memory group", "connections reset"} | FIRST
FATAL = {"killed", *FIRST}


class Ended(NamedTuple):
    """How a run ended."""

    status: int
    text: str  # what it printed
    seconds: float | None  # from the fault to the end; None if there was no fault
    left: set[Any]  # processes and shared memory that are still there


def commands(mode: str, run: Path, hosts: int) -> list[list[str]]:
    """Returns the command of each host. A run that is there is resumed."""
    start = [sys.executable, "-m", "torch.distributed.run"]
    command = f"train {MODES[mode]} {SMALL} --resume auto --run-folder"
    if mode == "partitioning":
        command = f"partition {MODES[mode]}"
    rest = ["-m", "pyg_batchgnn", *command.split(), str(run), "--timeout", str(TIMEOUT)]
    if hosts == 1:
        return [[*start, "--standalone", "--nproc-per-node=2", *rest]]
    with socket.create_server(("127.0.0.1", 0)) as free:
        place = ["--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={free.getsockname()[1]}"]
    return [[*start, *place, f"--node-rank={host}", *rest] for host in range(hosts)]


def train(mode: str, run: Path, fault: str = "", delay: float = 0.0, victim: int = 0) -> Ended:
    """Runs a mode on two ranks. A fault meets a rank ``delay`` seconds after training began, or 5 s
    later after the ranks of another command did."""
    log = run.with_name(f"{run.name}.log")
    shared, begun, began, harmed = shared_memory(), time.monotonic(), 0.0, 0.0
    with log.open("w") as out:
        launched = [
            psutil.Popen(one, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
            for one in commands(mode, run, 2 if fault == "host gone" else 1)
        ]
    seen = set[Process]()
    while any(one.poll() is None for one in launched):
        now, ranks = time.monotonic(), dict[int, Process]()
        for one in launched:
            with contextlib.suppress(psutil.Error):
                seen.update(one.children(recursive=True))
                ranks |= {int(child.environ().get("RANK", -1)): child for child in one.children()}
        if fault and not began and re.search(r"^epoch", log.read_text(errors="replace"), re.M):
            began = now
        if fault and not began and {0, 1} <= ranks.keys() and mode == "partitioning":
            began = now + 5.0
        if fault and not harmed and began and victim in ranks and now >= began + delay:
            try:
                FAULTS[fault](ranks[victim], run)
                harmed = time.monotonic()
            except (psutil.Error, FileNotFoundError):
                fault = ""  # it had just ended
        if now - begun > 10 * LATE or (harmed and now - harmed > 2 * LATE):
            for one in [*seen, *launched]:
                with contextlib.suppress(psutil.Error):
                    one.kill()
        time.sleep(0.02)
    ended = time.monotonic()
    left = stays(lambda: set(filter(runs, seen)), set()) | stays(shared_memory, shared)
    for group in GROUPS.glob("faults-*"):
        group.rmdir()
    after = ended - harmed if harmed else None
    return Ended(launched[-1].returncode, log.read_text(errors="replace"), after, left)


def runs(process: Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


def is_finished(run: Path) -> bool:
    return any((run / name).is_file() for name in ("result.json", "META.json"))


def problems_of(ended: Ended, fault: str, victim: int, finished: bool) -> list[str]:
    """Returns what is wrong with the end of a run that was harmed. One that had finished may wait:
    torchrun does for a rank that is stopped then."""
    found = [f"left behind: {one}" for one in ended.left]
    if ended.seconds is None:
        return [*found, "it failed unharmed"] if ended.status else found
    if finished:
        return found
    if ended.seconds > LATE:
        found.append(f"it ended after {ended.seconds:.0f} s")
    if (
        ended.status
        and fault in NAMED
        and not re.search(rf"^batchgnn: .*\brank {victim}\b", ended.text, re.M)
    ):
        found.append("the rank is not named")
    return found if ended.status or fault not in FATAL else [*found, "the status is 0"]


def same_result(one: Path, other: Path) -> bool:
    if not (one / "checkpoint.safetensors").is_file():
        files = [file.relative_to(one) for file in one.rglob("*.npy")]
        return all(filecmp.cmp(one / file, other / file, shallow=False) for file in files)
    expected, found = weights(one), weights(other)
    names = [name for name in expected if "seconds" not in name]
    return all(name in found and torch.equal(expected[name], found[name]) for name in names)


def disturb(place: Path, mode: str, fault: str, victim: int, delay: float) -> dict[str, Any]:
    """Harms a run, resumes it, and returns what was seen."""
    undisturbed, run = place.parent / "undisturbed" / mode.replace(" ", "-"), place / "run"
    undisturbed.parent.mkdir(exist_ok=True)
    place.mkdir()
    if not is_finished(undisturbed) and (ended := train(mode, undisturbed)).status:
        raise RuntimeError(f"{mode} does not run by itself:\n{ended.text[-2000:]}")
    with contextlib.ExitStack() as stack:
        if fault == "no space":
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(place)], check=True)
            stack.callback(subprocess.run, ["umount", "-l", str(place)], check=True)
        ended = train(mode, run, fault, delay, victim)
        (place / "fill").unlink(missing_ok=True)
        if fault == "no space":
            subprocess.run(["mount", "-o", "remount,size=1g", str(place)], check=True)
        found = problems_of(ended, fault, victim, is_finished(run))
        if ended.status and (resumed := train(mode, run)).status:
            found.append(f"resuming ended with {resumed.status}: {resumed.text[-300:]}")
        elif not same_result(undisturbed, run):
            found.append("another result")
    if not found:
        shutil.rmtree(place)
    about = {"mode": mode, "fault": fault, "victim": victim, "delay": round(delay, 2)}
    return {**about, "status": ended.status, "seconds": ended.seconds, "problems": found}


def main(folder: Path, runs: int = 100, seed: int = 0, modes: str = "", faults: str = "") -> None:
    """``modes, faults``: some of them, separated by semicolons; all by default."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "faults.jsonl"
    file.touch()
    for number in range(len(file.read_text().splitlines()), runs):
        draw, place = random.Random(f"{seed} {number}"), folder / f"run-{number}"
        shutil.rmtree(place, ignore_errors=True)
        mode, fault = (
            draw.choice(some.split(";") if some else [*every])
            for some, every in ((modes, MODES), (faults, FAULTS))
        )
        victim, delay = 0 if fault in FIRST else draw.randrange(2), draw.uniform(0.0, 4.0)
        line = json.dumps({"number": number, **disturb(place, mode, fault, victim, delay)})
        print(line, flush=True)
        with file.open("a") as out:
            out.write(line + "\n")
    duckdb.sql(
        f"SELECT fault, count(*) AS runs, count_if(status != 0) AS failed, min(seconds), max(seconds) "
        f"FROM read_json('{file}') WHERE seconds IS NOT NULL GROUP BY ALL ORDER BY ALL"
    ).show()


if __name__ == "__main__":
    typer.run(main)
