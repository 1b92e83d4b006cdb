"""Pages and files that users copy: they run, and say what the package does."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import runpy
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch._dynamo
import typer
import yaml

from benchmark import ranks
from benchmark.papers.others import DISTDGL
from benchmark.papers.page import Stored
from benchmark.support.world import summary
from build_tools.docs_hooks import command_line
from pyg_batchgnn.train.cli import app
from pyg_batchgnn.versions import TESTED
from tests.docs.blocks import FIRST_PAGES, ROOT, Page, blocks_of, is_shown
from tests.support.programs import real_programs
from tests.support.ranks import run_ranks
from tests.support.tiers import Stamp, all_only
from tests.support.two_hosts import Ran, TwoHosts, missing_for_two_hosts

# Jobs of ranks ####################################################################################

SCRIPT = ROOT / "examples" / "distributed.py"


def run(commands: list[list[str]]) -> list[str]:
    """Runs the script once for each list of arguments. Returns what each run printed."""
    printed = []
    for arguments in commands:
        out = io.StringIO()
        with mock.patch.object(sys, "argv", [str(SCRIPT), *arguments]), contextlib.redirect_stdout(out):
            runpy.run_path(str(SCRIPT), run_name="__main__")
        printed.append(out.getvalue())
    return printed


# Command line page ################################################################################

GROUP: Any = typer.main.get_command(app)


@pytest.mark.parametrize("name", sorted(GROUP.commands))
def test_a_command_has_a_section_with_its_options(name: str) -> None:
    page = command_line()
    assert f"## batchgnn {name}\n" in page
    section = page.split(f"## batchgnn {name}\n")[1].split("\n## ")[0]
    options = [one for one in GROUP.commands[name].params if one.param_type_name == "option"]
    missing = [spelling for one in options for spelling in one.opts if f"`{spelling}`" not in section]
    assert not missing


def test_markup_of_the_terminal_is_gone() -> None:
    page = command_line()
    assert "[bold]" not in page and "\b" not in page
    assert page.count("```") % 2 == 0


# Distributed example ##############################################################################

PAGE = ROOT / "docs" / "tutorials" / "your-own-script.md"


def test_it_learns_and_resumes_bit_for_bit(tmp_path: Path) -> None:
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    epochs = ["--epochs", "2"]
    commands = [
        ["--folder", str(straight), *epochs],
        ["--folder", str(broken), *epochs, "--stop-after", "10"],  # of 15 or so in an epoch
        ["--folder", str(broken), *epochs],
    ]
    first, other = run_ranks(run, 2, {"commands": commands}, timeout=200.0)
    whole, stopped, resumed = first.value
    assert other.value == ["", "", ""], "the first rank prints"
    form = r"epoch \d: loss (\d\.\d{4}), validation ROC-AUC (\d\.\d{4})\n"
    (loss, _), (later, area) = re.findall(form, whole)
    assert float(later) < 0.8 * float(loss) and float(area) > 0.9
    assert stopped == "" and resumed.splitlines()[-1] == whole.splitlines()[-1]
    one, again = (torch.load(run / "checkpoint.pt", weights_only=True) for run in (straight, broken))
    assert one["places"] == again["places"]
    for name, weights in one["model"].items():
        assert torch.equal(weights, again["model"][name]), name


def test_the_tutorial_shows_lines_of_the_script() -> None:
    script = SCRIPT.read_text(encoding="utf-8")
    shown = [block for block in blocks_of(PAGE.read_text(encoding="utf-8")) if block.language == "python"]
    assert len(shown) > 4
    for block in shown:
        assert block.code in script, f"{PAGE.name}:{block.line} differs from {SCRIPT.name}"


# Peer tables ######################################################################################


def _part() -> dict[str, Any]:
    """Returns two rounds of two ranks; the slowest rank of the faster round counts."""
    theirs: dict[str, Any] = {"sample": 2.0, "features": 1.0, "forward": 3.0, "backward": 2.0}
    theirs = {"phases": theirs, "remote_rows": 900}
    ours = {"phases": {"prepare": 1.0, "forward": 2.0, "backward": 1.0}, "rows_fetched": 300}
    ours |= {"stats": {"rows_fetched": 600}}
    series = [
        {"round": number, "setting": setting, **summary([{"wall": wall + number, **side} for wall in walls])}
        for number in range(2)
        for setting, side, walls in (("DistDGL", theirs, (7.5, 7.0)), ("B = all", ours, (3.0, 3.5)))
    ]
    return {"series": series}


def test_training_compares_seconds_and_rows_of_an_epoch() -> None:
    theirs, ours = ranks.against_dist_dgl(_part()).splitlines()[2:]
    assert theirs == "| DistDGL | 7.50 | 3.00 | 3.00 | 2.00 | 900 | 1.0x | 1.0x | 1.0x |"
    assert ours == "| B = all | 3.50 | 1.00 | 2.00 | 1.00 | 300 | 2.1x | 3.0x | 3.0x |"


def test_preparation_compares_seconds_and_rows() -> None:
    theirs, ours = ranks.preparation_against_dist_dgl(_part()).splitlines()[2:]
    assert theirs == "| DistDGL | 7.50 | 900 | 1.0x | 1.0x |"
    assert ours == "| B = all | 3.50 | 300 | 2.1x | 3.0x |"


def test_the_gain_of_embeddings_is_over_the_faster_of_torchs(tmp_path: Path) -> None:
    def gains() -> list[str]:
        shown = {table.title: table for table in DISTDGL.tables(Stored(tmp_path))}["Learned embeddings"]
        return [row[-1] for row in shown.rows]

    assert gains() == ["-", "-"]  # not measured
    seconds = {"ours": [2.0, 1.0, 3.0], "sparse": [8.0], "dense": [12.0], "dgl": [5.0]}
    (tmp_path / "embeddings.json").write_text(json.dumps({"seconds": seconds}))
    assert gains() == ["8.0x", "5.0x"]


# Code blocks ######################################################################################

PAGES = sorted(["README.md", *(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))])
PAGES_WITH_CODE = [page for page in PAGES if blocks_of((ROOT / page).read_text(encoding="utf-8"))]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", PAGES_WITH_CODE)
def test_blocks_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    green = Stamp.of(name, [text])
    if name not in FIRST_PAGES and not green.is_due:
        pytest.skip("the page has not changed since it was green")
    # The blocks show the graphs that a reader without real ones has.
    monkeypatch.setenv("PYG_BATCHGNN_DATA", str(tmp_path / "no-real-graphs"))
    blocks = blocks_of(text)
    if any(block.note == "on two hosts" for block in blocks) and (missing := missing_for_two_hosts()):
        pytest.skip(f"{name} needs two hosts, network namespaces here: {missing}")
    page = Page(name, tmp_path)
    for block in blocks:
        page.run(block)
    green.write()


def test_notes_are_known() -> None:
    for name in PAGES:
        for block in blocks_of((ROOT / name).read_text(encoding="utf-8")):
            known = block.note in ("", "on two hosts") or block.note.startswith("file: ") or block.reason
            assert known, f"{name}:{block.line}: the note {block.note!r} is none, or gives no reason"


def test_commands_stand_in_fences() -> None:
    for name in PAGES:
        indented = re.findall(r"^(?: {4}|\t)\$ .*", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
        assert not indented, f"{name}: these commands would not be run: {indented}"


@pytest.mark.parametrize(
    ("printed", "shown", "same"),
    [
        ("one\ntwo\n", "one\ntwo\n", True),
        ("one\ntwo\n", "one\n", False),
        ("one 3\n", "one 4\n", False),
        ("took 0.813 s\n", "took ... s\n", True),
        ("a\nb\nc\nd\n", "a\n...\nd\n", True),
        ("a\nb\n", "...\nd\n", False),
        ("accuracy 0.41\n", "accuracy 0.42\n", True),
        ("accuracy 0.41\n", "accuracy 0.45\n", False),
        ("1012.0 rows\n", "1000.0 rows\n", True),
        ("(a) 1.5.\n", "(a) 1.5.\n", True),
    ],
)
def test_outputs_are_compared(printed: str, shown: str, same: bool) -> None:
    assert is_shown(printed, shown) is same


_SAMPLE = """Text.

```python
print("one")
```

```text
one
```

<!-- not run: needs a cluster -->
```sh
srun hostname
```

<!-- file: two.py -->
```python
print("two")
```

```sh
python two.py
```

```text
2
```
"""


def test_blocks_are_found() -> None:
    first, second, third, fourth = blocks_of(_SAMPLE)
    assert (first.language, first.line, first.output) == ("python", 3, "one\n")
    assert (second.reason, second.output) == ("needs a cluster", None)
    assert third.note == "file: two.py"
    assert fourth.output == "2\n"


def test_a_wrong_output_is_seen(tmp_path: Path) -> None:
    page = Page("sample", tmp_path)
    *before, last = blocks_of(_SAMPLE)
    for block in before:
        page.run(block)
    with pytest.raises(AssertionError, match=r"sample:21 prints\ntwo"):
        page.run(last)


# Deployment #######################################################################################

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
