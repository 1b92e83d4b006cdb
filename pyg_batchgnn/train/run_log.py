"""A run's figures in TensorBoard, MLflow or Weights & Biases, while it goes on."""

from __future__ import annotations

import importlib.util
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from pyg_batchgnn.train.config.choices import LogKind
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.run_folder import EpochRecord, write_json

#: The module that each kind needs, and the command that installs it.
_NEEDS = {
    LogKind.TENSORBOARD: ("tensorboard", "pip install tensorboard"),
    LogKind.MLFLOW: ("mlflow", "pip install mlflow"),
    LogKind.WANDB: ("wandb", "pip install wandb"),
}


#: Two functions: one takes figures by name, and a step; one ends the log.
_Sink: TypeAlias = tuple[Callable[[Mapping[str, float], int], None], Callable[[], None]]


class RunLog:
    """Sends the figures of a run to TensorBoard, MLflow or Weights & Biases. Scripts may use it
    too.

    ``with RunLog("tensorboard", "runs/mine") as log: log.write({"loss": 0.3}, step=1)``

    ``kind``: "tensorboard", "mlflow" or "wandb"; None writes nothing. ``folder``: the run folder.
    TensorBoard's files lie in its folder ``tensorboard``. MLflow and Weights & Biases write where
    their own variables say (``MLFLOW_TRACKING_URI``, ``WANDB_MODE``, ...); ``log.json`` in the run
    folder keeps their run id. ``config``: the configuration, which is logged too. ``resumed``:
    steps kept of a continued run, which goes on under the same id; 0 for a new run. Raises
    `TrainError` if the package is not installed or does not start.
    """

    def __init__(
        self,
        kind: LogKind | str | None,
        folder: str | Path,
        config: Mapping[str, Any] | None = None,
        resumed: int = 0,
    ) -> None:
        self._sink: _Sink | None = None
        if kind is None:
            return
        kind = LogKind(kind)
        check_log(kind)
        try:
            self._sink = _SINKS[kind](Path(folder), config or {}, resumed)
        except Exception as error:  # of whatever kind the program has
            raise TrainError(f"--log {kind.value}: it did not start: {error}") from error

    def write(self, figures: Mapping[str, float], step: int) -> None:
        """Writes figures by their names, such as "train/loss". ``step``: counted from 1. An error
        of the program, as without its server, becomes a `UserWarning`, and ends the log."""
        if self._sink is not None:
            try:
                self._sink[0](figures, step)
            except Exception as error:  # of whatever kind the program has
                self._sink = None
                warnings.warn(f"the log is lost from step {step} on: {error}", UserWarning, stacklevel=2)

    def write_epoch(self, record: EpochRecord) -> None:
        """Writes the figures of an epoch, as "train/loss" and "seconds/forward"."""
        parts = {
            "train": record.train,
            "val": record.val or {},
            "seconds": record.phases,
            "disk": record.disk,
        }
        figures = {f"{part}/{name}": value for part, of in parts.items() for name, value in of.items()}
        self.write({**figures, "seconds/epoch": record.seconds}, record.epoch)

    def close(self) -> None:
        """Ends the log; later figures are ignored. An error of the program is a `UserWarning`."""
        sink, self._sink = self._sink, None
        try:
            if sink is not None:
                sink[1]()
        except Exception as error:  # as of `write`: it must not cost the result of a run
            warnings.warn(f"the log did not end well: {error}", UserWarning, stacklevel=2)

    def __enter__(self) -> RunLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_log(kind: LogKind | None) -> None:
    """Raises `TrainError` if the package that a log needs is not installed."""
    if kind is None:
        return
    module, remedy = _NEEDS[kind]
    if importlib.util.find_spec(module) is None:
        raise TrainError(f"--log {kind.value} needs the package {module}, which is not installed; {remedy}")


def _tensorboard(folder: Path, config: Mapping[str, Any], resumed: int) -> _Sink:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder / "tensorboard"), purge_step=resumed + 1 if resumed else None)
    if config and not resumed:
        writer.add_text("config", f"```json\n{json.dumps(config, indent=2)}\n```")

    def write(figures: Mapping[str, float], step: int) -> None:
        for name, value in figures.items():
            writer.add_scalar(name, value, step)
        writer.flush()

    return write, writer.close


def _mlflow(folder: Path, config: Mapping[str, Any], resumed: int) -> _Sink:
    import mlflow

    known = _read_number(folder, "mlflow") if resumed else None
    run = mlflow.start_run(run_id=known, run_name=None if known else folder.name)
    if known is None:
        mlflow.log_params(dict(_flat(config)))
        _keep_number(folder, "mlflow", run.info.run_id)
    return lambda figures, step: mlflow.log_metrics(dict(figures), step=step), mlflow.end_run


def _wandb(folder: Path, config: Mapping[str, Any], resumed: int) -> _Sink:
    import wandb

    known = _read_number(folder, "wandb") if resumed else None
    run = wandb.init(
        id=known, resume="must" if known else None, name=folder.name, dir=str(folder), config=dict(config)
    )
    if known is None:
        _keep_number(folder, "wandb", run.id)
    return lambda figures, step: run.log(dict(figures), step=step), run.finish


_SINKS: Mapping[LogKind, Callable[[Path, Mapping[str, Any], int], _Sink]] = {
    LogKind.TENSORBOARD: _tensorboard,
    LogKind.MLFLOW: _mlflow,
    LogKind.WANDB: _wandb,
}


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _read_number(folder: Path, kind: str) -> str | None:
    try:
        number = json.loads((folder / "log.json").read_text(encoding="utf-8"))[kind]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return number if isinstance(number, str) else None


def _keep_number(folder: Path, kind: str, number: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "log.json", {kind: number})
