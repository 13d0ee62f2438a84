"""A Llama of our own, small enough to read, with the shapes that matter: GQA, RoPE, SwiGLU.

Every spike builds this model, so that their op counts can be compared. Sizes are real ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

# Since PyTorch 2.5 attention takes fewer heads of keys than of queries.
GROUPED = "enable_gqa" in str(functional.scaled_dot_product_attention.__doc__)


@dataclass(frozen=True)
class Config:
    """Sizes of a dense Llama."""

    hidden: int = 256
    ffn: int = 688
    layers: int = 2
    heads: int = 8
    kv_heads: int = 4
    vocab: int = 1024
    seq: int = 128

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.hidden // self.heads

    def parameters(self) -> int:
        """Parameters by hand count: attention, MLP and two norms a layer; both embeddings."""
        kv = self.kv_heads * self.head_dim
        layer = 2 * self.hidden * self.hidden + 2 * self.hidden * kv
        layer += 3 * self.hidden * self.ffn + 2 * self.hidden
        return self.layers * layer + 2 * self.vocab * self.hidden + self.hidden

    def with_layers(self, layers: int) -> Config:
        """The same model, another depth."""
        return replace(self, layers=layers)


SMALL = Config()
LLAMA_8B = Config(4096, 14336, 32, 32, 8, 128256, 8192)
LLAMA_70B = Config(8192, 28672, 80, 64, 8, 128256, 8192)
LLAMA_405B = Config(16384, 53248, 126, 128, 8, 128256, 8192)


def rope_table(seq: int, dim: int, device: torch.device | str) -> Tensor:
    """Cosines and sines of the rotary embedding, [2, seq, dim]."""
    inverse = 1.0 / 500000.0 ** (torch.arange(0, dim, 2, device=device).float() / dim)
    angle = torch.outer(torch.arange(seq, device=device).float(), inverse)
    angle = torch.cat((angle, angle), dim=-1)
    return torch.stack((angle.cos(), angle.sin()))


def rotate(x: Tensor, table: Tensor) -> Tensor:
    """Applies the rotary embedding to [batch, heads, seq, dim]."""
    low, high = x.chunk(2, dim=-1)
    turned = torch.cat((-high, low), dim=-1)
    return x * table[0].to(x.dtype) + turned * table[1].to(x.dtype)


class Attention(nn.Module):
    """Grouped-query attention; heads are counted from the weight, so a TP shard works too."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        kv = config.kv_heads * config.head_dim
        self.head_dim = config.head_dim
        self.wq = nn.Linear(config.hidden, config.hidden, bias=False)
        self.wk = nn.Linear(config.hidden, kv, bias=False)
        self.wv = nn.Linear(config.hidden, kv, bias=False)
        self.wo = nn.Linear(config.hidden, config.hidden, bias=False)

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        """[batch, seq, hidden] to the same."""
        q, k, v = (
            w(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for w in (self.wq, self.wk, self.wv)
        )
        q, k = rotate(q, table), rotate(k, table)
        if GROUPED:
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        else:
            k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], dim=1) for t in (k, v))
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(y.transpose(1, 2).flatten(-2))


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.w1 = nn.Linear(config.hidden, config.ffn, bias=False)
        self.w2 = nn.Linear(config.ffn, config.hidden, bias=False)
        self.w3 = nn.Linear(config.hidden, config.ffn, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, seq, hidden] to the same."""
        return self.w2(functional.silu(self.w1(x)) * self.w3(x))


class Layer(nn.Module):
    """One transformer layer."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attention = Attention(config)
        self.feed_forward = FeedForward(config)
        self.attention_norm = nn.RMSNorm(config.hidden)
        self.ffn_norm = nn.RMSNorm(config.hidden)

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        """[batch, seq, hidden] to the same."""
        x = x + self.attention(self.attention_norm(x), table)
        return x + self.feed_forward(self.ffn_norm(x))


class Llama(nn.Module):
    """Embedding, layers, head; `first` and `last` cut a pipeline stage out of it."""

    def __init__(
        self, config: Config, device: torch.device | str, first: bool = True, last: bool = True
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(config.vocab, config.hidden) if first else None
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.hidden) if last else None
        self.head = nn.Linear(config.hidden, config.vocab, bias=False) if last else None
        self.rope = rope_table(config.seq, config.head_dim, device)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (or, past the first stage, hidden states) to logits (or hidden states)."""
        if self.embed is not None:
            x = self.embed(x)
        for layer in self.layers:
            x = layer(x, self.rope)
        return x if self.head is None or self.norm is None else self.head(self.norm(x))


def loss_of(logits: Tensor, target: Tensor) -> Tensor:
    """Mean cross entropy over all tokens."""
    return functional.cross_entropy(logits.flatten(0, 1).float(), target.flatten())
