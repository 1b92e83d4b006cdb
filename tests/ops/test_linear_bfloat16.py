"""Dense layers in bfloat16: sums in float32, rounded once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given

from pyg_batchgnn import ops
from tests.support.accuracy import distance
from tests.support.linear_cases import SHAPES, TOLERANCE, gradients, make_case
from tests.support.programs import run_text
from tests.support.tiers import each, examples, in_all


@pytest.mark.parametrize("master", [torch.float32, torch.bfloat16])
@given(shape=SHAPES)
@examples(25)
def test_bfloat16(master: torch.dtype, shape: dict[str, Any]) -> None:
    case = make_case(dtype=master, **shape)
    y = case.run(out_dtype=torch.bfloat16)
    rounded = make_case(dtype=torch.bfloat16, **shape)
    wanted = rounded.reference()
    # The reference rounds the bias, which the layer adds as it is before it rounds the sum.
    least = 1e-30 if case.bias is None else float(case.bias.detach().abs().max())
    assert y.dtype is torch.bfloat16 and distance(y, wanted, least) < 2**-7
    expected = gradients(wanted.to(torch.bfloat16), rounded.leaves())
    for found, one, leaf in zip(gradients(y, case.leaves()), expected, case.leaves(), strict=True):
        assert found.dtype is leaf.dtype and distance(found, one) < TOLERANCE[torch.bfloat16]


LEVELS = """
import sys

import torch
from pyg_batchgnn import ops
from tests.support.accuracy import distance
from tests.support.linear_cases import gradients, make_case

print(ops.bfloat16_level(), *ops.bfloat16_levels())
torch.manual_seed(0)
sums = []
for level in ops.bfloat16_levels():
    assert ops.set_bfloat16_level(level) in ops.bfloat16_levels() and ops.bfloat16_level() == level
    for rows, outputs, columns, groups in ((1, 1, (1,), 1), (200, 47, (33, 100), 2), (3000, 130, (256,), 1)):
        case = make_case(rows, outputs, columns, groups)
        y = case.run(out_dtype=torch.bfloat16, relu=True, drop=0.5, key=3)
        grads = gradients(y, case.leaves())
        for threads in (2, 5):
            with ops.thread_limit(threads):
                again = case.run(out_dtype=torch.bfloat16, relu=True, drop=0.5, key=3)
                assert torch.equal(again, y)
                assert all(map(torch.equal, gradients(again, case.leaves()), grads))
        rounded = make_case(rows, outputs, columns, groups, dtype=torch.bfloat16)
        passed = y != 0
        wanted = torch.where(passed, 2 * rounded.reference(), 0.0)
        assert distance(y, wanted, 1.0) < 2**-7
        for one, two in zip(grads, gradients(wanted.to(torch.bfloat16), rounded.leaves()), strict=True):
            assert distance(one, two, 1.0) < 1.5e-2
    sums.append(sum(one.view(torch.int32).long().sum().item() for one in grads))
print(*sums)
"""


@each
@pytest.mark.parametrize("wanted", ["", "widened", *in_all("pairs", "tiles")])
@pytest.mark.parametrize("unit", ["", "emulated"])
def test_every_level_of_products(wanted: str, unit: str) -> None:
    """Intel's matrix unit may be emulated; its bits are not those of pairs."""
    variables = {"PYG_BATCHGNN_BFLOAT16": wanted, "PYG_BATCHGNN_TILES": unit}
    ran = run_text(LEVELS, OMP_NUM_THREADS="2", **variables)
    assert ran.returncode == 0, ran.stderr
    (used, *present), sums = (line.split() for line in ran.stdout.splitlines())
    if not unit:
        assert present == list(ops.bfloat16_levels())
    assert present == ["widened", "pairs", "tiles"][: len(present)] and len(set(sums)) == len(present)
    if "pairs" in present:
        assert not unit or "tiles" in present
    is_intel = "GenuineIntel" in Path("/proc/cpuinfo").read_text()
    has_unit = not unit and "tiles" in present
    asked = wanted or ("tiles" if has_unit else "widened" if is_intel else "pairs")
    assert used == (asked if asked in present else present[-1])


def test_levels_that_do_not_exist() -> None:
    with pytest.raises(ValueError, match="bfloat16 products are 'widened'"):
        ops.set_bfloat16_level("amx")  # type: ignore[arg-type]
    for level in (-1, len(ops.bfloat16_levels()), 7):
        with pytest.raises(ValueError, match=rf"this processor has the levels 0 to \d .* got {level}"):
            ops.library.kernels.set_bfloat16_level(level)


