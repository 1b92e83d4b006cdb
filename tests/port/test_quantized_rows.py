"""Accelerated models on batches whose features are rows of bytes."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from pyg_batchgnn import Minibatch
from pyg_batchgnn.ops import QuantizedTensor
from tests.support.ported_models import (
    FEATURES,
    MODELS,
    accelerated,
    assert_same,
    batch_of,
    minibatch_of,
    results,
)
from tests.support.quantized_tables import decoded_rows, drawn_table


@pytest.fixture(scope="module")
def table() -> QuantizedTensor:
    made = drawn_table(200, FEATURES, seed=0, extreme=False)
    made.decoding[0] /= 60
    return made


def batches(form: str, table: QuantizedTensor) -> tuple[Any, Any]:
    """Returns a batch of codes, and one of the decoded rows."""
    minibatch = minibatch_of(2, torch.float32)
    if form == "native":
        tables = table, table.dequantize()
        first, second = (Minibatch.in_place(minibatch, {"x": one}) for one in tables)
        return first, second
    found = [copy.copy(batch_of(2, torch.float32)) for _ in range(2)]
    found[0].x = table.with_codes(table.codes[minibatch.node])
    found[1].x = found[0].x.dequantize()
    return found[0], found[1]


@pytest.mark.parametrize("form", ["native", "PyG"])
@pytest.mark.parametrize("name", MODELS)
def test_models_read_codes_in_place(name: str, form: str, table: QuantizedTensor) -> None:
    model = accelerated(MODELS[name](2), torch.float32)
    coded, decoded = batches(form, table)
    model(coded)  # the first call records PyG's code, which reads numbers
    with decoded_rows() as rows:
        found = results(model, model(coded))
    assert rows == []
    assert_same(found, results(model, model(decoded)), 1e-4)
