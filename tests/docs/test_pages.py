"""Pages and files that users copy: they run, and say what the package does."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import re
import runpy
import stat
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import griffe
import pytest
import torch
import torch._dynamo
import typer
import yaml

from benchmark.report import GAINS_PAGES, with_gains
from benchmark.summary import table
from benchmark.support.cli import RESULTS
from build_tools import docs_hooks, files_page
from build_tools.docs_hooks import command_line
from pyg_batchgnn.train.cli import app
from pyg_batchgnn.versions import TESTED
from tests.docs.blocks import FIRST_PAGES, ROOT, Page, blocks_of
from tests.support import reference_sampler as reference
from tests.support.programs import real_programs
from tests.support.ranks import run_ranks
from tests.support.tiers import all_only, in_all
from tests.support.two_hosts import Ran, TwoHosts, missing_for_two_hosts

SCRIPT = ROOT / "examples" / "distributed.py"


def run(commands: list[list[str]]) -> list[str]:
    printed = []
    for arguments in commands:
        out = io.StringIO()
        with mock.patch.object(sys, "argv", [str(SCRIPT), *arguments]), contextlib.redirect_stdout(out):
            runpy.run_path(str(SCRIPT), run_name="__main__")
        printed.append(out.getvalue())
    return printed


def test_api_pages_show_the_names_of_a_room() -> None:
    """A room exports what it imports as itself."""
    extensions = griffe.load_extensions(ROOT / "build_tools" / "griffe_exports.py")
    package = griffe.load("pyg_batchgnn", search_paths=[ROOT], extensions=extensions)
    for room in ("embed", "ops", "store"):
        names = importlib.import_module(f"pyg_batchgnn.{room}").__all__
        assert set(package[room].exports or ()) == set(names) and len(names) > 5


GROUP: Any = typer.main.get_command(app)


def test_every_command_has_a_section_with_its_options() -> None:
    page = command_line()
    for name, command in GROUP.commands.items():
        section = page.split(f"## batchgnn {name}\n")[1].split("\n## ")[0]
        options = [one for one in command.params if one.param_type_name == "option"]
        assert not [word for one in options for word in one.opts if f"`{word}`" not in section]
    assert "[bold]" not in page and "\b" not in page and page.count("```") % 2 == 0


PAGE = ROOT / "docs" / "tutorials" / "your-own-script.md"


@all_only
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


PAGES = sorted(["README.md", *(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))])
PAGES_WITH_CODE = [page for page in PAGES if blocks_of((ROOT / page).read_text(encoding="utf-8"))]


FIRST = [page for page in PAGES_WITH_CODE if page in FIRST_PAGES]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [*FIRST, *in_all(*sorted(set(PAGES_WITH_CODE) - FIRST_PAGES))])
def test_blocks_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    # The blocks show the graphs that a reader without real ones has.
    monkeypatch.setenv("PYG_BATCHGNN_DATA", str(tmp_path / "no-real-graphs"))
    blocks = blocks_of(text)
    if any(block.note == "on two hosts" for block in blocks) and (missing := missing_for_two_hosts()):
        pytest.skip(f"{name} needs two hosts, network namespaces here: {missing}")
    page = Page(name, tmp_path)
    for block in blocks:
        page.run(block)


def test_notes_are_known_and_commands_stand_in_fences() -> None:
    for name in PAGES:
        text = (ROOT / name).read_text(encoding="utf-8")
        for block in blocks_of(text):
            known = block.note in ("", "on two hosts") or block.note.startswith("file: ") or block.reason
            assert known, f"{name}:{block.line}: the note {block.note!r} is none, or gives no reason"
        indented = re.findall(r"^(?: {4}|\t)\$ .*", text, re.MULTILINE)
        assert not indented, f"{name}: these commands would not be run: {indented}"


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


def test_deployment_files_fit_together() -> None:
    """The job has as many pods as it says, and the image the tested torch."""
    spec = job()["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    assert f"--nnodes={spec['completions']}" in container["command"]
    assert spec["completions"] == spec["parallelism"]
    assert spec["template"]["spec"]["subdomain"] in container["env"][0]["value"]
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    assert set(re.findall(r"torch==([\d.]+)", text)) == {TESTED["torch"]}
    needed = re.findall(r"^!(\S+)", (DEPLOY / "Dockerfile.dockerignore").read_text(), re.MULTILINE)
    for name in needed:
        assert (ROOT / name).exists(), f"deploy/Dockerfile.dockerignore keeps {name}, which does not exist"


def test_tables_and_gains_come_from_stored_results() -> None:
    for page in ("README.md", "docs/benchmarks.md"):
        assert table() in (ROOT / page).read_text(encoding="utf-8"), (
            f"{page} has another table than `python -m benchmark.summary` prints: put it there"
        )
    for path in GAINS_PAGES:
        text = path.read_text(encoding="utf-8")
        assert "<!-- gains -->" in text
        assert with_gains(path, RESULTS) == text, f"{path}: run `python -m benchmark report`"


SITE = ROOT / "docs"
ALL_PAGES = [*ROOT.glob("*.md"), *SITE.rglob("*.md"), *(ROOT / "benchmark").rglob("*.md")]


def test_constants_of_the_sampling_contract_are_those_of_the_reference() -> None:
    page = (ROOT / "docs" / "concepts" / "sampling-contract.md").read_text(encoding="utf-8")
    assert f"GAMMA = 0x{reference.GAMMA:X}" in page
    assert f"SHUFFLE = 0x{reference.SHUFFLE:X}" in page
    assert f"{reference.FEISTEL_ROUNDS} rounds" in page


def test_the_page_of_files_is_that_of_the_files() -> None:
    assert files_page.PAGE.read_text(encoding="utf-8") == files_page.page(), (
        "docs/files.md is out of date: run `python build_tools/files_page.py`"
    )


def test_the_first_page_leads_to_every_page() -> None:
    """The pages of the API and the single decisions are behind the first of theirs."""
    text = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    behind = ("reference/api/", "decisions/0", "index.md")
    missing = [page for page in pages if not page.startswith(behind) and f"({page})" not in text]
    assert not missing


def without_blocks(text: str) -> str:
    return re.sub(r"^(`{3,}).*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors_of(text: str) -> set[str]:
    """Returns the anchors of a page's headings, as mkdocs and GitHub make them, and its own."""
    headings = re.findall(r"^#+ (.+)$", without_blocks(text), re.MULTILINE)
    words = (re.sub(r"\{#.*\}|\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    slugs = {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", one).strip().lower()) for one in words}
    return slugs | set(re.findall(r"(?:\{#|id=\"|name=\")([\w-]+)", text))