@pytest.mark.parametrize("columns", [(100, 100), (256, 33), (1,)])
@pytest.mark.parametrize(("relu", "drop"), [(True, 0.5), (True, 0.3), (False, 0.0)])
@pytest.mark.parametrize(("rows", "outputs", "groups"), [(1, 1, 1), (65, 47, 2), (1300, 130, 1)])
def test_gradients_in_bfloat16_are_float32_sums(
    rows: int, outputs: int, groups: int, relu: bool, drop: float, columns: tuple[int, ...]
) -> None:
    """Between rounded operands nothing is rounded to bfloat16 before the sums are complete."""
    case = make_case(rows, outputs, columns, groups, table_dtype=torch.float16)
    y = case.run(out_dtype=torch.bfloat16, relu=relu, drop=drop, key=3)
    rounded = make_case(rows, outputs, columns, groups, table_dtype=torch.float16)
    with torch.no_grad():
        for leaf in (*rounded.leaves(), *(x.table for x in rounded.inputs[1:])):
            leaf.copy_(leaf.bfloat16())
    scale = ops.dropout_scale(drop) if drop else 1.0
    passed = (y != 0).double() * scale if relu or drop else torch.ones(y.shape, dtype=torch.float64)
    found = gradients(y, case.leaves())
    grad = 1 + torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = torch.autograd.grad(rounded.reference(), rounded.leaves(), grad.bfloat16().double() * passed)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype is torch.float32 and distance(one, other) < 4e-6


@pytest.mark.parametrize("update", [{}, {"relu": True}, {"relu": True, "drop": 0.5}, {"drop": 0.3}])
@pytest.mark.parametrize("outputs", [47, 64 + 47])
@pytest.mark.parametrize("rows", [1, 7, 20_000])
def test_whole_words_of_bfloat16_end_as_parts_of_words_do(
    rows: int, outputs: int, update: dict[str, Any]
) -> None:
    """Loops of their own round, mask and write 64 columns at a time."""
    case = make_case(rows, 256, (9, 4), dtype=torch.bfloat16)
    parts = [weight[:outputs] for weight in case.weights], case.bias[:outputs]
    whole = case.run(key=3, **update)
    part = ops.linear(case.inputs, *parts, num_rows=rows, out_dtype=torch.bfloat16, key=3, **update)
    assert torch.equal(whole[:, :outputs], part)
    grad = torch.randn(whole.shape).bfloat16()
    grad[:, outputs:] = 0
    found = torch.autograd.grad(whole, case.leaves(), grad)
    expected = torch.autograd.grad(part, case.leaves(), grad[:, :outputs].contiguous())
    for one, other in zip(found, expected, strict=True):
        assert distance(one, other) < 2**-8


@pytest.mark.parametrize("columns", [7, 8, 9, 15, 16, 17, 24, 25, 200, 232, 248, 256])
def test_bfloat16_gradients_of_columns_do_not_depend_on_those_beside_them(columns: int) -> None:
    """Whole vectors and halves of them are summed by loops of their own, in the same order."""
    case = make_case(200, 20, (256,), dtype=torch.bfloat16)
    first = case.inputs[0].detach()[:, :columns].requires_grad_()
    weight = case.weights[0].detach()[:, :columns].requires_grad_()
    y = ops.linear([first], [weight], num_rows=200, out_dtype=torch.bfloat16)
    grad = torch.randn(200, 20).bfloat16() * (torch.rand(200, 20) < 0.25)
    grad[:, 3] = 0
    few = torch.autograd.grad(y, [first, weight], grad)
    all_of = torch.autograd.grad(case.run(), [case.inputs[0], case.weights[0]], grad)
    for one, other in zip(few, all_of, strict=True):
        assert torch.equal(one, other[:, :columns])


def test_bfloat16_rounds_to_nearest_even() -> None:
    values = torch.randn(1000, 1).mul(torch.logspace(-30, 30, 1000)[:, None])
    halfway = (torch.randint(1 << 15, (500, 1), dtype=torch.int32) * 65536 + 32768).view(torch.float32)
    special = torch.tensor([[float("inf")], [float("-inf")], [float("nan")], [0.0], [3.4e38]])
    x = torch.cat([values, halfway, special])
    y = ops.linear([torch.zeros(len(x), 1)], [torch.zeros(1, 1)], torch.zeros(1), out_dtype=torch.bfloat16)
    assert torch.equal(y, torch.zeros_like(y))
    for value in (*x[::97, 0], *special[:, 0]):
        y = ops.linear([torch.zeros(1, 1)], [torch.zeros(1, 1)], value[None], out_dtype=torch.bfloat16)
        assert torch.equal(y[0].nan_to_num(7.0), value[None].to(torch.bfloat16).nan_to_num(7.0))
