"""Attention for Megatron's context parallelism: keys and values go round the ranks of a sequence.

Megatron-Core leaves it to Transformer Engine, which cannot be installed without a GPU. This has the
same plan: a rank holds two of 2 n equal parts, r and 2 n - 1 - r, so that all do equal work; at
each step it attends to the keys at hand while the next arrive. Backward, keys and values go round
once more, and their gradients behind them, back to where they belong.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from torch import Tensor, nn

aten = torch.ops.aten


def rotate(tensor: Tensor, group: Any) -> tuple[list[Any], Tensor]:
    """Sends a tensor to the next rank and takes the previous one's; what to wait for, and it."""
    ranks = dist.get_process_group_ranks(group)
    rank, coming = ranks.index(dist.get_rank()), torch.empty_like(tensor)
    ahead, behind = ranks[(rank + 1) % len(ranks)], ranks[rank - 1]
    messages = [
        dist.P2POp(dist.isend, tensor, ahead, group),
        dist.P2POp(dist.irecv, coming, behind, group),
    ]
    return dist.batch_isend_irecv(messages), coming


def at_hand(step: int, rank: int, half: int) -> tuple[slice, slice, bool]:
    """Which queries see which keys at a step, and whether the mask cuts them.

    The keys are those of rank `rank - step`: all of our queries see an earlier rank's first half,
    our second half sees all of a later rank's.
    """
    whole = slice(None)
    if step == 0:
        return whole, whole, True
    return (whole, slice(half), False) if step <= rank else (slice(half, None), whole, False)


class Ring(torch.autograd.Function):
    """Queries [batch, heads, sequence, channels], keys and values [2, ...] of this rank's parts."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, pair: Tensor, group: Any) -> Tensor:
        """Partial results are put together by the logarithms of their softmax's sums."""
        size, rank, half = group.size(), dist.get_rank(group), query.shape[2] // 2
        ctx.group, ctx.own, ctx.rest = group, pair, []
        total = sums = None
        for step in range(size):
            works, coming = rotate(pair, group) if step + 1 < size else ([], pair)
            q, k, causal = at_hand(step, rank, half)
            out, lse, *rest = aten._scaled_dot_product_flash_attention(
                query[:, :, q], pair[0][:, :, k], pair[1][:, :, k], 0.0, causal
            )
            ctx.rest.append(rest)
            if total is None or sums is None:
                total, sums = out.float(), lse
            else:
                before = sums[:, :, q]
                both = torch.logaddexp(before, lse)
                share, kept = (torch.exp(t - both).unsqueeze(-1) for t in (lse, before))
                total[:, :, q] = total[:, :, q] * kept + out * share
                sums[:, :, q] = both
            for work in works:
                work.wait()
            pair = coming
        ctx.save_for_backward(query, total.to(query.dtype), sums)
        return total.to(query.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        """Gradients of keys and values are sent on after each step."""
        query, out, sums = ctx.saved_tensors
        group, pair = ctx.group, ctx.own
        size, rank, half = group.size(), dist.get_rank(group), query.shape[2] // 2
        of_query, of_pair = torch.zeros_like(query), torch.zeros_like(pair)
        for step in range(size):
            works, coming = rotate(pair, group) if step + 1 < size else ([], pair)
            q, k, causal = at_hand(step, rank, half)
            cum_q, cum_k, max_q, max_k, seed, unused, *_ = ctx.rest[step]
            d_q, d_k, d_v = aten._scaled_dot_product_flash_attention_backward(
                gradient[:, :, q], query[:, :, q], pair[0][:, :, k], pair[1][:, :, k],
                out[:, :, q], sums[:, :, q], cum_q, cum_k, max_q, max_k, 0.0, causal, seed, unused,
            )  # fmt: skip
            of_query[:, :, q] += d_q
            of_pair[0][:, :, k] += d_k
            of_pair[1][:, :, k] += d_v
            for work in works:
                work.wait()
            pair = coming
            works, of_pair = rotate(of_pair, group)
            for work in works:
                work.wait()
        return of_query, of_pair, None


class RingAttention(nn.Module):
    """In the place of Megatron's core attention."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> Tensor:
        """[sequence, batch, heads, channels] thrice to [sequence, batch, heads * channels]."""
        q, k, v = (t.permute(1, 2, 0, 3) for t in (query, key, value))
        out = Ring.apply(q, torch.stack((k, v)), parallel_state.get_context_parallel_group())
        return out.permute(2, 0, 1, 3).flatten(-2)