def broken_links(page: Path, text: str, others: Mapping[Path, str]) -> list[str]:
    inline = r"\]\(<?([^)>\s]+)[^)]*\)|^\[[^]^]+\]:\s+(\S+)|(?:src|href)=\"([^\"]+)\""
    prose = re.sub(r"`[^`\n]*`", "", without_blocks(text))
    links = ["".join(found) for found in re.findall(inline, prose, re.MULTILINE)]
    broken = []
    for link in links:
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        to = Path(os.path.normpath(page.parent / name)) if name else page
        leaves_site = SITE in page.parents and SITE not in to.parents
        is_there = to in others or to.exists()
        if leaves_site or not is_there or (anchor and to in others and anchor not in anchors_of(others[to])):
            broken.append(link)
    return broken


def test_links_lead_somewhere() -> None:
    """Links between pages, and to their sections, as `mkdocs build --strict` has them."""
    texts = {page: page.read_text(encoding="utf-8") for page in ALL_PAGES}
    texts[SITE / docs_hooks.COMMAND_LINE] = docs_hooks.command_line()
    found = {str(page.relative_to(ROOT)): broken_links(page, text, texts) for page, text in texts.items()}
    assert not {page: links for page, links in found.items() if links}


def test_paths_in_docstrings_become_links_of_the_site() -> None:
    class Pages(dict[str, types.SimpleNamespace]):
        get_file_from_path = dict.get

    disk = types.SimpleNamespace(name="disk", url_relative_to=lambda _page: "../../how-to/disk.html")
    html = "<p>too (docs/how-to/disk.md), " + "docs/" + 'no.md <a href="https://x/docs/how-to/disk.md">'
    made = docs_hooks.on_page_content(html, mock.Mock(), mock.Mock(), Pages({"how-to/disk.md": disk}))  # type: ignore[arg-type]
    assert made == html.replace("(docs/how-to/disk.md)", '(<a href="../../how-to/disk.html">disk</a>)')


def test_docstrings_cite_pages_and_sections_that_are_there() -> None:
    sections = set(re.findall(r"^## (\d+)\.", (ROOT / "docs" / "design.md").read_text(), re.MULTILINE))
    for folder in ("pyg_batchgnn", "csrc", "tests", "benchmark", "examples"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in {".py", ".h", ".cpp"}:
                text = path.read_text(encoding="utf-8")
                pages = re.findall(r"\bdocs/[\w/-]+\.md", text)
                cited = re.findall(r"\d+", " ".join(re.findall(r"design, sections? ([\d, and]+)", text)))
                assert not [page for page in pages if not (ROOT / page).is_file()], path
                assert set(cited) <= sections, path


#: Rooms whose names stand in the pages; `loader` and `data` are variables there.
ROOMS = "cache|comm|fetch|nn|ops|partition|planner|sample|store|train"
FOLDERS = "benchmark|build_tools|csrc|examples|kernels|pyg_batchgnn|tests"


def spans(pattern: str) -> list[tuple[str, str]]:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    return [
        (str(page.relative_to(ROOT)), found)
        for page in pages
        for found in re.findall(rf"`({pattern})(?=[`(])", page.read_text(encoding="utf-8"))
    ]


def is_importable(path: list[str]) -> bool:
    found: Any = importlib.import_module("pyg_batchgnn")
    for part in path:
        try:
            found = getattr(found, part)
        except AttributeError:
            try:
                found = importlib.import_module(f"{found.__name__}.{part}")
            except (AttributeError, ImportError):
                return False
    return True


def test_names_and_files_in_the_pages_exist() -> None:
    missing = []
    for page, name in spans(rf"(?:pyg_batchgnn\.|(?:{ROOMS})\.)[\w.]*\w"):
        path = name.removeprefix("pyg_batchgnn.").split(".")
        if not path[0].startswith("_") and not is_importable(path):
            missing.append((page, name))
    missing += [
        (page, name)
        for page, name in spans(rf"(?:{FOLDERS})/[\w./-]*|\w+/[\w/]*\w\.py")
        if not any((ROOT / folder / name).exists() for folder in (".", "csrc", "pyg_batchgnn"))
    ]
    assert not missing
