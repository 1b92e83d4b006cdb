"""The settings that are tried, and the best of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyg_batchgnn.cache import Aggregation
from pyg_batchgnn.planner.machine import PlannerMachine, PlannerNetwork
from pyg_batchgnn.planner.model import predict
from pyg_batchgnn.planner.setting import PlannerSetting, Prediction
from pyg_batchgnn.planner.workload import PlannerProbe, Workload

#: The share by which a more complicated setting must be faster.
_WORTH = 0.03


@dataclass(frozen=True)
class Choices:
    """The choices that are tried.

    Attributes:
        macrobatches: B, 0 for all minibatches of an epoch.
        fetches: F as a share of B.
        hybrid: whether every host has the whole topology.
        aggregation: the aggregation cache, None for no cache. It is the one of the model that is
            trained: mean for SAGE, symmetric for GCN, sum for GIN.
        feature_caches: bytes of the feature cache.
    """

    macrobatches: Sequence[int] = (1, 8, 32, 128, 0)
    fetches: Sequence[float] = (1.0, 0.25)
    hybrid: Sequence[bool] = (False, True)
    aggregation: Sequence[Aggregation | None] = (None, Aggregation.MEAN)
    feature_caches: Sequence[int] = (0,)

    def settings(self, policy: str, minibatches: int) -> list[PlannerSetting]:
        """Returns all combinations that differ if an epoch has ``minibatches`` minibatches."""
        found: dict[PlannerSetting, None] = {}
        for size, share, hybrid, aggregation, cache in itertools.product(
            self.macrobatches, self.fetches, self.hybrid, self.aggregation, self.feature_caches
        ):
            macrobatch = 0 if size >= minibatches else size
            fetch = 0 if share >= 1 else max(1, round(share * (macrobatch or minibatches)))
            fetch = 0 if fetch >= (macrobatch or minibatches) else fetch
            setting = PlannerSetting(macrobatch, fetch, policy, hybrid, aggregation, cache)
            found[setting] = None
        return list(found)


def search(
    workload: Workload,
    probes: Mapping[str, PlannerProbe],
    machine: PlannerMachine,
    network: PlannerNetwork,
    choices: Choices,
) -> list[Prediction]:
    """Predicts every choice for every policy that was probed.

    Returns:
        The predictions, the fastest first. Those that do not fit in memory come last.
    """
    found = [
        predict(workload, probe, machine, network, setting)
        for policy, probe in probes.items()
        for setting in choices.settings(policy, workload.minibatches(probe.seeds))
        if setting.aggregation is None or len(workload.fanouts) > 1  # a hop must be left to sample
    ]
    return sorted(found, key=lambda one: (not one.fits, one.epoch))


def best(predictions: Iterable[Prediction]) -> Prediction | None:
    """Returns the setting to recommend, or None if none fits in memory.

    It is the fastest that fits in memory and computes the same as training without caches. Among
    settings that are nearly as fast, the simplest is preferred.
    """
    able = [one for one in predictions if one.fits and one.setting.aggregation is None]
    if not able:
        return None
    limit = min(one.epoch for one in able) * (1 + _WORTH)
    return min((one for one in able if one.epoch <= limit), key=_complexity)


def _complexity(prediction: Prediction) -> tuple[bool, bool, float, float]:
    setting = prediction.setting
    return setting.hybrid, setting.feature_cache > 0, prediction.epoch, prediction.memory
