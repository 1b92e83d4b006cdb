"""The settings of loaders over ranks: a run in slices leaves out none of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from tests.loader import job_rank_links, job_rank_options
from tests.support.pairwise import product
from tests.support.rank_coverings import Covering, settings_of
from tests.support.rank_graphs import POLICIES, owners

Setting = dict[str, Any]


def of_nodes(ranks: int) -> list[Setting]:
    job = job_rank_options
    return settings_of(job.factors(ranks), job.allowed, job.IN_ONE_PROCESS, full=True)


def of_links(ranks: int) -> list[Setting]:
    return job_rank_links.settings(True, ranks)


@pytest.mark.parametrize("settings_over", [of_nodes, of_links])
def test_slices_have_every_setting_once(settings_over: Callable[[int], list[Setting]]) -> None:
    settings = settings_over(1)
    texts = [f"{piece}/7" for piece in range(1, 8)]
    slices = [Covering.parse(text, every=5).take(settings) for text in texts]
    assert [*itertools.chain.from_iterable(slices)] == settings
    assert Covering.parse("1", every=5).take(settings) == settings
    assert max(map(len, slices)) - min(map(len, slices)) <= 1
    assert Covering.parse("", every=5).take(settings) == settings[::5]


def test_settings_of_nodes_are_the_whole_product() -> None:
    job = job_rank_options
    names = [tuple(one.items()) for one in product(job.factors(2), job.allowed)]
    made = [tuple(one.items()) for one in of_nodes(2)]
    assert len(made) == len(names) and set(made) == set(names)


def test_settings_of_links_have_the_whole_product_of_the_main_factors() -> None:
    job = job_rank_links
    every = job.factors(2)
    names = (*job.MAIN, "schedule")
    wanted = product({name: every[name] for name in names}, job.allowed)
    made = of_links(2)
    assert all(map(job.allowed, made))
    assert [{name: one[name] for name in names} for one in made] == wanted


@pytest.mark.parametrize("text", ["0", "2", "0/3", "4/3", "1/0", "1/", "x", "-1/3"])
def test_what_is_neither_all_nor_a_slice_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a slice like 3/8, not"):
        Covering.parse(text, every=1)


def test_policies_do_not_differ_on_one_rank() -> None:
    for policy in POLICIES:
        assert not any(own.any() for own in owners((60, 40, 1, 7), policy, 1))
