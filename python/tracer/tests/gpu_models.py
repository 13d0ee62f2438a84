"""Models and configurations of `gpu_pass.py`: plain PyTorch, layers of real shapes, few of them.

Nothing here knows of tracing, so that a GPU and the tracer run the same lines.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

# Since PyTorch 2.5 attention takes fewer heads of keys than of queries.
GROUPED = "enable_gqa" in str(functional.scaled_dot_product_attention.__doc__)


@dataclass(frozen=True)
class Case:
    """One training configuration on one GPU."""

    name: str
    family: str  # llama, gpt or moe
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    seq: int
    batch: int
    optimizer: str = "adamw_fused"  # adamw_fused, adamw_foreach or sgd
    types: str = "bf16"  # bf16, or amp: fp32 parameters under autocast
    recompute: bool = False
    dropout: float = 0.0
    micro_batches: int = 1
    experts: int = 0
    topk: int = 2
    allocator: str = ""  # PYTORCH_CUDA_ALLOC_CONF

    def tiny(self) -> Case:
        """The same program with sizes for a CPU."""
        return replace(
            self, layers=2, hidden=64, heads=4, kv_heads=min(self.kv_heads, 2) if
            self.kv_heads != self.heads else 4, ffn=96, vocab=256, seq=32, batch=2,
            experts=4 if self.experts else 0,
        )  # fmt: skip


CASES = (
    Case("llama4", "llama", 4, 4096, 32, 8, 14336, 32000, 4096, 1),
    Case("gpt12", "gpt", 12, 1536, 16, 16, 6144, 50304, 1024, 8),
    Case("moe4", "moe", 4, 2048, 16, 16, 4096, 32000, 2048, 4, experts=8),
    Case("llama4-recompute", "llama", 4, 4096, 32, 8, 14336, 32000, 4096, 2, recompute=True),
    Case("llama4-amp-foreach", "llama", 4, 4096, 32, 8, 14336, 32000, 2048, 1,
         "adamw_foreach", "amp"),
    Case("gpt12-amp-dropout", "gpt", 12, 1024, 16, 16, 4096, 50304, 1024, 8, types="amp",
         dropout=0.1),
    Case("llama2-accumulate", "llama", 2, 4096, 32, 8, 14336, 32000, 2048, 2, types="amp",
         micro_batches=4),
    Case("moe4-amp-sgd", "moe", 4, 1024, 16, 4, 2816, 32000, 2048, 4, "sgd", "amp", experts=16,
         recompute=True),
    Case("llama4-128k", "llama", 4, 4096, 32, 8, 14336, 128256, 8192, 1),
    Case("gpt24-sgd", "gpt", 24, 1024, 16, 16, 4096, 50304, 512, 16, "sgd"),
    Case("llama8-long", "llama", 8, 2048, 16, 16, 5504, 32000, 16384, 1, "adamw_foreach"),
    Case("llama2-accumulate-expandable", "llama", 2, 4096, 32, 8, 14336, 32000, 2048, 2,
         types="amp", micro_batches=4, allocator="expandable_segments:True"),
    Case("gpt4-small", "gpt", 4, 512, 8, 8, 2048, 50304, 512, 4),
)  # fmt: skip


def _rope(seq: int, dim: int) -> Tensor:
    inverse = 1.0 / 10000.0 ** (torch.arange(0, dim, 2).float() / dim)
    angle = torch.outer(torch.arange(seq).float(), inverse)
    angle = torch.cat((angle, angle), dim=-1)
    return torch.stack((angle.cos(), angle.sin()))


def _rotate(x: Tensor, table: Tensor) -> Tensor:
    low, high = x.chunk(2, dim=-1)
    return x * table[0].to(x.dtype) + torch.cat((-high, low), dim=-1) * table[1].to(x.dtype)


class Attention(nn.Module):
    """Causal attention, grouped heads, rotary positions where the model has them."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.dim = case.hidden // case.heads
        self.dropout = case.dropout
        self.grouped = case.kv_heads != case.heads
        bias = case.family == "gpt"
        kv = case.kv_heads * self.dim
        self.q = nn.Linear(case.hidden, case.hidden, bias=bias)
        self.k = nn.Linear(case.hidden, kv, bias=bias)
        self.v = nn.Linear(case.hidden, kv, bias=bias)
        self.out = nn.Linear(case.hidden, case.hidden, bias=bias)

    def forward(self, x: Tensor, table: Tensor | None) -> Tensor:
        """[batch, seq, hidden] to the same."""
        q, k, v = (
            w(x).unflatten(-1, (-1, self.dim)).transpose(1, 2) for w in (self.q, self.k, self.v)
        )
        if table is not None:
            q, k = _rotate(q, table), _rotate(k, table)
        named = {"enable_gqa": True} if self.grouped and GROUPED else {}
        if self.grouped and not GROUPED:
            k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], dim=1) for t in (k, v))
        y = functional.scaled_dot_product_attention(
            q, k, v, dropout_p=self.dropout, is_causal=True, **named
        )
        return self.out(y.transpose(1, 2).flatten(-2))


