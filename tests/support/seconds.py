"""The processor time of tests, by folder, beside a budget for each."""

from __future__ import annotations

import json
import os
import resource
from collections import defaultdict
from collections.abc import Generator, Mapping
from pathlib import Path

import pytest

FILE = Path(__file__).parents[1] / "seconds.json"
RECORD = "PYG_BATCHGNN_TEST_RECORD"
_TICKS = os.sysconf("SC_CLK_TCK")
#: What a worker of pytest-xdist sends: the seconds of each test function.
_KEY = "processor seconds"


def used() -> float:
    """Returns the processor seconds of this process and all that it started."""
    own = sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )
    return own + sum(_of_child(pid) for pid in _children())


def by_folder(seconds: Mapping[str, float]) -> dict[str, float]:
    """Returns the seconds of each folder of tests, and of the files outside folders together."""
    found: dict[str, float] = defaultdict(float)
    for name, value in seconds.items():
        parts = name.partition("::")[0].split("/")
        found[parts[1] if len(parts) > 2 else "."] += value
    return dict(found)


class Seconds:
    """The plugin that measures tests, and prints a table of folders at the end of a run."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)
        self._from_workers = False

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        before = used()
        ran = yield
        self._seconds[item.nodeid.partition("[")[0]] += used() - before
        return ran

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Takes what a worker of pytest-xdist measured."""
        self._from_workers = True
        for name, value in getattr(node, "workeroutput", {}).get(_KEY, {}).items():
            self._seconds[name] += value

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._seconds and not self._from_workers:
            self._seconds["tests/collection/"] = used() - sum(self._seconds.values())
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput[_KEY] = dict(self._seconds)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Prints the seconds of each folder and the longest tests, and records them where asked."""
        folders = by_folder(self._seconds)
        known = json.loads(FILE.read_text()) if FILE.exists() else {}
        terminalreporter.section("processor seconds (budget)")
        for folder, value in sorted(folders.items()):
            budget = known.get(folder, {}).get("budget", 0)
            over = "  over its budget" if value > budget > 0 else ""
            terminalreporter.write_line(f"{folder:12} {value:6.0f} ({budget}){over}")
        terminalreporter.write_line(f"{'all':12} {sum(folders.values()):6.0f}")
        longest = sorted(self._seconds.items(), key=lambda one: -one[1])[:10]
        for name, value in longest:
            terminalreporter.write_line(f"{value:7.1f} {name}")
        if os.environ.get(RECORD):
            for folder, value in folders.items():
                known.setdefault(folder, {"budget": 0})["seconds"] = round(value)
            FILE.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")


def _children() -> list[int]:
    found = []
    for task in Path("/proc/self/task").iterdir():
        try:
            found += [int(word) for word in (task / "children").read_text().split()]
        except OSError:  # it has ended, or the kernel does not tell
            continue
    return found


def _of_child(pid: int) -> float:
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, words[11:15])) / _TICKS
