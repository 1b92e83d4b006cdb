"""torchrun starts a run again that lost a rank. It ends with the bits of one that lost none."""

from __future__ import annotations

import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.launched_runs import assert_same_tensors, launch, train
from tests.support.leftovers import nothing_is_left
from tests.support.programs import quick_programs, real_programs

RUN = ["--epochs", 3, "--batch-size", 16]
STEPS = 38  # of an epoch
#: What becomes of a rank, and what the others say.
LOST = {"SIGKILL": "no longer exists", "SIGSTOP": "is stopped"}


@dataclass(frozen=True)
class Restarted:
    """A launch by torchrun whose second rank was lost in the middle of the second epoch."""

    folder: Path
    ended: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def restarted(graph_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Restarted]:
    """The launches, by signal. They run at the same time: torchrun asks a stopped rank to end, and
    kills it after half a minute."""

    def launched(name: str) -> Restarted:
        folder = tmp_path_factory.mktemp(name)
        arguments = train(graph_folder, folder / "run", *RUN, "--resume", "auto")
        arguments[arguments.index("--run")] = "--run-folder"
        if name == "SIGSTOP":
            arguments += ["--timeout", "6"]
        command = ["torchrun", "--nproc-per-node=2", "--max-restarts=1", "--standalone"]
        command += ["--monitor-interval=0.1", "-m", "tests.support.signalled_run"]
        command += [name, str(STEPS + 10), "1", *arguments]
        for part in ("temporary", "pids"):
            (folder / part).mkdir()
        # Real ones start slowly while others do, which a short timeout would take for a lost rank.
        programs = real_programs() if name == "SIGKILL" else quick_programs()
        folders = {"TMPDIR": str(folder / "temporary"), "PIDS": str(folder / "pids")}
        environment = {**os.environ, **programs, **folders}
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
        return Restarted(folder, ended)

    with nothing_is_left(), ThreadPoolExecutor(len(LOST)) as pool:
        return dict(zip(LOST, pool.map(launched, LOST), strict=True))


@pytest.fixture(scope="module")
def undisturbed(graph_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that the launches end as."""
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    (seen,) = launch(2, {"arguments": train(graph_folder, run, *RUN)})
    assert {one["status"] for one in seen} == {0}
    return run


@pytest.mark.parametrize(("name", "text"), LOST.items())
def test_a_lost_rank_costs_no_bit(
    restarted: dict[str, Restarted], undisturbed: Path, name: str, text: str
) -> None:
    folder, ended = restarted[name].folder, restarted[name].ended
    assert ended.returncode == 0, ended.stderr
    assert re.search(rf"batchgnn: rank 0: .*{text}", ended.stderr), ended.stderr
    assert "resumed after" in ended.stdout
    assert "Traceback" not in ended.stderr.split("torch/distributed/elastic")[0]
    workers = [path.name for path in (folder / "pids").iterdir()]
    assert len(workers) == 4 and not any(Path("/proc", pid).exists() for pid in workers)
    temporary = [path.name for path in (folder / "temporary").iterdir()]
    left = [name for name in temporary if not name.startswith("torchelastic_")]
    assert not left, "all temporary files but torchrun's own folder of logs are removed"
    assert_same_tensors(undisturbed, folder / "run")
