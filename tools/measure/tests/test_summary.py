"""The summary: rates by hand, outliers, refusal of trial runs, JSON, plots."""

from __future__ import annotations

import json
import struct

import pytest
from conftest import HEADER

import summary
from kit import analysis
from kit.schemas import TABLES
from kit.tables import Appender, load

TIME = {"time_us_q1": 0.99, "time_us_q3": 1.01}


def timed(us: float, mode: str = "hot") -> dict:
    return {
        "time_us": us,
        "time_us_q1": 0.99 * us,
        "time_us_q3": 1.01 * us,
        "mode": mode,
        "samples": 9,
    }


def gemm_row(m: int, us: float, mode: str = "hot", dtype: str = "bf16") -> dict:
    return {
        "op": "gemm",
        "dtype": dtype,
        "layout": "nt",
        "m": m,
        "n": 4096,
        "k": 4096,
        "groups": 1,
        **timed(us, mode),
    }


def write(folder, table: str, rows, **header: str):
    writer = Appender(folder / f"{table}.csv", TABLES[table], {**HEADER, "item": table, **header})
    writer.append(rows)
    writer.close({"clocks_after": "sm=1500MHz"})
    return folder / f"{table}.csv"


def overlap_rows():
    for m, alone in ((1024, 50.0), (4096, 200.0)):
        key = {
            "op": "overlap",
            "dtype": "bf16",
            "subject": "gemm",
            "kernel": "nt",
            "shape": f"m={m}",
            "repeat": 1,
            "rate_set_GBps": 0.0,
        }
        yield {
            **key,
            "beside": "copy_kernel",
            "ctas": 16,
            "rate_got_GBps": 900.0,
            **timed(1.5 * alone),
        }
        yield {**key, "beside": "none", "ctas": 0, "rate_got_GBps": 0.0, **timed(alone)}


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "h200"
    # 2 * 4096^3 = 1.374e11 FLOP: 200 us are 687 TFLOP/s; the slow one has a fifth of that rate.
    good = [gemm_row(4096 + 16 * i, 200.0 + i) for i in range(8)]
    write(
        folder,
        "gemm",
        [*good, gemm_row(8192, 2000.0), gemm_row(2048, 10.0), gemm_row(4096, 250.0, "sustained")],
    )
    write(
        folder,
        "attention",
        [
            {
                "op": "attention",
                "dtype": "bf16",
                "kernel": "flash",
                "b": 1,
                "h": 32,
                "kv_heads": 8,
                "s_q": s,
                "s_kv": s,
                "d": 128,
                "causal": 1,
                "pass": p,
                **timed(s * s / 2e4 * f),
            }
            for s in (2048, 4096, 8192)
            for p, f in (("fwd", 1), ("bwd", 3))
        ],
    )
    write(
        folder,
        "memory_bound",
        [
            {
                "op": "memory_bound",
                "dtype": "bf16",
                "kernel": k,
                "rows": r,
                "cols": 4096,
                "bytes": r * 16384,
                **timed(4.0 + r * 16384 / 4.0e6),
            }
            for k in ("add", "gelu_fwd")
            for r in (16, 1024, 65536)
        ],
    )
    write(
        folder,
        "copies",
        [
            {
                "op": "copy",
                "kernel": "d2d_copy",
                "bytes": b,
                "row_bytes": b,
                "stride_bytes": b,
                "moved_bytes": 2 * b,
                **timed(3.0 + 2 * b / 4.2e6),
            }
            for b in (1 << 16, 1 << 24, 1 << 30)
        ],
    )
    write(folder, "overlap", overlap_rows())
    write(
        folder,
        "clock",
        [
            {
                "op": "clock",
                "index": i,
                "seconds": i / 2,
                "sm_mhz": 1980 - i,
                "memory_mhz": 3201,
                "power_w": 500.0 + i,
                "temperature_c": 50.0,
                "reasons": "0x0",
            }
            for i in range(20)
        ],
    )
    return folder


def test_rates_by_hand(data):
    rows = load(data / "gemm.csv").rows
    assert analysis.gemm_tflops(rows[0]) == pytest.approx(2 * 4096**3 / 200e-6 / 1e12)
    attention = load(data / "attention.csv").rows[0]
    # 2048^2 causal: 4 * 32 * 2048^2 * 128 / 2 = 3.44e10 FLOP in 209.7 us.
    assert analysis.attention_tflops(attention) == pytest.approx(163.84, rel=1e-3)
    copy = load(data / "copies.csv").rows[2]
    assert analysis.bandwidth(copy, "moved_bytes") == pytest.approx(4200, rel=1e-2)


def test_outliers_are_the_slow_row_and_the_one_over_the_data_sheet(data):
    found = analysis.outliers(load(data / "gemm.csv"))
    assert [(o.row["m"], "data sheet" in o.reason) for o in found] == [(2048, True), (8192, False)]


def test_sustained_and_slowdown(data):
    assert analysis.sustained_ratios(load(data / "gemm.csv")) == [pytest.approx(1.25)]
    assert analysis.slowdowns(load(data / "overlap.csv")) == {
        "copy_kernel 16 blocks": [("gemm", pytest.approx(1.5)), ("gemm", pytest.approx(1.5))]
    }


def test_text_names_ceilings_beside_the_data_sheet(data, capsys):
    assert summary.main([str(data)]) == 0
    text = capsys.readouterr().out
    assert "of the data sheet's 4800" in text and "d2d_copy" in text
    assert "sustained / hot time: median 1.250" in text
    assert "together / alone: median 1.500" in text


def test_json_is_one_document(data, capsys):
    assert summary.main([str(data), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "orrery.measured-summary/1"
    assert {t["table"] for t in document["tables"]} == {
        "gemm",
        "attention",
        "memory_bound",
        "copies",
        "overlap",
        "clock",
    }


def test_plots_are_images_of_some_size(data, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    assert summary.main([str(data), "--plots", str(tmp_path / "plots")]) == 0
    made = sorted((tmp_path / "plots").glob("*.png"))
    assert [p.stem for p in made] == [
        "attention",
        "clock",
        "copies",
        "gemm",
        "memory_bound",
        "overlap",
    ]
    for path in made:
        head = path.read_bytes()[:24]
        assert head[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack(">I", head[16:20])[0] > 500


def test_trial_runs_are_refused_as_data(tmp_path, capsys):
    path = write(tmp_path, "gemm", [gemm_row(16, 1.0)], device="cpu (tiny, not data)")
    assert summary.main([str(path)]) == 2
    assert "is a trial run, not data" in capsys.readouterr().err
    assert summary.main([str(path), "--allow-tiny"]) == 0


def test_damage_ends_with_2_and_the_line(data, capsys):
    path = data / "gemm.csv"
    path.write_text(path.read_text().replace("bf16,nt,4112", "bf16,xx,4112"))
    assert summary.main([str(data)]) == 2
    error = capsys.readouterr().err
    assert "gemm.csv:15: layout: 'xx'" in error and "valid: nn, nt, tn" in error


def test_an_empty_folder_is_refused(tmp_path, capsys):
    assert summary.main([str(tmp_path)]) == 2
    assert "holds no CSV file" in capsys.readouterr().err
