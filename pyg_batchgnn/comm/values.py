"""Small Python values of every rank, agreement on them, barriers, and tensors of one rank."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn.comm.channel import Channel
from pyg_batchgnn.comm.errors import AgreementError, DivergenceError
from pyg_batchgnn.comm.header import Header, Operation, dtype_code
from pyg_batchgnn.comm.rows import count_to_all, send_to_all
from pyg_batchgnn.comm.transport import as_bytes


def gather_values(
    channel: Channel, value: Any, header: Header, operation: Operation = Operation.VALUES
) -> list[Any]:
    """Implements `Collectives.all_gather_json`."""
    text = json.dumps(value).encode()
    own = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    with channel.exchange(operation, header, row_bytes=1) as exchange:
        sizes = count_to_all(exchange, own, len(text)).rows
        out = torch.empty(sum(sizes), dtype=torch.uint8)
        send_to_all(exchange, out, own, sizes)
    return [json.loads(part.numpy().tobytes()) for part in out.split(sizes)]


def broadcast(channel: Channel, tensor: Tensor, source: int, header: Header) -> Tensor:
    """Implements `Collectives.broadcast`."""
    if not 0 <= source < channel.size:
        raise ValueError(f"source must be a rank below {channel.size}, not {source}")
    if not tensor.is_contiguous():
        raise ValueError("the tensor must be contiguous; call .contiguous() first")
    flat = as_bytes(tensor)
    with channel.exchange(Operation.BROADCAST, header, len(flat), dtype_code(tensor.dtype)) as exchange:
        own = flat if channel.rank == source else flat[:0]
        sources = count_to_all(exchange, own, int(channel.rank == source), source).numbers
        if len(set(sources)) > 1:
            odd = [rank for rank, theirs in enumerate(sources) if theirs != source]
            raise DivergenceError(
                f"ranks broadcast from different sources: {dict(enumerate(sources))} (by rank)", odd
            )
        received = [len(flat) if rank == source else 0 for rank in range(channel.size)]
        send_to_all(exchange, flat, own, received)
    return tensor


def barrier(channel: Channel, header: Header) -> None:
    """Implements `Collectives.barrier`."""
    with channel.exchange(Operation.BARRIER, header) as exchange:
        exchange.counts([0] * channel.size)


def check_agreement(channel: Channel, values: Mapping[str, Any], header: Header) -> None:
    """Implements `Collectives.check_agreement`.

    All ranks see the same answers, so all of them raise or none.
    """
    answers = gather_values(channel, dict(values), header, Operation.AGREEMENT)
    differing = sorted({name for answer in answers for name in answer if _differs(answers, name)})
    if not differing:
        return
    reference = {name: _most_common([answer.get(name) for answer in answers]) for name in differing}
    odd = [
        rank
        for rank, answer in enumerate(answers)
        if any(_text(answer.get(name)) != reference[name] for name in differing)
    ]
    lines = []
    for name in differing:
        by_text: dict[str, list[int]] = {}
        for rank, answer in enumerate(answers):
            by_text.setdefault(_text(answer[name]) if name in answer else "nothing", []).append(rank)
        lines.append(f"{name}: " + ", ".join(f"{text} on {_ranks(ranks)}" for text, ranks in by_text.items()))
    raise AgreementError(
        f"ranks were given different arguments: {'; '.join(lines)}; start every rank with the same", odd
    )


def _differs(answers: list[dict[str, Any]], name: str) -> bool:
    return any(name not in answer for answer in answers) or len({_text(a[name]) for a in answers}) > 1


def _most_common(values: list[Any]) -> str:
    texts = [_text(value) for value in values]
    return max(texts, key=texts.count)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _ranks(ranks: list[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
