"""The rules of sparse optimizers, those of torch.optim on sparse gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

from pyg_batchgnn.ops import RowRule, RowStep


class UpdateRule(Protocol):
    """How an optimizer changes rows. Rows without a gradient never change."""

    #: The rule of the operator.
    kind: ClassVar[RowRule]

    @property
    def initial(self) -> tuple[float, ...]:
        """The initial values of the state kept for each weight, none for `SGD`."""

    def at(self, number: int) -> RowStep:
        """Returns the parameters of step ``number``, counted from 1 for all rows together."""


@dataclass(frozen=True)
class SGD:
    """The rule of ``torch.optim.SGD`` without momentum, with the learning rate ``lr``."""

    lr: float = 1e-3

    kind: ClassVar[RowRule] = RowRule.SGD

    def __post_init__(self) -> None:
        _check("lr", self.lr)

    @property
    def initial(self) -> tuple[float, ...]:
        return ()

    def at(self, number: int) -> RowStep:  # noqa: ARG002
        return RowStep(self.kind, self.lr)


@dataclass(frozen=True)
class Adagrad:
    """The rule of ``torch.optim.Adagrad``."""

    lr: float = 1e-2  # the learning rate
    lr_decay: float = 0.0  # step t has the learning rate lr / (1 + (t - 1) lr_decay)
    initial_accumulator_value: float = 0.0  # the initial sum of squares
    eps: float = 1e-10  # is added to the root of the sum of squares

    kind: ClassVar[RowRule] = RowRule.ADAGRAD

    def __post_init__(self) -> None:
        for name in ("lr", "lr_decay", "initial_accumulator_value", "eps"):
            _check(name, getattr(self, name))

    @property
    def initial(self) -> tuple[float, ...]:
        return (self.initial_accumulator_value,)

    def at(self, number: int) -> RowStep:
        return RowStep(self.kind, self.lr / (1 + (number - 1) * self.lr_decay), self.eps)


@dataclass(frozen=True)
class SparseAdam:
    """The rule of ``torch.optim.SparseAdam``: the averages of rows without a gradient stay."""

    lr: float = 1e-3  # the learning rate
    #: the shares of the old averages of gradients and of squares, in [0, 1)
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8  # is added to the root of the average of squares

    kind: ClassVar[RowRule] = RowRule.ADAM

    def __post_init__(self) -> None:
        _check("lr", self.lr)
        _check("eps", self.eps)
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas must be in [0, 1), got {self.betas}")

    @property
    def initial(self) -> tuple[float, ...]:
        return (0.0, 0.0)

    def at(self, number: int) -> RowStep:
        """Returns the parameters of a step; the rate corrects the averages' bias towards 0."""
        first, second = self.betas
        rate = self.lr * math.sqrt(1 - second**number) / (1 - first**number)
        return RowStep(self.kind, rate, self.eps, 1 - first, 1 - second)


def _check(name: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} must be finite and not negative, got {value}")
