"""Settings in words and on the command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.filesize import decimal

from pyg_batchgnn.loader import ScheduleName
from pyg_batchgnn.planner.setting import PlannerSetting

#: The least and the greatest number of digits of numbers that are compared.
_LEAST_DIGITS, _MOST_DIGITS = 2, 6


def apart(one: float, other: float, shown: Callable[[float, int], str]) -> tuple[str, str]:
    """Returns two numbers that are compared, with as many digits as tell them apart.

    Args:
        one, other: the numbers.
        shown: returns the text of a number with a number of digits.
    """
    for digits in range(_LEAST_DIGITS, _MOST_DIGITS + 1):
        texts = shown(one, digits), shown(other, digits)
        if texts[0] != texts[1]:
            return texts
    return shown(one, _LEAST_DIGITS), shown(other, _LEAST_DIGITS)


def describe(setting: PlannerSetting) -> str:
    """Describes a setting in words."""
    size = "all" if setting.macrobatch == 0 else str(setting.macrobatch)
    words = [f"B = {size}"]
    words += [f"F = {setting.fetch}"] if setting.fetch else []
    words += [setting.policy]
    words += ["hybrid"] if setting.hybrid else []
    words += ["aggregation cache"] if setting.aggregation else []
    words += [f"feature cache {decimal(setting.feature_cache)}"] if setting.feature_cache else []
    return ", ".join(words)


def describe_caches(setting: PlannerSetting) -> str:
    """Describes the caches of a setting for a column of a table."""
    words = ["agg"] if setting.aggregation else []
    words += [decimal(setting.feature_cache)] if setting.feature_cache else []
    return " ".join(words)


def options(setting: PlannerSetting, ranks: int, schedule: ScheduleName) -> Sequence[str]:
    """Returns the options of ``batchgnn train`` that choose a setting and a schedule on a number of
    ranks."""
    words = ["--macrobatch", str(setting.macrobatch or "all"), "--fetch", str(setting.fetch or "all")]
    words += ["--cache", "aggregation"] if setting.aggregation else []
    if ranks == 1:
        return words
    words += ["--partition", setting.policy, "--schedule", schedule.value]
    words += ["--hybrid"] if setting.hybrid else []
    words += ["--feature-cache", str(setting.feature_cache)] if setting.feature_cache else []
    return words