class SwiGlu(nn.Module):
    """A Llama's MLP."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.gate = nn.Linear(case.hidden, case.ffn, bias=False)
        self.up = nn.Linear(case.hidden, case.ffn, bias=False)
        self.down = nn.Linear(case.ffn, case.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, seq, hidden] to the same."""
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Gelu(nn.Module):
    """A GPT's MLP."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.up = nn.Linear(case.hidden, case.ffn)
        self.down = nn.Linear(case.ffn, case.hidden)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, seq, hidden] to the same."""
        return self.down(functional.gelu(self.up(x), approximate="tanh"))


class Experts(nn.Module):
    """Top-k experts of equal shares of the sorted tokens: shapes do not depend on data."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.experts, self.topk = case.experts, case.topk
        self.router = nn.Linear(case.hidden, case.experts, bias=False)
        size = (case.experts, case.hidden, case.ffn)
        self.gate = nn.Parameter(torch.randn(size) * 0.02)
        self.up = nn.Parameter(torch.randn(size) * 0.02)
        self.down = nn.Parameter(torch.randn(case.experts, case.ffn, case.hidden) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, seq, hidden] to the same."""
        tokens = x.flatten(0, 1)
        weight, chosen = self.router(tokens).float().softmax(-1).topk(self.topk)
        order = chosen.flatten().argsort(stable=True)
        rows = tokens[order // self.topk].unflatten(0, (self.experts, -1))
        inner = functional.silu(torch.bmm(rows, self.gate.to(rows.dtype)))
        inner = inner * torch.bmm(rows, self.up.to(rows.dtype))
        out = torch.bmm(inner, self.down.to(inner.dtype)).flatten(0, 1)
        out = out * weight.flatten()[order].unsqueeze(-1).to(out.dtype)
        whole = torch.zeros(tokens.shape, dtype=out.dtype, device=out.device)
        return whole.index_add(0, order // self.topk, out).view_as(x)


class Layer(nn.Module):
    """One layer before normalisation moved behind anything: norm, attention, norm, MLP."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        norm = nn.LayerNorm if case.family == "gpt" else nn.RMSNorm
        self.norm1, self.norm2 = norm(case.hidden), norm(case.hidden)
        self.attention = Attention(case)
        self.mlp = {"llama": SwiGlu, "gpt": Gelu, "moe": Experts}[case.family](case)
        self.dropout = case.dropout

    def forward(self, x: Tensor, table: Tensor | None) -> Tensor:
        """[batch, seq, hidden] to the same."""
        y = self.attention(self.norm1(x), table)
        x = x + (functional.dropout(y, self.dropout) if self.dropout else y)
        y = self.mlp(self.norm2(x))
        return x + (functional.dropout(y, self.dropout) if self.dropout else y)


class Model(nn.Module):
    """Tokens and targets to the loss."""

    rope: Tensor | None

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.recompute = case.recompute
        gpt = case.family == "gpt"
        self.embed = nn.Embedding(case.vocab, case.hidden)
        self.position = nn.Embedding(case.seq, case.hidden) if gpt else None
        self.layers = nn.ModuleList(Layer(case) for _ in range(case.layers))
        self.norm = (nn.LayerNorm if gpt else nn.RMSNorm)(case.hidden)
        self.head = nn.Linear(case.hidden, case.vocab, bias=False)
        if gpt:
            self.head.weight = self.embed.weight
        self.register_buffer("rope", None if gpt else _rope(case.seq, case.hidden // case.heads))

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """[batch, seq] twice to one number."""
        x = self.embed(tokens)
        if self.position is not None:
            x = x + self.position.weight
        for layer in self.layers:
            if self.recompute:
                x = checkpoint(layer, x, self.rope, use_reentrant=False)
            else:
                x = layer(x, self.rope)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


class Trainer:
    """Model, optimizer and a batch; `step()` is one training step without a read of the host's."""

    def __init__(self, case: Case, device: str) -> None:
        self.case = case
        torch.manual_seed(0)
        with torch.device(device):
            self.model = Model(case)
        if case.types == "bf16":
            self.model.to(torch.bfloat16)
        parameters = self.model.parameters()
        if case.optimizer == "sgd":
            self.optimizer: torch.optim.Optimizer = torch.optim.SGD(
                parameters, lr=1e-3, momentum=0.9
            )
        else:
            fused = case.optimizer == "adamw_fused"
            self.optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=fused, foreach=not fused)
        size = (case.batch, case.seq)
        self.tokens = torch.randint(0, case.vocab, size, device=device)
        self.targets = torch.randint(0, case.vocab, size, device=device)
        self.kind = torch.device(device).type

    def step(self) -> None:
        """Forward and backward of each micro-batch, the optimizer, gradients given back."""
        for _ in range(self.case.micro_batches):
            with torch.autocast(self.kind, torch.bfloat16, enabled=self.case.types == "amp"):
                loss = self.model(self.tokens, self.targets)
            (loss / self.case.micro_batches).backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
