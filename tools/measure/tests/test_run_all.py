"""Several items in one bounded run; clock log; counters of ncu; the allocator's history."""

from __future__ import annotations

import tarfile

import pytest

import overlap
import run_all
import steps
from kit import clock_log, ncu
from kit.errors import Refused
from kit.schemas import TABLES
from kit.tables import format_row, load


def arguments(tmp_path, *more: str) -> list[str]:
    return ["run", "--device", "cpu", "--tiny", "--out", str(tmp_path / "out"), *more]


def test_items_run_in_order_of_worth_and_pack_their_files(tmp_path, capfd):
    archive = tmp_path / "m.tar.gz"
    words = arguments(
        tmp_path, "--items", "copies,launch", "--budget-s", "60", "--archive", str(archive)
    )
    assert run_all.main(words) == 0
    out = capfd.readouterr().out
    assert out.index("launch:") < out.index("copies:")
    with tarfile.open(archive) as tar:
        assert tar.getnames() == ["copies.csv", "launch.csv"]
    # A second folder goes on from the first: nothing is left to measure.
    again = [
        "run",
        "--device",
        "cpu",
        "--tiny",
        "--out",
        str(tmp_path / "two"),
        "--items",
        "copies",
        "--start-from",
        str(tmp_path / "out"),
    ]
    assert run_all.main(again) == 0
    assert "copies: 0 cases measured, 22 kept" in capfd.readouterr().out


def test_an_item_that_fails_does_not_stop_the_others(tmp_path, capfd):
    out = tmp_path / "out"
    out.mkdir()
    (out / "launch.csv").write_text("damaged\n")
    assert run_all.main(arguments(tmp_path, "--items", "launch,copies", "--budget-s", "60")) == 2
    assert load(out / "copies.csv").rows
    assert "launch.csv:1: format" in capfd.readouterr().err


@pytest.mark.parametrize(
    "words,part",
    [
        (["--items", "gem"], "--items: 'gem'"),
        (["--items", ","], "names nothing"),
        (["--budget-s", "-1"], "--budget-s"),
        (["--start-from", "/nowhere/at/all"], "--start-from"),
    ],
)
def test_bad_usage(words, part, tmp_path, capsys):
    assert run_all.main(arguments(tmp_path, *words)) == 2
    assert part in capsys.readouterr().err


def test_shares_follow_weights_and_roll_on():
    phases = run_all.chosen("gemm,launch")
    first = run_all.share_s(phases, 0, 335.0)
    assert first == pytest.approx(335.0 * 3.0 / 3.35)
    assert run_all.share_s(phases, 1, 335.0 - 100.0) == pytest.approx(235.0)  # all that is left


def test_plan_of_everything(capsys):
    assert run_all.main(["plan", "--items", "gemm,launch", "--budget-s", "500"]) == 0
    assert "-- gemm: 448 s of 500" in capsys.readouterr().out


def test_clock_log_lines():
    text = (
        "2026/01/02 10:00:00.000, 1980, 3201, 310.52, 45, 0x0000000000000000\n"
        "2026/01/02 10:00:00.500, 1755, 3201, 699.10, 61, 0x0000000000000004\n"
        "2026/01/02 10:00:01.000, [N/A], 3201, 1, 2, 0x0\n2026/01/02 10:0"
    )
    rows = clock_log.parse(text)
    assert [(r["seconds"], r["sm_mhz"], r["power_w"]) for r in rows] == [
        (0.0, 1980, 310.52),
        (0.5, 1755, 699.1),
    ]
    assert format_row(TABLES["clock"], rows[1]).startswith("clock,1,0.5,1755,3201,699.1,61,0x")


NCU = """==PROF== Connected to process 1
"ID","Kernel Name","Grid Size","dram__bytes_read.sum","gpu__time_duration.sum","other"
"","","","Mbyte","usecond","x"
"0","spin_kernel(long)","(1,1,1)","0","5","1"
"1","gemm_a","(8,1,1)","1,024.5","312.25","1"
"2","gemm_b","(8,1,1)","2","n/a","1"
"3","spin_kernel(long)","(1,1,1)","0","5","1"
"4","norm","(4,1,1)","3","7","1"
"""


def test_ncu_kernels_go_to_the_subject_after_whose_marker_they_stand():
    subjects = [
        {"dtype": "bf16", "subject": "gemm", "kernel": "nt", "shape": "m=1"},
        {"dtype": "bf16", "subject": "memory_bound", "kernel": "add", "shape": "rows=1"},
    ]
    rows = ncu.parse(NCU, subjects)
    got = [(r["kernel"], r["launch"], r["index"], r["metric"], r["value"], r["unit"]) for r in rows]
    assert got == [
        ("nt", "gemm_a", 0, "dram__bytes_read.sum", 1024.5, "Mbyte"),
        ("nt", "gemm_a", 0, "gpu__time_duration.sum", 312.25, "usecond"),
        ("nt", "gemm_b", 1, "dram__bytes_read.sum", 2.0, "Mbyte"),
        ("add", "norm", 0, "dram__bytes_read.sum", 3.0, "Mbyte"),
        ("add", "norm", 0, "gpu__time_duration.sum", 7.0, "usecond"),
    ]
    for row in rows:
        format_row(TABLES["ncu"], row)
    with pytest.raises(Refused, match="no permission"):
        ncu.parse("==ERROR== no permission", subjects)


def test_ncu_leaves_clocks_alone(monkeypatch):
    monkeypatch.setattr(ncu.shutil, "which", lambda name: "/bin/ncu")
    words = ncu.command("overlap.py", ["run"])
    assert words[words.index("--clock-control") + 1] == "none"
    monkeypatch.setattr(ncu.shutil, "which", lambda name: None)
    with pytest.raises(Refused, match="ncu is not installed"):
        ncu.command("overlap.py", [])


def test_allocator_history_numbers_addresses_and_streams():
    trace = [
        {"action": "segment_alloc", "addr": 4096, "size": 2048, "stream": 7},
        {"action": "alloc", "addr": 4096, "size": 512, "stream": 7},
        {"action": "alloc", "addr": 8192, "size": 1024, "stream": 0},
        {"action": "free_completed", "addr": 4096, "size": 512, "stream": 7},
    ]
    rows = steps.memory_rows(trace, "m")
    assert [(r["block"], r["stream"]) for r in rows] == [(0, 0), (0, 0), (1, 1), (0, 0)]


def test_overlap_subjects_vary_and_last(capsys):
    chosen = overlap.subjects(overlap.runner.load_layers(), None, False)
    assert len(chosen) == sum(overlap.COUNTS.values())
    assert all(overlap.LEAST_US <= c.est_us <= overlap.MOST_US for c, _ in chosen)
    kinds = {c.group for c, table in chosen if table == "gemm"}
    assert len(kinds) >= 3
    rows = [c.key["kernel"] for c, table in chosen if table == "memory_bound"]
    assert len(rows) == len(set(rows))
