"""The files of `deploy/` hold what they say: their commands train on two hosts."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pyg_batchgnn.versions import TESTED
from tests.docs.blocks import ROOT
from tests.support.programs import real_programs
from tests.support.tiers import all_only
from tests.support.two_hosts import Ran, TwoHosts, missing_for_two_hosts

DEPLOY = ROOT / "deploy"
SMALL = ["generated:nodes=2000,seed=1", "--fanout", "5,3", "--hidden", "16", "--epochs", "2"]
#: Stand-ins of Slurm's programs: each of the two hosts runs the whole script.
SLURM = {"scontrol": 'echo "node0"; echo "node1"', "srun": 'exec "$@"'}


@pytest.fixture
def hosts() -> Iterator[TwoHosts]:
    if missing := missing_for_two_hosts():
        pytest.skip(f"two hosts are network namespaces here: {missing}")
    with TwoHosts() as both:
        yield both


def job() -> dict[str, Any]:
    found = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8")))
    return next(one for one in found if one["kind"] == "Job")


def both_trained(ran: list[Ran]) -> None:
    for one in ran:
        assert one.code == 0, one.stderr[-3000:]
    first = ran[0].stdout + ran[1].stdout
    assert "epoch 2/2" in first and first.count("written to") == 1


@all_only
def test_slurm_script(hosts: TwoHosts, tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in SLURM.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(stat.S_IRWXU)
    given = real_programs()
    slurm = {"SLURM_JOB_NODELIST": "node[0-1]", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_ID": "7"}
    environment = {
        **os.environ,
        **given,
        **slurm,
        "PATH": f"{programs}:{given['PATH']}",
        "RANKS_PER_HOST": "1",
    }
    ran = hosts.run([str(DEPLOY / "slurm.sh"), *SMALL], tmp_path, environment, 120)
    both_trained(ran)
    assert (tmp_path / "host0" / "runs" / "7" / "result.json").is_file()


@all_only
def test_kubernetes_job(hosts: TwoHosts, tmp_path: Path) -> None:
    (container,) = job()["spec"]["template"]["spec"]["containers"]
    places = {"FIRST": "node0"}
    command = [re.sub(r"\$\((\w+)\)", lambda found: places[found[1]], word) for word in container["command"]]
    command = [word.replace("per-node=2", "per-node=1") for word in command]
    train, _, *rest = [word.replace("/data/", "") for word in container["args"]]
    ran = hosts.run([*command, train, *SMALL, *rest], tmp_path, {**os.environ, **real_programs()}, 120)
    both_trained(ran)


def test_the_job_has_as_many_pods_as_it_says() -> None:
    spec = job()["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    assert f"--nnodes={spec['completions']}" in container["command"]
    assert spec["completions"] == spec["parallelism"]
    assert spec["template"]["spec"]["subdomain"] in container["env"][0]["value"]


def test_the_image_has_the_tested_torch() -> None:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    assert set(re.findall(r"torch==([\d.]+)", text)) == {TESTED["torch"]}
    needed = re.findall(r"^!(\S+)", (DEPLOY / "Dockerfile.dockerignore").read_text(), re.MULTILINE)
    for name in needed:
        assert (ROOT / name).exists(), f"deploy/Dockerfile.dockerignore keeps {name}, which does not exist"
