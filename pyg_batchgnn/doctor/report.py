"""The findings as a table or as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from pyg_batchgnn.doctor.backends import check_backends
from pyg_batchgnn.doctor.finding import Finding, FindingState
from pyg_batchgnn.doctor.machine import check_machine
from pyg_batchgnn.doctor.packages import check_packages

_COLOURS = {FindingState.WORKS: "green", FindingState.ABSENT: "yellow", FindingState.BROKEN: "bold red"}


def examine() -> list[Finding]:
    """Checks packages, the machine and backends. Takes a few seconds."""
    return [*check_packages(), *check_machine(), *check_backends()]


def is_healthy(findings: Sequence[Finding]) -> bool:
    """Returns whether everything that is needed works."""
    return not any(finding.needed and finding.state is FindingState.BROKEN for finding in findings)


def as_table(findings: Sequence[Finding]) -> Table:
    """Returns a table with one line per finding."""
    table = Table(box=None, pad_edge=False)
    for column in ("", "", "seen here", "what to do"):
        table.add_column(column, overflow="fold")
    for finding in findings:
        state = f"[{_COLOURS[finding.state]}]{finding.state.value}[/]"
        table.add_row(finding.name, state, _plain(finding.seen), _plain(finding.remedy))
    return table


def as_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """Returns the values that ``--json`` prints."""
    return {"healthy": is_healthy(findings), "findings": [asdict(finding) for finding in findings]}


def _plain(text: str) -> str:
    """Returns the text with its brackets escaped, so that they are not markup."""
    return text.replace("[", "\\[")
