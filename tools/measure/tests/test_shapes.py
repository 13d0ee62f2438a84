"""Shapes from layers: numbers derived by hand, and what must hold for the whole list."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT

import derive_layers
from kit import shapes
from kit.errors import UserError
from kit.layers import Layer, load_layers
from kit.shapes import Attention, Gemm, Product

LLAMA8B = Layer(
    "Llama3-8B", "gqa", 4096, 32, 8, 128, 14336, 1, 128256, 0, 0, 0, 2, 1, 1, 1, 8192, "bf16", 1
)


def test_products_of_a_llama_layer_at_tp_2():
    # qkv: (16 + 2*4) heads of 128 = 3072; out: 16 * 128 = 2048 in; ffn 14336/2 = 7168, gate and up
    # together 14336; vocabulary 128256 is 501 * 256, so half is 64128.
    assert shapes.products(LLAMA8B) == [
        Product(8192, 3072, 4096),
        Product(8192, 4096, 2048),
        Product(8192, 14336, 4096),
        Product(8192, 4096, 7168),
        Product(8192, 64128, 4096),
    ]


def test_products_of_a_mixture_at_ep_8():
    layer = replace(LLAMA8B, tp=1, ep=4, experts=8, topk=2, seq=4096)
    # Two experts a rank; balanced, a rank receives tokens * topk = 8192 rows, 4096 each.
    assert shapes.products(layer)[2:5] == [
        Product(4096, 8, 4096),
        Product(8192, 28672, 4096, 2),
        Product(8192, 4096, 14336, 2),
    ]


def test_the_three_passes_of_a_linear_layer():
    # y[5, 7] = x[5, 3] w[7, 3]^T; dx[5, 3] = dy[5, 7] w[7, 3]; dw[7, 3] = dy[5, 7]^T x[5, 3].
    assert shapes.passes(Product(5, 7, 3), "bf16") == [
        Gemm("bf16", "nt", 5, 7, 3),
        Gemm("bf16", "nn", 5, 3, 7),
        Gemm("bf16", "tn", 7, 3, 5),
    ]
    assert shapes.passes(Product(32, 64, 48), "fp8") == [
        Gemm("fp8", "nt", 32, 64, 48),
        Gemm("fp8_split", "nt", 32, 48, 64),
        Gemm("fp8_split", "nt", 64, 48, 32),
    ]
    assert shapes.passes(Product(5, 7, 3), "fp8") == []  # fp8 needs multiples of 16


def test_bytes_count_the_weights_of_every_expert():
    g = Gemm("bf16", "nt", 64, 8, 4, 2)
    assert shapes.gemm_bytes(g) == (2 * (64 * 4 + 2 * 4 * 8), 2 * 64 * 8)
    g = Gemm("bf16", "tn", 8, 4, 64, 2)
    assert shapes.gemm_bytes(g) == (2 * (8 * 64 + 64 * 4), 2 * 2 * 8 * 4)


def test_the_gemm_list():
    listed = shapes.gemms(load_layers())
    gemms = [g for g, _ in listed]
    assert len(gemms) == len(set(gemms)) and 2800 <= len(gemms) <= 3200
    assert [w for _, w in listed] == sorted((w for _, w in listed), reverse=True)
    assert {g.layout for g in gemms} == {"nt", "nn", "tn"}
    assert {g.dtype for g in gemms} == {"bf16", "fp16", "tf32", "fp32", "fp8", "fp8_split"}
    assert any(g.groups > 1 for g in gemms)
    assert all(shapes.fits_pool(g) for g in gemms)
    assert all(not g.dtype.startswith("fp8") or (g.m | g.n | g.k) % 16 == 0 for g in gemms)
    assert all(
        (g.k if g.layout == "tn" else g.m) % (16 * g.groups) == 0 for g in gemms if g.groups > 1
    )
    widths = {g.k for g in gemms if g.layout == "nt" and g.dtype == "bf16"}
    assert min(widths) <= 1024 and max(widths) >= 20480  # hidden 1k to 20k
    assert listed == shapes.gemms(load_layers())  # deterministic


def test_no_shape_is_a_power_of_two_by_rule():
    odd = [g for g, _ in shapes.gemms(load_layers()) if any(x & (x - 1) for x in (g.m, g.n, g.k))]
    assert len(odd) > 1000


def test_attention_flops_and_list():
    assert Attention(1, 2, 2, 8, 8, 4, 0).flops == 4 * 2 * 8 * 8 * 4
    assert Attention(1, 2, 2, 8, 8, 4, 1).flops == 2 * 2 * 8 * 8 * 4
    listed = [a for a, _ in shapes.attentions(load_layers())]
    assert len(listed) == len(set(listed)) > 400
    assert all(a.h % a.kv_heads == 0 for a in listed)
    assert any(not a.causal for a in listed) and any(a.h != a.kv_heads for a in listed)


def test_layers_follow_from_the_table_of_runs(tmp_path):
    table = ROOT.parent.parent / "validation" / "training_measured.csv"
    if not table.exists():
        pytest.skip("the table of measured runs is not in this checkout")
    out = tmp_path / "layers.csv"
    assert derive_layers.main(["--table", str(table), "--out", str(out)]) == 0
    assert out.read_text() == (ROOT / "layers.csv").read_text()


SOURCE = (
    "id," + ",".join(derive_layers.NEEDED) + ",step_time_s\n"
    "a,Llama3-8B,4096,32,8,14336,128256,8192,,,2,1,1,1,bf16,dense-attn,{}\n"
    "b,Llama3-8B,4096,32,8,14336,128256,8192,,,2,1,1,1,bf16,dense-attn,{}\n"
    "c,ResNet,,,,,,,,,1,1,1,1,fp32,cnn,{}\n"
)


def test_derive_reads_configuration_only(tmp_path):
    outcomes = []
    for values in (("1", "2", "3"), ("", "", "")):
        table = tmp_path / "t.csv"
        table.write_text(SOURCE.format(*values))
        outcomes.append(derive_layers.derive(table))
    assert outcomes[0] == outcomes[1] == [replace(LLAMA8B, runs=2)]


def test_derive_refuses_another_table(tmp_path, capsys):
    table = tmp_path / "t.csv"
    table.write_text("a,b\n1,2\n")
    assert derive_layers.main(["--table", str(table), "--out", str(tmp_path / "o")]) == 2
    assert "t.csv:1: column names" in capsys.readouterr().err
    table.write_text(SOURCE.format(1, 2, 3).replace("4096,32", "40x6,32", 1))
    assert derive_layers.main(["--table", str(table), "--out", str(tmp_path / "o")]) == 2
    assert "t.csv:2: hidden: '40x6'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "old,new,part",
    [
        ("# orrery.layers/1", "# other", ":1: format"),
        ("model,attention", "model,kind", "column names"),
        (",2048,16,16,128,8192,0,", ",2048,16,16,0,8192,0,", "head_dim: '0'"),
        (",2048,16,16,128,8192,0,", ",2048,16,128,8192,0,", "has 18 of 19 cells"),
    ],
)
def test_damaged_layers_name_the_line(tmp_path: Path, old, new, part):
    path = tmp_path / "layers.csv"
    shutil.copy(ROOT / "layers.csv", path)
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(UserError, match=part):
        load_layers(path)
