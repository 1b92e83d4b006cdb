"""The example of learned embeddings runs over ranks and learns."""

from __future__ import annotations

import re

from tests.support.ranks import run_ranks


def test_it_learns_over_ranks() -> None:
    first, second = run_ranks("tests.embed.job_example:run", 2, timeout=120.0)
    form = r"epoch \d  loss (\d\.\d{4})  test accuracy (\d\.\d{4})\n"
    losses, accuracies = zip(*re.findall(form, first.value), strict=True)
    assert len(losses) == 4 and float(losses[-1]) < 0.7 * float(losses[0])
    assert float(accuracies[-1]) > 0.6 and second.value == ""
