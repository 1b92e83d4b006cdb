"""Decoders, beside plain formulas."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from pyg_batchgnn.nn import DotProductDecoder, MLPDecoder, in_batch_loss


@pytest.mark.parametrize("shapes", [((5, 8), (5, 8)), ((5, 1, 8), (5, 3, 8)), ((0, 8), (0, 8))])
def test_scores_and_gradients(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    source, target = (torch.randn(shape, requires_grad=True) for shape in shapes)
    product = source * target
    assert torch.allclose(DotProductDecoder()(source, target), product.sum(-1), atol=1e-5)
    mlp = MLPDecoder(8)
    hidden = functional.linear(product, mlp.hidden.weight, mlp.hidden.bias).relu()
    wanted = functional.linear(hidden, mlp.score.weight, mlp.score.bias).squeeze(-1)
    found = mlp(source, target)
    assert found.shape == wanted.shape and torch.allclose(found, wanted, atol=1e-5)
    inputs = [source, target, *mlp.parameters()]
    both = (torch.autograd.grad(one.square().sum(), inputs) for one in (found, wanted))
    torch.testing.assert_close(*both, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("per_block", [2, 30])
@pytest.mark.parametrize("decoder", [DotProductDecoder(), MLPDecoder(24)], ids=["dot", "mlp"])
def test_all_pairs_have_the_scores_of_each_pair(
    decoder: DotProductDecoder | MLPDecoder, per_block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyg_batchgnn.nn.decoders._NUMBERS", 24 * 70 * per_block)
    source, target = torch.randn(37, 24), torch.randn(70, 24)
    target[66] = target[3]
    with torch.no_grad():
        found = decoder.all_pairs(source, target)
        torch.testing.assert_close(
            found, decoder(source.unsqueeze(1), target.unsqueeze(0)), atol=1e-5, rtol=1e-5
        )
        assert torch.equal(found[:, 66], found[:, 3]), "equal rows have equal scores"
        part = decoder.all_pairs(source[5:9], target[30:67])
        assert torch.equal(part, found[5:9, 30:67]), "a score does not depend on the pieces"
        assert decoder.all_pairs(source[:0], target).shape == (0, 70)


@pytest.mark.parametrize(("links", "chunk_size"), [(1, 8), (37, 1), (37, 8), (37, 50), (40, 10), (40, 40)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_loss_of_in_batch_negatives_is_a_corrected_softmax_of_each_chunk(
    dtype: torch.dtype, chunk_size: int, links: int
) -> None:
    rows = [(8 * torch.randn(links, 7)).to(dtype).requires_grad_() for _ in range(2)]
    log_q, hits = torch.rand(links).log(), torch.tensor([[0, 0, 5, 36], [1, 10, 4, 0]])[:, : links // 9]
    chunk = torch.arange(links) % -(-links // chunk_size)
    left_out = (chunk.unsqueeze(1) != chunk).index_put(tuple(hits), torch.tensor(True))
    own = rows if dtype is torch.float64 else [one.float() for one in rows]
    scores = (own[0] @ own[1].t() - log_q).masked_fill(left_out, -torch.inf)
    wanted = functional.cross_entropy(scores, torch.arange(links))
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype is torch.bfloat16):
        found = in_batch_loss(*rows, log_q, hits, chunk_size)
    both = [(one, *torch.autograd.grad(2 * one, rows)) for one in (found, wanted)]
    near = {torch.float64: 1e-10, torch.float32: 1e-4, torch.bfloat16: 2e-2}[dtype]  # scores reach 500
    torch.testing.assert_close(*both, rtol=near, atol=near)


def test_chunks_have_links_and_the_same_bits_on_any_number_of_threads() -> None:
    nothing, found = torch.empty(2, 0, dtype=torch.int64), []
    rows = [torch.randn(1000, 96, requires_grad=True) for _ in range(2)]
    for threads in (1, 3):
        torch.set_num_threads(threads)
        loss = in_batch_loss(*rows, torch.zeros(1000), nothing)
        found.append([loss, *torch.autograd.grad(loss, rows)])
    assert all(map(torch.equal, *found))
    zeros, far = torch.zeros(1000), torch.tensor([[0], [1000]])
    wrong: list[tuple[tuple[Any, ...], str]] = [
        ((*rows, zeros, nothing, 0), "chunk_size is 0; give the links"),
        ((*rows, zeros, nothing, 2.5), "chunk_size must be an int"),
        ((rows[0], rows[1][:999], zeros, nothing), r"\[1000, 96\], \[999, 96\], \[1000\]"),
        ((*rows, zeros[:999], nothing), r"\[999\]"),
        ((*rows, zeros, far), "hits holds 1000, but links go from 0 to 999"),
        ((*rows, zeros, far[0]), r"hits must be \[2, H\], got \[1\]"),
    ]
    for given, said in wrong:
        with pytest.raises((TypeError, ValueError, IndexError), match=said):
            in_batch_loss(*given)
