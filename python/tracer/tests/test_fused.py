"""Compiled functions that work element by element are one kernel; others are as they were."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from conftest import traced

SCRIPT = """
import torch

@torch.compile
def bias_gelu(x, bias):
    y = x + bias
    return y * 0.5 * (1 + torch.tanh(y))

@torch.compile
def softmax(x):
    return torch.exp(x) / torch.exp(x).sum(-1, keepdim=True)

layer = torch.nn.Linear(64, 64, device="cuda")

@torch.compile
def scaled(x):
    return x * layer.bias

bias = torch.nn.Parameter(torch.zeros(64, device="cuda"))
optimizer = torch.optim.SGD([*layer.parameters(), bias])
for _ in range(3):
    y = scaled(softmax(bias_gelu(layer(torch.randn(8, 64, device="cuda")), bias)))
    y.sum().backward()
    assert bias.grad.shape == bias.shape and layer.bias.grad is not None
    optimizer.step()
    optimizer.zero_grad()
"""


def test_element_wise_functions_are_one_kernel(
    tmp_path: Path, script: Callable[[str], Path]
) -> None:
    """Forward one, backward one and the sum of the bias; nothing between takes memory."""
    (trace,) = traced(tmp_path, ["--world-size", "1"], script(SCRIPT)).values()
    fused = [
        (line["pass"], trace.signatures[line["sig"]])
        for line in trace.of("op")
        if trace.signatures[line["sig"]]["name"] == "fused::pointwise"
    ]
    rows, size = ["float32", [8, 64]], 4 * 8 * 64
    assert [(at, s["in"], s["out"]) for at, s in fused] == [
        ("forward", [rows, ["float32", [64]]], [rows]),
        ("backward", [rows, rows, ["float32", [64]]], [rows]),
    ]
    assert [(s["read"], s["written"]) for _, s in fused] == [
        (size + 256, size), (2 * size + 256, size)
    ]  # fmt: skip
    names = trace.op_names()
    assert "aten::tanh" not in names
    # A sum over a row is none of one kernel's, nor is what hangs on a parameter not given.
    assert names.count("aten::exp") == 2
    assert "aten::mul" in names
    assumed = {row["what"] for row in (*trace.setup, *trace.lines) if row["t"] == "assumed"}
    assert "a compiled function of element-wise operators is one kernel" in assumed
    assert "torch.compile is left out: operators are recorded unfused" in assumed
