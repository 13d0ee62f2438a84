"""What is timed computes what it says: layouts, groups, attention, fused kernels, models."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys

import pytest
import torch
from conftest import ROOT

import attention
import gemm
from kit import companion, models
from kit.budget import Budget
from kit.device import open_device
from kit.errors import Refused
from kit.pool import Pool, make_pools
from kit.row_kernels import KERNELS, Make
from kit.runner import Context
from kit.shapes import Gemm
from kit.timing import Bench

CPU = open_device("cpu", True)


def context() -> Context:
    return Context(CPU, Bench(CPU), argparse.Namespace(tiny=True, blas="default"), Budget(9.0))


@pytest.mark.parametrize(
    "layout,strides", [("nt", ((4, 1), (1, 4))), ("nn", ((4, 1), (5, 1))), ("tn", ((1, 3), (5, 1)))]
)
def test_operands_lie_as_the_layout_says(layout, strides):
    # A is 3 x 4, B is 4 x 5. Row-major A has strides (4, 1); stored transposed, as 4 x 3, (1, 3).
    a, b = gemm.operands(Gemm("fp32", layout, 3, 5, 4), Pool(CPU, torch.float32, 4096))
    assert a.shape == (3, 4) and b.shape == (4, 5)
    assert (a.stride(), b.stride()) == strides


@pytest.mark.parametrize("layout", ["nt", "nn", "tn"])
def test_a_grouped_product_is_its_parts(layout):
    g = (
        Gemm("bf16", layout, 32, 24, 48, 2)
        if layout == "tn"
        else Gemm("bf16", layout, 48, 24, 32, 2)
    )
    g = Gemm("bf16", layout, g.m, g.n, 64 if layout == "tn" else g.k, 2)
    g = Gemm("bf16", layout, 64 if layout != "tn" else g.m, g.n, g.k, 2)
    inputs, outputs = make_pools(CPU, {}, "bf16")
    inputs.rewind()
    a, b = gemm.operands(g, inputs)
    inputs.rewind()
    got = gemm.call_of(g, inputs, outputs, CPU)()
    if layout == "tn":  # 64 rows of the inner size, 32 to each expert
        parts = [
            a[:, i * 32 : (i + 1) * 32].float() @ b[i * 32 : (i + 1) * 32].float() for i in range(2)
        ]
        assert got.shape == (2, g.m, g.n)
        torch.testing.assert_close(got.float(), torch.stack(parts), rtol=2e-2, atol=0.2)
    else:
        parts = [a[i * 32 : (i + 1) * 32].float() @ b[i].float() for i in range(2)]
        torch.testing.assert_close(got.float(), torch.cat(parts), rtol=2e-2, atol=0.2)


def test_uneven_groups_and_large_operands_are_refused():
    inputs, outputs = make_pools(CPU, {}, "bf16")
    with pytest.raises(Refused, match="multiple of 16"):
        gemm.call_of(Gemm("bf16", "nt", 40, 16, 16, 2), inputs, outputs, CPU)
    with pytest.raises(Refused, match="pool"):
        gemm.call_of(Gemm("bf16", "nt", 1 << 20, 16, 16), inputs, outputs, CPU)


def test_the_pool_is_random_and_rotates():
    pool = Pool(CPU, torch.float8_e4m3fn, 1 << 16)
    a, b = pool.view(64, 64), pool.view(64, 64)
    assert a.data_ptr() != b.data_ptr() and a.data_ptr() % 16 == b.data_ptr() % 16
    values = a.float()
    assert 0.8 < values.std() < 1.2 and abs(values.mean()) < 0.1


def test_unfused_attention_equals_the_reference():
    q, k, v = (torch.randn(2, h, 16, 8) for h in (4, 2, 2))
    want = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=True, enable_gqa=True
    )
    got = attention.forward_of("unfused", True, True)(q, k, v)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "kernel", [k for k in KERNELS if "triton" not in k.name], ids=lambda k: k.name
)
def test_traffic_counts_at_least_the_inputs(kernel):
    assert kernel.bytes_of(32, 32, 2) > 0
    assert kernel.bytes_of(64, 32, 2) > kernel.bytes_of(32, 32, 2)
    kernel.make(Make(32, 32, torch.bfloat16, torch.device("cpu")))()


TRITON = """
import torch
from kit import triton_kernels as t
torch.manual_seed(1)
x, w, dy = torch.randn(8, 96), torch.randn(96), torch.randn(8, 96)
y, rstd, dx = torch.empty_like(x), torch.empty(8), torch.empty_like(x)
t.rmsnorm(x, w, y, rstd)
x.requires_grad_()
want = torch.nn.functional.rms_norm(x, (96,), w, 1e-6)
torch.testing.assert_close(y, want.detach(), rtol=1e-4, atol=1e-5)
t.rmsnorm_grad(dy, x.detach(), w, rstd, dx)
torch.testing.assert_close(dx, torch.autograd.grad(want, x, dy)[0], rtol=1e-4, atol=1e-5)
g, u, out = torch.randn(8, 96), torch.randn(8, 96), torch.empty(8, 96)
t.swiglu(g, u, out)
torch.testing.assert_close(out, torch.nn.functional.silu(g) * u, rtol=1e-4, atol=1e-5)
a, turns = torch.randn(8, 16), torch.randn(4, 8)
cos, sin, r = turns.cos(), turns.sin(), torch.empty(8, 16)
t.rotary(a, cos, sin, r)
c, s = (torch.cat((z, z), -1).repeat(2, 1) for z in (cos, sin))
want = a * c + torch.cat((-a[:, 8:], a[:, :8]), -1) * s
torch.testing.assert_close(r, want, rtol=1e-4, atol=1e-5)
print("equal")
"""


def test_triton_kernels_equal_torch():
    pytest.importorskip("triton")
    done = subprocess.run(
        [sys.executable, "-c", TRITON],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        timeout=120,
    )
    assert done.stdout.strip().endswith("equal"), done.stderr[-2000:]


def test_the_resident_kernel_compiles(tmp_path):
    if not shutil.which("nvcc"):
        pytest.skip("nvcc is not installed")
    command = companion.build_command(companion.find_nvcc(), tmp_path / "c.so", (9, 0))
    done = subprocess.run(command, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stderr


def test_no_compiler_is_a_refusal(monkeypatch):
    monkeypatch.setattr(companion.shutil, "which", lambda name: None)
    monkeypatch.setenv("CUDA_HOME", "/nowhere")
    with pytest.raises(Refused, match="nvcc"):
        companion.find_nvcc()


def test_a_model_cut_by_tp_holds_its_share():
    def count(tp: int) -> int:
        s = models.Shape("llama", 1, 64, 4, 4, 128, 256, 32, 1, tp=tp)
        return sum(
            p.numel() for p in models.build(s, torch.float32, torch.device("cpu")).parameters()
        )

    # By hand: qkv 64*192, out 64*64, up 64*256, down 128*64, embedding, head 256*64; 3 norms.
    assert count(1) == 64 * 192 + 64 * 64 + 64 * 256 + 128 * 64 + 2 * 256 * 64 + 3 * 64
    assert count(2) == (count(1) - 3 * 64) // 2 + 3 * 64


def test_experts_route_every_token_to_topk_of_them():
    s = models.Shape("moe", 1, 32, 2, 2, 32, 64, 32, 1, experts=4, topk=2)
    experts = models.build(s, torch.bfloat16, torch.device("cpu")).blocks[0].mlp
    x = torch.randn(1, 32, 32, dtype=torch.bfloat16)
    rows, y = x.view(32, 32).float(), torch.zeros(32, 32)
    weight = torch.topk(torch.softmax(experts.router(x.view(32, 32)).float(), -1), 2).values
    for slot in range(64):  # slot = token * topk + choice goes to expert slot % 4
        token, e = slot // 2, slot % 4
        gate, up = (rows[token] @ experts.up[e].float().t()).chunk(2)
        hidden = torch.nn.functional.silu(gate) * up
        y[token] += weight[token, slot % 2] * (hidden @ experts.down[e].float().t())
    torch.testing.assert_close(experts(x).view(32, 32).float(), y, rtol=0.1, atol=2e-3)
