"""The timing method on a simulated GPU: a queue, fed by a host that is slower or faster."""

from __future__ import annotations

import pytest

from kit import timing
from kit.timing import Bench, Options


class Gpu:
    """One stream. Times in microseconds; the host and the device each have a clock."""

    kind, tiny, l2_bytes = "cuda", False, 60 << 20

    def __init__(self, host_us: float, device_us: float, short_hold: bool = False) -> None:
        self.host_us, self.device_us = host_us, device_us
        self.host = self.device = 0.0
        self.hold_factor = 0.1 if short_hold else 1.0
        self.idle = 0.0  # time the stream stood empty between calls

    def event(self) -> Event:
        return Event(self)

    def synchronize(self) -> None:
        self.host = max(self.host, self.device)

    def alive(self) -> bool:
        return True

    def hold(self, microseconds: float) -> None:
        self.device = max(self.device, self.host) + microseconds * self.hold_factor

    def call(self) -> None:
        self.host += self.host_us
        self.device = max(self.device, self.host) + self.device_us


class Event:
    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.at = gpu, 0.0

    def record(self) -> None:
        self.gpu.host += 0.5
        self.at = max(self.gpu.device, self.gpu.host)

    def elapsed_time(self, end: Event) -> float:
        return (end.at - self.at) / 1e3


class Clock:
    """Stands in for the module `time`, on the simulated host's clock."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu

    def perf_counter(self) -> float:
        return self.gpu.host / 1e6

    monotonic = perf_counter

    def sleep(self, seconds: float) -> None:
        self.gpu.host += seconds * 1e6


def run(gpu: Gpu, monkeypatch) -> tuple[timing.Timing, Bench]:
    monkeypatch.setattr(timing, "time", Clock(gpu))
    bench = Bench(gpu, Options())  # type: ignore[arg-type]
    return bench.time([gpu.call] * 3), bench


@pytest.mark.parametrize(
    "host_us,device_us",
    [(5.0, 3.0), (5.0, 1.0), (100.0, 20.0), (5.0, 50.0), (5.0, 5_000.0), (300.0, 250.0)],
)
def test_device_time_is_exact_whether_the_host_is_slower_or_faster(host_us, device_us, monkeypatch):
    got, bench = run(Gpu(host_us, device_us), monkeypatch)
    assert got.time_us == pytest.approx(device_us, rel=1e-6)
    assert got.time_us_q3 == pytest.approx(device_us, rel=1e-6)
    assert not got.starved and bench.starved == 0 and got.samples >= 5


def test_a_hold_that_is_too_short_is_noticed(monkeypatch):
    got, bench = run(Gpu(20.0, 3.0, short_hold=True), monkeypatch)
    assert got.starved and bench.starved == 1
    assert got.time_us > 3.0


def test_one_case_costs_about_what_the_plan_says(monkeypatch):
    # 40 samples of 400 us, about 4 calls to warm up and estimate; then a rest as long.
    gpu = Gpu(5.0, 400.0)
    run(gpu, monkeypatch)
    assert gpu.host == pytest.approx(2 * 44 * 400.0, rel=0.05)
    assert Options().busy_us(400.0) == pytest.approx(gpu.host / 2, rel=0.1)
    # Short calls: 40 samples of 200 us each. Long ones: 5 samples. Between: 30 ms.
    assert Options().busy_us(10.0) == 8_000.0 + 40.0
    assert Options().busy_us(20_000.0) == 9 * 20_000.0
    assert Options().busy_us(1_000.0) == 34_000.0
