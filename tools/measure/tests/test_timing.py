"""Timing: quartiles by hand, rotation, turns, what becomes of errors."""

from __future__ import annotations

import pytest
import torch

from kit.budget import Budget
from kit.device import Device, guarded, open_device, slug_of
from kit.errors import DeviceLost, OutOfMemory, Refused, UserError
from kit.timing import Bench, Options, rotation, summarise

CPU = open_device("cpu", True)


def test_quartiles_by_hand():
    assert summarise([7.0]) == (7.0, 7.0, 7.0)
    # 1 2 3 4 5: the middle is 3, the inclusive quartiles are the 2nd and the 4th.
    assert summarise([5.0, 1.0, 4.0, 2.0, 3.0]) == (3.0, 2.0, 4.0)


def test_rotation_leaves_the_cache():
    device = Device("cpu", True, "x", "x", 1, 1000, 1 << 30)
    assert rotation(100, device) == 31  # 3 * 1000 / 100, and one more
    assert rotation(5000, device) == 2
    assert rotation(1, device) == 64  # bounded
    assert rotation(0, device) == 1


def test_calls_go_round_all_inputs():
    seen = []
    calls = [lambda i=i: seen.append(i) for i in range(3)]
    timing = Bench(CPU, Options(target_us=50, sample_us=1, min_samples=4, idle_fraction=0)).time(
        calls
    )
    assert timing.samples >= 4
    assert timing.time_us_q1 <= timing.time_us <= timing.time_us_q3
    timed = seen[1 + 3 :]  # after one warm-up call and an estimate over min(5, 3) calls
    assert timed == [i % 3 for i in range(len(timed))]


def test_sustained_mode_keeps_the_device_loaded():
    bench = Bench(CPU)
    assert bench.mode == "hot"
    bench.heat(0.01)
    assert bench.mode == "sustained"
    assert bench.time([lambda: None]).columns(bench.mode)["mode"] == "sustained"


def test_the_budget_counts_from_its_start():
    now = [100.0]
    budget = Budget(10.0, lambda: now[0])
    now[0] = 104.0
    assert budget.used_s() == 4.0 and budget.fits(6.0) and not budget.fits(6.1)


def fail(error: Exception):
    def call() -> None:
        raise error

    return call


def test_errors_are_sorted_into_refused_and_lost(monkeypatch):
    with pytest.raises(OutOfMemory):
        guarded(fail(torch.OutOfMemoryError("no")), CPU)
    with pytest.raises(Refused, match="not implemented"):
        guarded(fail(RuntimeError("not implemented\nC++ trace")), CPU)
    with pytest.raises(Refused, match="CUBLAS"):
        guarded(fail(RuntimeError("CUDA error: CUBLAS_STATUS_NOT_SUPPORTED")), CPU)
    monkeypatch.setattr(Device, "alive", lambda self: False)
    with pytest.raises(DeviceLost, match="illegal"):
        guarded(fail(RuntimeError("CUDA error: an illegal memory access")), CPU)


def test_a_cpu_run_must_be_tiny():
    with pytest.raises(UserError, match="add --tiny"):
        open_device("cpu", False)
    if not torch.cuda.is_available():
        with pytest.raises(UserError, match="no CUDA device"):
            open_device("cuda", False)


def test_slugs():
    assert slug_of("NVIDIA H200") == "h200"
    assert slug_of("NVIDIA A100-SXM4-80GB") == "a100-sxm4-80gb"
    assert slug_of("NVIDIA H100 80GB HBM3") == "h100-80gb-hbm3"
