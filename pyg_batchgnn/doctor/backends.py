"""Checks of torch.distributed's backends: two real processes exchange rows over each."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from torch._C._distributed_c10d import TCPStore

from pyg_batchgnn.comm import why_unavailable
from pyg_batchgnn.doctor.finding import Finding, FindingState

BACKENDS = ("gloo", "ccl", "mpi")
#: Seconds that both processes may take, including the import of torch.
LIMIT = 60.0
_MODULE = "pyg_batchgnn.doctor.exchange"
#: The remedies where the backend's own text gives none.
_REMEDIES = {
    "gloo": "if this host has several networks, name one: GLOO_SOCKET_IFNAME=lo (or eth0, ...)",
    "ccl": "see docs/how-to/ccl.md, and what CCL_LOG_LEVEL=info says",
    "mpi": "only needed where a cluster requires its own MPI: build torch from source with MPI",
}


def check_backends() -> list[Finding]:
    """Checks the backends one after the other, because they are also timed."""
    return [check_backend_works(name) for name in BACKENDS]


def check_backend_works(name: str) -> Finding:
    """Checks that two processes of this machine exchange rows correctly. Only gloo is needed."""
    title, needed = f"backend {name}", name == "gloo"
    if problem := why_unavailable(name):
        what, _, remedy = problem.partition("; ")
        return Finding(
            title,
            FindingState.BROKEN if needed else FindingState.ABSENT,
            what,
            remedy or _REMEDIES[name],
            needed,
        )
    if name == "mpi" and not shutil.which("mpirun"):
        return Finding(title, FindingState.ABSENT, "no mpirun here", "add MPI's bin folder to PATH")
    try:
        output = _exchange_by_mpirun() if name == "mpi" else _exchange(name)
        seen = json.loads(output.strip().splitlines()[-1])
    except (RuntimeError, ValueError, IndexError) as error:
        return Finding(title, FindingState.BROKEN, str(error), _REMEDIES[name], needed)
    speed = f"{seen['microseconds']:.0f} us, {seen['gigabytes']:.1f} GB/s between two processes"
    return Finding(title, FindingState.WORKS, speed, needed=needed)


def _exchange(name: str) -> str:
    """Returns the output of the first of two processes.

    Raises:
        RuntimeError: one of them failed, or they did not end.
    """
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
            [sys.executable, "-m", _MODULE, name],
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


def _exchange_by_mpirun() -> str:
    command = ["mpirun", "-np", "2", sys.executable, "-m", _MODULE, "mpi"]
    return _end(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))


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
