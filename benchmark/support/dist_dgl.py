"""DistDGL on hosts of its own: a server and a trainer each, in network namespaces.

Needs root for the namespaces: DGL finds out by addresses on which host each process runs, so that
two hosts on one loopback would read each other's features in shared memory. /dev/shm is each host's
own, too.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.support import namespaces
from benchmark.support.harness import ProcessSetting
from benchmark.support.machine import CACHE
from benchmark.support.world import answers_of

WORKER = "benchmark.contestants.dist_dgl"
PORT = 30_050
SHARED_MEMORY = "/dev/shm"


@dataclass(frozen=True)
class DistDgl:
    """DistDGL on some hosts."""

    python: str  # of an environment that has DGL
    ranks: int  # hosts, each with one server and one trainer
    threads: int = 1  # threads of each process
    timeout: float = 900.0  # seconds for a whole run

    def parts(self, name: str, graph: dict[str, Any]) -> Path:
        """Returns the folder of the parts of a graph with owners at random; makes them once."""
        folder = CACHE / "dist_dgl" / f"{name}-{self.ranks}"
        if not folder.is_dir():
            partial = folder.with_name(f"{folder.name}.partial")
            partial.mkdir(parents=True, exist_ok=True)
            options = json.dumps({**graph, "ranks": self.ranks, "partition": str(partial)})
            environment = ProcessSetting(threads=2, malloc="kept").environment()
            with (partial / "partition.log").open("wb") as log:
                command = [self.python, "-m", WORKER, "partition", options]
                subprocess.run(command, env=environment, stdout=log, stderr=log, check=True)
            partial.rename(folder)
        return folder

    def run(self, job: str, parts: Path, options: dict[str, Any]) -> list[dict[str, Any]]:
        """Returns every trainer's answer to a job; call it inside `namespaces.hosts`."""
        with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory(dir=SHARED_MEMORY) as shared:
            folder = Path(name)
            addresses = folder / "hosts"
            addresses.write_text(
                "".join(f"{namespaces.address(host)} {PORT}\n" for host in range(self.ranks))
            )
            answer = {"answer": str(folder / "{rank}.json")}
            command = [self.python, "-m", WORKER, job, json.dumps({**options, **answer})]
            servers, trainers = (
                [
                    self._start(host, role, command, parts, addresses, Path(shared))
                    for host in range(self.ranks)
                ]
                for role in ("server", "client")
            )
            return answers_of(trainers, servers, folder, self.timeout)

    def _start(
        self, host: int, role: str, command: list[str], parts: Path, addresses: Path, shared: Path
    ) -> subprocess.Popen[bytes]:
        environment = {
            **ProcessSetting(threads=self.threads, malloc="kept").environment(),
            **{"DGL_DIST_MODE": "distributed", "DGL_ROLE": role, "DGL_SERVER_ID": str(host)},
            **{"DGL_NUM_SERVER": "1", "DGL_NUM_CLIENT": str(self.ranks), "DGL_NUM_SAMPLER": "0"},
            **{"DGL_CONF_PATH": str(parts / "graph.json"), "DGL_IP_CONFIG": str(addresses)},
            **{"RANK": str(host), "WORLD_SIZE": str(self.ranks), "GLOO_SOCKET_IFNAME": namespaces.DEVICE},
            **{"MASTER_ADDR": namespaces.address(0), "MASTER_PORT": str(PORT + 1000)},
        }
        # One /dev/shm for a host: its server and its trainer meet there under names that all hosts
        # use.
        own = shared / str(host)
        own.mkdir(exist_ok=True)
        script = f'mount --bind "{own}" {SHARED_MEMORY} && exec "$@"'
        return subprocess.Popen(
            namespaces.command_on(host, ["unshare", "--mount", "sh", "-c", script, "sh", *command]),
            env=environment,
            stdout=(addresses.parent / f"{role}{host}.log").open("wb"),
            stderr=subprocess.STDOUT,
        )
