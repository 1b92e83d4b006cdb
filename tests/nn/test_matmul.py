"""The choice of the matrix product: both give the same, and the choice is as documented."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from pyg_batchgnn.nn import ProductChoice, current_products, modules, probe_products, use_products
from tests.support.accuracy import distance
from tests.support.linear_cases import gradients, make_case


@pytest.fixture(autouse=True)
def native() -> Iterator[None]:
    with use_products("native"):
        yield


@pytest.mark.parametrize("update", [{}, {"relu": True}, {"drop": 0.4, "key": 7}, {"relu": True, "drop": 0.5}])
@pytest.mark.parametrize("shape", [(0, 5, (3,)), (1, 1, (1,)), (100, 47, (33, 16)), (70, 6, (0, 4))])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_both_give_the_same(
    dtype: torch.dtype, shape: Any, update: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["pyg_batchgnn.ops.linear"], "BLOCK_ROWS", 32)
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 3e-2}[dtype]
    rows, outputs, columns = shape
    for groups in (1, 3):
        case = make_case(rows, outputs, columns, groups, dtype)
        y = case.run(**update)
        with use_products("torch"):
            other = case.run(**update)
        assert other.dtype is dtype and distance(other, y) < tolerance
        if dtype is torch.bfloat16 and update.get("relu"):
            continue  # rounded once more, an element may fall on the other side of zero
        for found, wanted in zip(gradients(other, case.leaves()), gradients(y, case.leaves()), strict=True):
            assert found.dtype is wanted.dtype and distance(found, wanted) < tolerance


def test_torchs_products_keep_out_of_autocast() -> None:
    case = make_case(20, 5, (4,))
    with torch.autocast("cpu", torch.bfloat16), use_products("torch"):
        assert case.run(out_dtype=torch.float32).dtype is torch.float32
        assert case.run().dtype is torch.bfloat16


def test_a_choice_ends_with_its_block_or_stays() -> None:
    with use_products("torch"):
        assert current_products() == "torch"
        with pytest.raises(ZeroDivisionError), use_products("native"):
            _ = 1 / 0
        assert current_products() == "torch"
    assert current_products() == "native"
    use_products(ProductChoice("torch", 1, 2, 1, True))
    assert current_products() == "torch"


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match="'native' or 'torch', not 'mkl'"):
        use_products("mkl")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no shape"):
        probe_products([])


@pytest.mark.parametrize(
    ("rates", "same", "name"),
    [
        ({"native": 100, "torch": 105}, True, "native"),
        ({"native": 100, "torch": 120}, True, "torch"),
        ({"native": 100, "torch": 120}, False, "native"),
        ({"native": 100, "torch": 90}, True, "native"),
    ],
)
def test_torch_is_chosen_where_clearly_faster_and_as_repeatable(
    rates: dict[str, float], same: bool, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modules, "_rate", lambda _cases, who: rates[who])
    monkeypatch.setattr(modules, "_same_bits", lambda *_: same)
    choice = probe_products([(100, 8, 4)], threads=2)
    assert choice.name == name and current_products() == "native"
    assert f"matrix products: {name}, {rates[name]:.0f} GF/s" in str(choice)
    assert ("bits depend" in str(choice)) == (not same)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_probe_measures_and_leaves_everything_as_it_was(dtype: torch.dtype) -> None:
    torch.set_num_threads(2)
    state = torch.get_rng_state()
    choice = probe_products([(2000, 100, 64), (10, 64, 7)], dtype, threads=3)
    assert choice.native_rate > 0 and choice.torch_rate > 0 and choice.threads == 3
    assert torch.get_num_threads() == 2 and torch.equal(torch.get_rng_state(), state)
    assert current_products() == "native"
