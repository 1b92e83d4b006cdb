"""Own models of any shape, random ones among them, compute the rows of the plain model."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, note

from tests.support.random_models import Plan, RandomModel, plans
from tests.support.recorded_models import assert_close, batches, cut, found_in, gradients, pair
from tests.support.tiers import examples

FANOUTS = ((4, 3), (3,), (3, 2, 2), (2, 2, 2, 2))


def values_of(plan: Plan, batch: Any) -> dict[str, Any]:
    return {name: batch[name] for name in ("edge_weight", "edge_attr")} if plan.values else {}


@examples()
@given(plans(), st.sampled_from(FANOUTS), st.booleans(), st.integers(0, 2**31))
def test_random_models(plan: Plan, fanouts: tuple[int, ...], training: bool, seed: int) -> None:
    """All outputs, and gradients of them, for seeds and for all nodes."""
    torch.manual_seed(seed)
    ours, plain = pair(RandomModel(plan))
    for model in (ours, plain):
        model.train(training and not plan.has_statistics)
    given_now, native = batches(fanouts)[::2], batches(fanouts, export="native")[::2]
    for batch, other in zip(given_now, native, strict=True):
        values = values_of(plan, batch)
        every = plain(batch.x, batch.edge_index, **values)
        wanted = cut(every, batch.batch_size)
        grads = gradients(plain, wanted)
        for one in (batch, other):
            found = ours(one, **values)
            note(found_in(ours).reasons)
            assert_close(found, wanted)
            assert_close(gradients(ours, found), grads)
        every = plain(batch.x, batch.edge_index, **values)
        found = ours(batch.x, batch.edge_index, **values)
        assert_close(found, every)
        assert_close(gradients(ours, found), gradients(plain, every))
    assert found_in(ours).reasons == []
    assert bool(found_in(ours).notes) <= plan.looks_at_all_rows
