"""Runs PyG's scripts in processes of their own, with PyG's loaders or with ours."""

from __future__ import annotations

import enum
import subprocess
import sys
from collections.abc import Sequence

from benchmark.support.settings import ProcessSetting

RUN_SCRIPT = "benchmark.pyg_scripts.run_script"
#: Seconds that a script may take.
LIMIT = 1800.0


class Side(enum.Enum):
    """The two sets of loaders that a script may get."""

    PYG = "pyg"
    OURS = "ours"


def run(
    side: Side, arguments: Sequence[str], *, python: str = sys.executable, threads: int = 1, ranks: int = 0
) -> str:
    """Runs a script and returns what it printed.

    Args:
        side: whose loaders it gets.
        arguments: those of `run_script`: options, the script, and the script's own arguments.
        python: the interpreter.
        threads: threads of each process.
        ranks: processes started by torchrun; 0 starts one without.

    Raises:
        subprocess.CalledProcessError, subprocess.TimeoutExpired: it failed, or did not end in time.
    """
    launcher = ["torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "-m"] if ranks else []
    options = ["--loader", side.value, "--threads", str(threads)]
    done = subprocess.run(
        [python, "-m", *launcher, RUN_SCRIPT, *options, *arguments],
        env={**ProcessSetting(threads).environment(), "GLOO_SOCKET_IFNAME": "lo"},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
    )
    return done.stdout


def why_absent(side: Side, python: str) -> str | None:
    """Returns why a side cannot sample with an interpreter, or None if it can."""
    if side is Side.OURS:
        return None
    ask = "import torch_geometric.typing as t; print(t.WITH_PYG_LIB or t.WITH_TORCH_SPARSE)"
    done = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False)
    if done.stdout.strip() == "True":
        return None
    return "PyG's loader, which needs pyg-lib or torch-sparse: neither is installed"
