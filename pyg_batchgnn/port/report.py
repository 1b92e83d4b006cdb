"""The report of `accelerate`: the modules that are native now, and how ``forward`` is computed."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import torch

from pyg_batchgnn.port import rules
from pyg_batchgnn.port.recording import Call, ModuleCall, Recording, Way


@dataclass(frozen=True)
class Replaced:
    """A module that is native now."""

    name: str  # its path in the model; empty for the model itself
    kind: str  # the name of PyG's or torch's class


@dataclass(frozen=True)
class NotReplaced(Replaced):
    """A module that PyG or torch still computes."""

    why: str


@dataclass(frozen=True)
class CallReport:
    """A call in a model's ``forward``, and for which rows it is computed."""

    place: str  # the file and line of the user's code
    what: str  # the module or the function
    how: str  # "native", "trimmed" or "row by row", for the rows that are asked for; or "all rows"
    why: str = ""  # the reason for all rows, and what to write instead


@dataclass(frozen=True)
class ForwardReport:
    """How a model's ``forward`` is computed, for one pattern of arguments."""

    name: str  # the class of the model
    training: bool  # whether it is in training mode
    calls: tuple[CallReport, ...] = ()  # those that read rows of nodes; none without a captured graph
    why: str = ""  # the reason if ``forward`` was not captured and is called as it is

    def __str__(self) -> str:
        mode = "training" if self.training else "evaluation"
        if self.why:
            return f"{self.name}.forward in {mode} is called plainly, for all rows, because {self.why}"
        lines = [f"{self.name}.forward in {mode}, captured:"]
        rows = [(one.place, one.what, f"{one.how}: {one.why}" if one.why else one.how) for one in self.calls]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)] if rows else []
        lines += ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        return "\n".join(lines)


@dataclass(frozen=True)
class AccelerationReport:
    """The report of `accelerate`: the modules that were replaced, and those left, with why."""

    replaced: list[Replaced] = field(default_factory=list)
    left: list[NotReplaced] = field(default_factory=list)
    forward: ForwardReport | None = None  # how ``forward`` is computed; None before the first call

    def __str__(self) -> str:
        if self.forward is not None:
            return str(self.forward)
        lines = [f"{len(self.replaced)} modules replaced, {len(self.left)} left"]
        lines += [f"  replaced {_named(one.name, one.kind)}" for one in self.replaced]
        lines += [f"  left {_named(one.name, one.kind)}: {one.why}" for one in self.left]
        return "\n".join(lines)


def _named(name: str, kind: str) -> str:
    return f"{name or 'the model'} ({kind})"


_log = logging.getLogger(__name__)


def log_report(report: AccelerationReport) -> None:
    """Logs a report at level INFO, to the logger "pyg_batchgnn.port.report"."""
    _log.info("%s", report)


#: What to write instead of what computes all rows.
_INSTEAD = {
    **dict.fromkeys(("softmax", "log_softmax"), "write dim=-1 if the columns are meant"),
    **dict.fromkeys(
        ("GraphNorm", "InstanceNorm", "PairNorm", "LayerNorm"), "LayerNorm(mode='node') is by row"
    ),
    **dict.fromkeys(("sum", "mean", "max", "min", "amax", "norm", "std", "var"), "write dim=-1 for each row"),
}


def forward_report(recording: Recording, model: torch.nn.Module) -> ForwardReport:
    calls = (_call_report(one, recording, model) for one in recording.calls)
    return ForwardReport(type(model).__name__, model.training, tuple(one for one in calls if one))


def _call_report(call: Call, recording: Recording, model: torch.nn.Module) -> CallReport | None:
    if recording.are_fixed(call.results) or call.target is torch.Tensor.size:
        return None
    what = kind = getattr(call.target, "__name__", str(call.target))
    if isinstance(call.target, ModuleCall):
        kind = rules.kind_of(model.get_submodule(call.target.path)).__name__
        what = _named(call.target.path, kind)
    if call.message_passing is not None:
        how = "native" if call.message_passing is Way.NATIVE else "trimmed"
        return CallReport(call.where, what, how)
    if call.by_row or call.of_ends:
        return CallReport(call.where, what, "row by row" if call.by_row else "edge by edge")
    if not call.note:
        return None  # it reads no rows of nodes, or follows something that computed all of them
    return CallReport(call.where, what, "all rows", "; ".join(filter(None, (call.note, _INSTEAD.get(kind)))))
