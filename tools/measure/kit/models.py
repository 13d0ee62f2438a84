"""Small decoders in plain torch, cut to what one rank of a TP/EP job computes.

Sizes are the whole model's; `tp` and `ep` divide heads, feed-forward width, vocabulary and experts,
and the collectives between are left out: the rest is exactly one rank's work. Routing is balanced
by construction (expert = slot modulo experts), as in published MoE benchmarks. Parameters,
gradients and optimizer states are of the model's type (bf16: 8 bytes a parameter).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

Tensor = torch.Tensor


@dataclass(frozen=True)
class Shape:
    """A model and its cut. Families: llama (RMSNorm, SwiGLU, rotary), gpt, moe (with experts)."""

    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    seq: int
    micro_batch: int
    experts: int = 0
    topk: int = 0
    tp: int = 1
    ep: int = 1

    @property
    def head_dim(self) -> int:
        """Elements of one head."""
        return self.hidden // self.heads

    def label(self) -> str:
        """A name that tells one cut from another."""
        return (
            f"{self.family}-h{self.hidden}-l{self.layers}-f{self.ffn}-v{self.vocab}-s{self.seq}"
            f"-b{self.micro_batch}-e{self.experts}-tp{self.tp}-ep{self.ep}"
        )


class Attention(nn.Module):
    """Causal attention of heads / tp heads; x is [batch, seq, hidden]."""

    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.heads, self.kv = s.heads // s.tp, max(1, s.kv_heads // s.tp)
        self.d, self.rotary = s.head_dim, s.family != "gpt"
        self.qkv = nn.Linear(s.hidden, (self.heads + 2 * self.kv) * self.d, bias=s.family == "gpt")
        self.out = nn.Linear(self.heads * self.d, s.hidden, bias=s.family == "gpt")

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Returns [batch, seq, hidden]."""
        b, t, _ = x.shape
        q, k, v = self.qkv(x).split((self.heads * self.d, self.kv * self.d, self.kv * self.d), -1)
        q, k, v = (z.view(b, t, -1, self.d).transpose(1, 2) for z in (q, k, v))
        if self.rotary:
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=self.kv != self.heads
        )
        return self.out(y.transpose(1, 2).reshape(b, t, -1))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position on [batch, heads, seq, d]; cos and sin are [seq, d]."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


class FeedForward(nn.Module):
    """SwiGLU, or GeLU in the gpt family, of width ffn / tp."""

    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.gated, width = s.family != "gpt", s.ffn // s.tp
        self.up = nn.Linear(s.hidden, 2 * width if self.gated else width, bias=not self.gated)
        self.down = nn.Linear(width, s.hidden, bias=not self.gated)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the shape of x."""
        y = self.up(x)
        if self.gated:
            gate, up = y.chunk(2, -1)
            return self.down(F.silu(gate) * up)
        return self.down(F.gelu(y, approximate="tanh"))


class Experts(nn.Module):
    """experts / ep SwiGLU experts with their share of all rows, router and permutation."""

    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.local, self.topk = max(1, s.experts // s.ep), s.topk
        self.router = nn.Linear(s.hidden, s.experts, bias=False)
        self.up = nn.Parameter(torch.empty(self.local, 2 * s.ffn, s.hidden))
        self.down = nn.Parameter(torch.empty(self.local, s.hidden, s.ffn))

    def forward(self, x: Tensor) -> Tensor:
        """Returns the shape of x. REQUIRES tokens * topk divisible by 16 * local experts."""
        rows = x.reshape(-1, x.shape[-1])
        scores = torch.softmax(self.router(rows).float(), -1)
        weight, _ = torch.topk(scores, self.topk, dim=-1)
        slots = rows.shape[0] * self.topk
        expert = torch.arange(slots, device=x.device) % self.local
        order = torch.argsort(expert, stable=True)
        share = slots // self.local
        ends = torch.arange(share, slots + 1, share, dtype=torch.int32, device=x.device)
        token = order // self.topk
        y = rows.index_select(0, token)
        y = grouped(y, self.up, ends)
        gate, up = y.chunk(2, -1)
        y = grouped(F.silu(gate) * up, self.down, ends)
        y = y * weight.reshape(-1).index_select(0, order).unsqueeze(-1).to(y.dtype)
        return torch.zeros_like(rows).index_add(0, token, y).view_as(x)


def grouped(x: Tensor, w: Tensor, ends: Tensor) -> Tensor:
    """x[rows, k] times each expert's w[n, k], rows cut at `ends`."""
    product = getattr(F, "grouped_mm", torch._grouped_mm)
    return product(x, w.transpose(1, 2), offs=ends)


class Block(nn.Module):
    """One pre-norm transformer layer."""

    def __init__(self, s: Shape) -> None:
        super().__init__()
        norm = nn.LayerNorm if s.family == "gpt" else nn.RMSNorm
        self.first, self.second = norm(s.hidden), norm(s.hidden)
        self.attention = Attention(s)
        self.mlp = Experts(s) if s.experts else FeedForward(s)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x is [batch, seq, hidden]."""
        x = x + self.attention(self.first(x), cos, sin)
        return x + self.mlp(self.second(x))


class Decoder(nn.Module):
    """Embedding, blocks, norm, output projection, loss."""

    def __init__(self, s: Shape) -> None:
        super().__init__()
        vocab = -(-s.vocab // s.tp)
        self.vocab = vocab
        self.embedding = nn.Embedding(vocab, s.hidden)
        self.blocks = nn.ModuleList(Block(s) for _ in range(s.layers))
        self.norm = nn.LayerNorm(s.hidden) if s.family == "gpt" else nn.RMSNorm(s.hidden)
        self.head = nn.Linear(s.hidden, vocab, bias=False)
        turns = torch.outer(
            torch.arange(s.seq).float(),
            1e4 ** (-torch.arange(0, s.head_dim, 2).float() / s.head_dim),
        )
        for name, wave in (("cos", turns.cos()), ("sin", turns.sin())):
            self.register_buffer(name, torch.cat((wave, wave), -1))

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Mean loss of tokens, targets [batch, seq]."""
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, self.vocab).float(), targets.view(-1))


def build(s: Shape, dtype: torch.dtype, device: torch.device) -> Decoder:
    """A model with random weights on `device`."""
    with torch.device(device):
        model = Decoder(s).to(dtype)
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.normal_(p, std=0.02)
    return model
