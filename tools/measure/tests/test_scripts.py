"""Every script runs to its end on the CPU through the code path of a GPU run, resumes and stops."""

from __future__ import annotations

import os
import signal

import pytest
import torch

import attention
import copies
import finetune
import gemm
import host_steps
import launch
import memory_bound
import overlap
import quantized
import steps
from kit import runner
from kit.errors import DeviceLost, Refused
from kit.runner import Case, Item
from kit.tables import load

SCRIPTS = {
    m.__name__: m
    for m in (
        *(gemm, attention, memory_bound, launch, overlap, steps, copies),
        *(finetune, quantized, host_steps),
    )
}
# Cases that a CPU refuses, by what torch or the kit says: nothing else may be refused.
REFUSED = {
    "gemm": ("_scaled_grouped_mm",),
    "attention": ("No viable backend",),
    "memory_bound": ("triton",),
    "finetune": ("is not installed",),  # transformers, peft, bitsandbytes: as far as they are there
    "quantized": ("is not installed",),
    "host_steps": ("is not installed",),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_runs_to_the_end_then_has_nothing_left(name, tiny, tmp_path, capfd):
    if name in ("finetune", "host_steps"):
        pytest.importorskip("transformers")
    item = SCRIPTS[name].ITEM
    assert runner.main(item, tiny) == 0
    out, err = capfd.readouterr()
    assert " 0 left," in out
    reasons = [ln for ln in err.splitlines() if ln.startswith("  refused")]
    assert all(any(part in ln for part in REFUSED.get(name, ())) for ln in reasons), reasons
    loaded = load(tmp_path / f"{item.tables[0]}.csv")
    assert loaded.rows and not loaded.is_data
    assert loaded.header["device"] == "cpu (tiny, not data)" and loaded.header["item"] == name
    for table in item.tables:
        load(tmp_path / f"{table}.csv")
    before = (tmp_path / f"{item.tables[0]}.csv").read_text()
    assert runner.main(item, tiny) == 0
    assert f"{name}: 0 cases measured" in capfd.readouterr().out
    rows = [ln for ln in before.splitlines() if not ln.startswith("#")]
    after = (tmp_path / f"{item.tables[0]}.csv").read_text().splitlines()
    assert [ln for ln in after if not ln.startswith("#")] == rows


@pytest.mark.parametrize("name", SCRIPTS)
def test_plan_runs_nothing_and_says_how_long(name, tmp_path, capsys):
    assert (
        runner.main(SCRIPTS[name].ITEM, ["plan", "--budget-s", "100", "--out", str(tmp_path / "o")])
        == 0
    )
    text = capsys.readouterr().out
    assert "start-up" in text and "a budget of 100 s covers the" in text
    assert not (tmp_path / "o").exists()


def test_the_first_items_fit_three_bounded_runs():
    seconds = 0.0
    for name in ("gemm", "attention", "memory_bound", "launch"):
        item = SCRIPTS[name].ITEM
        options = runner.parser_of(item).parse_args(["plan"])
        cases = runner.select(item, item.cases(runner.load_layers(), None, options), options)
        seconds += runner.start_s(item, options) + sum(
            runner.cost_s(item, c, options) for c in cases
        )
    assert seconds < 3 * 560


def test_sustained_rows_stand_beside_hot_ones(tiny, tmp_path):
    assert runner.main(gemm.ITEM, tiny) == 0
    assert runner.main(gemm.ITEM, [*tiny, "--mode", "sustained"]) == 0
    modes = [r["mode"] for r in load(tmp_path / "gemm.csv").rows]
    assert modes.count("sustained") > 0 and modes.count("hot") > 0


@pytest.mark.parametrize(
    "words,part",
    [
        (["--device", "cpu"], "add --tiny"),
        (["--device", "cpu", "--tiny", "--budget-s", "0"], "--budget-s"),
        (["--device", "cpu", "--tiny", "--budget-s", "nan"], "--budget-s"),
        (["--layers", "/nowhere/layers.csv"], "layers.csv"),
    ],
)
def test_bad_usage_ends_with_2_and_a_remedy(words, part, tmp_path, capsys):
    assert runner.main(launch.ITEM, ["run", "--out", str(tmp_path), *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and part in error and error.count("\n") == 1


def test_a_folder_that_cannot_be_made_ends_with_3(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert (
        runner.main(
            launch.ITEM, ["--device", "cpu", "--tiny", "--out", str(tmp_path / "file" / "x")]
        )
        == 3
    )
    assert "check --out" in capsys.readouterr().err


class Fake:
    """An item of ten launch cases that count how often they ran."""

    def __init__(self, action=lambda i: None) -> None:
        self.ran: list[int] = []
        self.action = action
        self.item = Item("launch", "A test.", ("launch",), self.cases, self.measure)

    def cases(self, layers, device, options):
        return [
            Case(
                {"op": "launch", "kernel": "k", "path": "host", "count": i + 1, "mode": "hot"},
                100.0 - i,
                1.0,
                "all",
            )
            for i in range(10)
        ]

    def measure(self, context, case):
        i = int(case.key["count"]) - 1
        self.ran.append(i)
        self.action(i)
        return [
            (
                "launch",
                {**case.key, "time_us": 1.0, "time_us_q1": 1.0, "time_us_q3": 1.0, "samples": 1},
            )
        ]


def test_the_budget_stops_the_run_and_the_next_goes_on(tiny, tmp_path, monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(
        runner, "Budget", lambda s: __import__("kit.budget").budget.Budget(s, lambda: now[0])
    )

    def second(i: int) -> None:
        now[0] += 1.0

    fake = Fake(second)
    assert runner.main(fake.item, [*tiny, "--budget-s", "4"]) == 0
    assert fake.ran == [0, 1, 2, 3]
    assert "4 cases measured" in (out := capsys.readouterr()).out and "6 left" in out.out
    assert "the same command goes on" in out.err
    now[0] = 0.0
    assert runner.main(fake.item, [*tiny, "--budget-s", "100"]) == 0
    assert fake.ran == list(range(10))


def test_interrupt_keeps_what_was_measured_and_exits_130(tiny, tmp_path, capsys):
    def interrupt(i: int) -> None:
        if i == 2:
            os.kill(os.getpid(), signal.SIGINT)

    fake = Fake(interrupt)
    before = signal.getsignal(signal.SIGINT)
    assert runner.main(fake.item, tiny) == 130
    assert signal.getsignal(signal.SIGINT) is before
    assert len(load(tmp_path / "launch.csv").rows) == 3
    assert "interrupted; the same command goes on" in capsys.readouterr().err
    fake.action = lambda i: None
    assert runner.main(fake.item, tiny) == 0
    assert fake.ran == list(range(10))


def test_a_refused_case_does_not_end_the_run_but_a_lost_device_does(tiny, tmp_path, capsys):
    def refuse(i: int) -> None:
        if i == 1:
            raise Refused("not here")
        if i == 5:
            raise DeviceLost("gone")

    fake = Fake(refuse)
    assert runner.main(fake.item, tiny) == 3
    loaded = load(tmp_path / "launch.csv")
    assert [r["count"] for r in loaded.rows] == [1, 3, 4, 5] and loaded.header["refused"] == "1"
    assert "the device failed: gone" in capsys.readouterr().err


def test_memory_is_given_back_and_the_case_tried_once_more(tiny, tmp_path):
    failed: list[int] = []

    def short(i: int) -> None:
        if i == 4 and not failed:
            failed.append(i)
            raise torch.OutOfMemoryError("no room")

    fake = Fake(short)
    assert runner.main(fake.item, tiny) == 0
    assert fake.ran.count(4) == 2 and len(load(tmp_path / "launch.csv").rows) == 10


def test_resume_over_a_damaged_file_is_refused_with_its_line(tiny, tmp_path, capsys):
    fake = Fake()
    assert runner.main(fake.item, tiny) == 0
    path = tmp_path / "launch.csv"
    path.write_text(path.read_text().replace("launch,k,host,3,", "launch,k,host,x,"))
    assert runner.main(fake.item, tiny) == 2
    assert "count: 'x'" in capsys.readouterr().err
