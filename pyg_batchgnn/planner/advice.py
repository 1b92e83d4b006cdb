"""Sentences that say whether the aggregation cache and historical embeddings pay off."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from rich.filesize import decimal

from pyg_batchgnn.planner.historical import HistoricalPrediction
from pyg_batchgnn.planner.setting import Prediction
from pyg_batchgnn.planner.wording import apart

#: The factor by which an epoch must change for advice in favour or against.
_WORTH = 1.05


def with_aggregates(predictions: Sequence[Prediction], plain: Prediction) -> Prediction | None:
    """Returns the same setting with an aggregation cache, or None if it was not tried."""
    for one in predictions:
        kept = one.setting.aggregation is not None
        if kept and dataclasses.replace(one.setting, aggregation=None) == plain.setting:
            return one
    return None


def aggregation_advice(predictions: Sequence[Prediction], chosen: Prediction) -> list[str]:
    """Returns the verdict on the cache for the recommended setting.

    A second verdict is for the same setting with the smallest macrobatch, where the cache saves the
    most (appendix C).
    """
    setting = chosen.setting
    alike = [one for one in predictions if _but_for_sizes(one) == _but_for_sizes(chosen)]
    least = min(alike, key=lambda one: (one.setting.macrobatch or one.minibatches, one.setting.fetch))
    plain = [chosen] if least.setting == setting else [chosen, least]
    pairs = [(one, with_aggregates(predictions, one)) for one in plain]
    return [_verdict(one, kept) for one, kept in pairs if kept is not None]


def historical_advice(by_policy: Mapping[str, HistoricalPrediction], chosen: Prediction) -> list[str]:
    """Returns the verdict on historical embeddings beside the recommended setting.

    Only the fastest policy is compared. They change what is trained, so they must be faster by far.
    """
    if not by_policy:
        return []
    policy = min(by_policy, key=lambda name: by_policy[name].epoch)
    found = by_policy[policy]
    gain = chosen.epoch / max(found.epoch, 1e-9)
    words = "Historical embeddings are not worth it"
    if gain > _WORTH:
        words = "Historical embeddings, which are not exact, are worth a try"
    each = found.pushed_bytes / max(found.minibatches, 1)
    return [
        f"{words} (--remote historical --partition {policy}): an epoch takes "
        f"{_instead(found.epoch, chosen.epoch, _seconds)}; a rank pushes {decimal(int(each))} per step in "
        f"one round, {decimal(int(found.pushed_bytes))} per epoch, of which training hides "
        f"{found.hidden_seconds:.2f} s and waits for {found.seconds['push']:.2f} s; it fetches features of "
        f"{decimal(int(found.feature_bytes))} once."
    ]


def _but_for_sizes(prediction: Prediction) -> object:
    return dataclasses.replace(prediction.setting, macrobatch=0, fetch=0)


def _verdict(plain: Prediction, kept: Prediction) -> str:
    """Returns whether a setting is better with the cache, with bytes and seconds.

    The verdict is against the cache if it makes ranks fetch more and wait longer, even if shorter
    training steps outweigh that. The purpose of the cache is to save fetching, and it changes what
    is trained.
    """
    where = f"with B = {plain.setting.macrobatch or 'all'}"
    gain = plain.epoch / max(kept.epoch, 1e-9)
    more = kept.feature_bytes > _WORTH * plain.feature_bytes and kept.preparation > plain.preparation
    if more or gain < 1 / _WORTH:
        words = f"Advised against: the aggregation cache {where}"
    elif gain > _WORTH:
        words = f"The aggregation cache, which changes what the first layer computes, is worth a try {where}"
    else:
        words = f"The aggregation cache is not worth it {where}"
    return f"{words}: {_compared(plain, kept)}."


def _compared(plain: Prediction, kept: Prediction) -> str:
    numbers = "a rank receives " + _instead(_received(kept), _received(plain), _decimal)
    if kept.feature_bytes > plain.feature_bytes:
        share = kept.rows / max(plain.rows, 1.0)
        numbers += f", because rows are twice as wide and {share:.1%} as many are still needed"
    numbers += f"; preparing takes {_instead(kept.preparation, plain.preparation, _seconds)}"
    numbers += f", an epoch {_instead(kept.epoch, plain.epoch, _seconds)}"
    if not kept.fits:
        numbers += f"; it needs {decimal(int(kept.memory))} per rank, which is not available"
    return numbers


def _received(prediction: Prediction) -> float:
    return prediction.topology_bytes + prediction.feature_bytes


def _instead(one: float, other: float, shown: Callable[[float, int], str]) -> str:
    return " instead of ".join(apart(one, other, shown))


def _decimal(size: float, digits: int) -> str:
    return decimal(int(size), precision=digits - 1)


def _seconds(number: float, digits: int) -> str:
    return f"{number:.{digits}f} s"
