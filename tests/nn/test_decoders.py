"""Decoders, beside plain formulas."""

from __future__ import annotations

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
    for one, other in zip(
        torch.autograd.grad(found.square().sum(), inputs),
        torch.autograd.grad(wanted.square().sum(), inputs),
        strict=True,
    ):
        assert torch.allclose(one, other, atol=1e-4)


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


@pytest.mark.parametrize("spread", [1.0, 60.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_loss_of_in_batch_negatives_is_a_corrected_softmax(dtype: torch.dtype, spread: float) -> None:
    scores = (spread * torch.randn(37, 37, dtype=dtype)).requires_grad_()
    log_q, hits = torch.rand(37).log(), torch.tensor([[0, 0, 5, 36], [1, 9, 4, 0]])
    corrected = (scores - log_q).index_put(tuple(hits), torch.tensor(-torch.inf, dtype=dtype))
    wanted, found = functional.cross_entropy(corrected, torch.arange(37)), in_batch_loss(scores, log_q, hits)
    both = [(one, *torch.autograd.grad(2 * one, scores)) for one in (found, wanted)]
    torch.testing.assert_close(*both)
    assert in_batch_loss(scores[:1, :1], log_q[:1], hits[:, :0]) == 0
