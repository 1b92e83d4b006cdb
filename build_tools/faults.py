"""Harms one of two ranks of training runs at random moments, and looks at what the others do.

    python build_tools/faults.py /tmp/faults --runs 100 --seed 8

Each mode of training first runs undisturbed. A disturbed run must end in time, with a status other
than 0 and a line that names the rank, and must leave neither processes nor shared memory. It is
resumed then, and must end with the weights of the undisturbed run. Lines go to ``faults.jsonl``;
a run that is started again goes on behind the last one. ``no space`` mounts a file system of 3 MiB,
which needs root.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
}


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
}
#: Those after which the others must name the rank.
NAMED = {"killed", "rank 0 killed", "stopped", "few files", "no memory"}


@dataclass
class Ended:
    """How a run ended."""

    status: int
    text: str  # what it printed
    seconds: float  # of the run
    victim: int | None = None  # the rank that was harmed
    after: float = 0.0  # seconds from the fault to the end
    left: tuple[str, ...] = ()  # processes and shared memory that are still there


def shared_memory() -> set[str]:
    return set(map(str, Path("/dev/shm").iterdir()))


def children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, task.read_text().split())
        except OSError:  # it has ended
            continue
    return found


def family(pid: int) -> set[int]:
    own = children(pid)
    return set(own).union(*map(family, own))


def rank_processes(pid: int) -> dict[int, int]:
    """Returns the processes of ranks among the children of torchrun."""
    found = {}
    for child in children(pid):
        try:
            variables = Path(f"/proc/{child}/environ").read_text(errors="replace").split("\0")
        except OSError:
            continue
        ranks = [one.removeprefix("RANK=") for one in variables if one.startswith("RANK=")]
        if ranks:
            found[int(ranks[0])] = child
    return found


def train(
    mode: str, run: Path, fault: str | None = None, delay: float = 0.0, victim: int = 0, resume: bool = False
) -> Ended:
    """Runs a mode on two ranks. A fault meets a rank ``delay`` seconds after training began."""
    log = run.with_name(f"{run.name}.log")
    options = ["--timeout", str(TIMEOUT), "--run-folder", str(run), *(["--resume", "auto"] if resume else [])]
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*start, "-m", "pyg_batchgnn", "train", *f"{MODES[mode]} {SMALL}".split(), *options]
    shared, begun, began, harmed = shared_memory(), time.monotonic(), 0.0, 0.0
    with log.open("w") as out:
        launched = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        seen: set[int] = set()
        while launched.poll() is None:
            seen |= family(launched.pid)
            now = time.monotonic()
            if fault and not began and re.search(r"^epoch", log.read_text(errors="replace"), re.M):
                began = now
            if began and not harmed and now >= began + delay:
                ranks = rank_processes(launched.pid)
                if victim in ranks:
                    try:
                        FAULTS[fault or ""](ranks[victim], run)
                        harmed = time.monotonic()
                    except (ProcessLookupError, FileNotFoundError, subprocess.CalledProcessError):
                        began, fault = 0.0, None  # it had just ended
            if now - begun > 10 * LATE or (harmed and now - harmed > 2 * LATE):
                for pid in family(launched.pid) | {launched.pid}:
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
    ended = time.monotonic()
    time.sleep(0.5)
    left = [str(pid) for pid in seen if Path(f"/proc/{pid}/cmdline").is_file() and _runs(pid)]
    left += shared_memory() - shared
    return Ended(
        launched.returncode,
        log.read_text(errors="replace"),
        ended - begun,
        victim if harmed else None,
        ended - harmed if harmed else 0.0,
        tuple(left),
    )


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def problems_of(ended: Ended, fault: str) -> list[str]:
    """Returns what is wrong with the end of a run that was harmed."""
    found = []
    if ended.after > LATE:
        found.append(f"it ended after {ended.after:.0f} s")
    if ended.left:
        found.append(f"left behind: {', '.join(ended.left)}")
    if ended.status and fault in NAMED and not re.search(rf"rank\s*:? {ended.victim}\b", ended.text):
        found.append("the rank is not named")
    if not ended.status and fault in ("killed", "rank 0 killed"):
        found.append("the status is 0")
    return found


def same_weights(one: Path, other: Path) -> bool:
    expected, found = (load_file(run / "checkpoint.safetensors") for run in (one, other))
    names = [name for name in expected if "seconds" not in name]
    return all(name in found and torch.equal(expected[name], found[name]) for name in names)


def disturb(folder: Path, mode: str, fault: str, random_: random.Random, number: int) -> dict[str, Any]:
    """Harms a run, resumes it, and returns what was seen."""
    undisturbed = folder / "undisturbed" / mode.replace(" ", "-")
    if not (undisturbed / "result.json").is_file():
        shutil.rmtree(undisturbed, ignore_errors=True)
        undisturbed.parent.mkdir(parents=True, exist_ok=True)
        ended = train(mode, undisturbed)
        if ended.status:
            raise RuntimeError(f"{mode} does not run by itself:\n{ended.text[-2000:]}")
    victim, delay = 0 if fault == "rank 0 killed" else random_.randrange(2), random_.uniform(0.0, 4.0)
    place = folder / f"run-{number}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    small = fault == "no space"
    if small:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(place)], check=True)
    try:
        ended = train(mode, place / "run", fault, delay, victim)
        (place / "fill").unlink(missing_ok=True)
        found = problems_of(ended, fault) if ended.victim is not None else []
        if ended.status and (place / "run" / "checkpoint.safetensors").is_file():
            resumed = train(mode, place / "run", resume=True)
            if resumed.status:
                found.append(f"resuming ended with {resumed.status}: {resumed.text[-300:]}")
        if not found and (place / "run" / "result.json").is_file():
            found += [] if same_weights(undisturbed, place / "run") else ["other weights"]
    finally:
        if small:
            subprocess.run(["umount", "-l", str(place)], check=True)
    if not found:
        shutil.rmtree(place)
    about = {"number": number, "mode": mode, "fault": fault, "delay": round(delay, 2), "victim": ended.victim}
    return {**about, "status": ended.status, "seconds": round(ended.after, 1), "problems": found}


def table(lines: Sequence[dict[str, Any]]) -> str:
    """Returns a table of how many runs were harmed, by mode and fault, and what went wrong."""
    harmed = [one for one in lines if one["victim"] is not None]
    counts = Counter((one["mode"], one["fault"]) for one in harmed)
    rows = [["", *FAULTS], ["---"] + ["---:"] * len(FAULTS)]
    rows += [[mode, *(str(counts[mode, fault] or "") for fault in FAULTS)] for mode in MODES]
    wrong = [one for one in harmed if one["problems"]]
    said = [f"{one['mode']}, {one['fault']}: {'; '.join(one['problems'])}" for one in wrong]
    drawn = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([drawn, "", f"{len(harmed)} runs were harmed; {len(wrong)} with problems.", *said])


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
