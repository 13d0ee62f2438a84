"""Timing of one kernel (or a short fixed list of kernels) on a stream.

Method. A *call* issues the kernel once on one of several equal sets of inputs; calls go round the
sets, whose total exceeds three times the L2 cache, so that every call reads cold inputs. A *sample*
is the time between two device events around `reps` calls, divided by `reps`; short kernels have
reps > 1, since an event resolves about half a microsecond. The stream is first held by a sleep
kernel (or, in sustained mode, by matrix products that keep the board at its power limit) while the
host queues the samples, so that the device never waits for the host. The result therefore is the
start-to-start time of back-to-back kernels on one stream, about a microsecond more than the bare
duration of a kernel. Median and quartiles are over samples.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kit.device import Device, guarded

Call = Callable[[], Any]
QUEUE_CALLS = 300  # queued behind one hold; CUDA's launch queue takes about 1,000 kernels
L2_TURNS = 3  # a full turn of the inputs touches this many times the L2


@dataclass(frozen=True)
class Timing:
    """Microseconds per call."""

    time_us: float
    time_us_q1: float
    time_us_q3: float
    samples: int
    starved: bool = False  # the device waited for the host in spite of the hold

    def columns(self, mode: str) -> dict[str, str | int | float]:
        """The columns that every timed table ends with."""
        return {
            "time_us": self.time_us,
            "time_us_q1": self.time_us_q1,
            "time_us_q3": self.time_us_q3,
            "mode": mode,
            "samples": self.samples,
        }


@dataclass(frozen=True)
class Options:
    """How long to measure one case. The defaults cost about 60 ms of device time."""

    target_us: float = 30_000.0  # device time of the samples
    sample_us: float = 200.0  # least length of one sample
    min_samples: int = 5
    max_samples: int = 40
    idle_fraction: float = 1.0  # rest after a case, as a share of its busy time (hot mode)
    max_idle_s: float = 0.1

    def busy_us(self, call_us: float) -> float:
        """Device time of a case whose call takes `call_us`: warm-up, estimate, samples."""
        samples = min(self.target_us, self.max_samples * max(call_us, self.sample_us))
        return 4 * call_us + max(samples, self.min_samples * call_us)


TINY = Options(target_us=200.0, sample_us=20.0, min_samples=3, max_samples=3, idle_fraction=0.0)


def summarise(samples: Sequence[float]) -> tuple[float, float, float]:
    """Median, first and third quartile (inclusive method) of at least one sample."""
    if len(samples) == 1:
        return samples[0], samples[0], samples[0]
    q1, median, q3 = statistics.quantiles(samples, n=4, method="inclusive")
    return median, q1, q3


def rotation(bytes_per_call: int, device: Device, most: int = 64) -> int:
    """How many equal input sets a call must go round for its inputs to be out of L2."""
    if bytes_per_call <= 0:
        return 1
    return max(1, min(most, -(-L2_TURNS * device.l2_bytes // bytes_per_call) + 1))


class Bench:
    """Times calls on one device. In sustained mode `heat` must have been called."""

    def __init__(self, device: Device, options: Options | None = None) -> None:
        self.device = device
        self.options = options or (TINY if device.tiny else Options())
        self._heater: Call | None = None
        self._heater_us = 0.0
        self.starved = 0  # timings in which the device waited for the host

    @property
    def mode(self) -> str:
        """The `mode` column."""
        return "sustained" if self._heater else "hot"

    def heat(self, seconds: float) -> None:
        """Loads the device with large bf16 products for `seconds`, and from then on."""
        self._heater = self.ramp(seconds)

    def ramp(self, seconds: float) -> Call:
        """Loads the device with large bf16 products for `seconds`; returns one such product."""
        size = 64 if self.device.tiny else 8192
        where = self.device.torch_device
        a, b = (torch.randn(size, size, device=where).to(torch.bfloat16) for _ in range(2))
        c = torch.empty_like(a)

        def product() -> None:
            torch.mm(a, b, out=c)

        guarded(product, self.device)
        self._heater_us = self._span(product, 3)[0] / 3
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for _ in range(20):
                product()
            self.device.synchronize()
        return product

    def time(self, calls: Sequence[Call], *, hold: bool = True) -> Timing:
        """Times one call, going round `calls` (equal work on different inputs).

        `hold` false is for calls that block the host (pageable copies): nothing can queue there.
        """
        o = self.options
        guarded(calls[0], self.device)
        begun = time.monotonic()
        count = max(2, min(5, len(calls)))
        span_us, host_us = self._span(_turn(calls), count)
        estimate = max(span_us / count, 0.5)
        host_us = host_us / count
        reps = max(1, min(100, round(o.sample_us / estimate)))
        samples = max(o.min_samples, min(o.max_samples, round(o.target_us / (reps * estimate))))
        turn = _turn(calls)
        times, starved = self._samples(turn, samples, reps, host_us if hold else 0.0, estimate)
        median, q1, q3 = summarise(times)
        self.starved += starved
        if self._heater is None and o.idle_fraction > 0:
            time.sleep(min(o.max_idle_s, o.idle_fraction * (time.monotonic() - begun)))
        return Timing(median, q1, q3, len(times), starved)

    def host_time(self, call: Call, count: int, repeats: int) -> list[float]:
        """Host microseconds to issue one call, `count` at a time, the device idle before each."""
        guarded(call, self.device)
        results = []
        for _ in range(repeats):
            self.device.synchronize()
            start = time.perf_counter()
            for _ in range(count):
                call()
            results.append((time.perf_counter() - start) * 1e6 / count)
        self.device.synchronize()
        return results

    def _span(self, call: Call, count: int) -> tuple[float, float]:
        """Device and host microseconds of `count` calls, measured once, after a short hold."""
        start, end = self.device.event(), self.device.event()
        self.device.hold(20.0 * count)
        start.record()
        host = time.perf_counter()
        for _ in range(count):
            call()
        host = (time.perf_counter() - host) * 1e6
        end.record()
        self.device.synchronize()
        return start.elapsed_time(end) * 1e3, host

    def _samples(
        self, turn: Call, samples: int, reps: int, host_us: float, estimate_us: float
    ) -> tuple[list[float], bool]:
        """Runs samples in batches that fit the launch queue; retries once if the hold was short."""
        times: list[float] = []
        starved = False
        batch = max(1, QUEUE_CALLS // reps)
        while len(times) < samples:
            n = min(batch, samples - len(times))
            hold_us = 1.3 * n * reps * host_us + 30.0 if estimate_us < 3 * host_us else 0.0
            got, short = self._batch(turn, n, reps, hold_us)
            if short:
                got, short = self._batch(turn, n, reps, 3 * hold_us + 500.0)
            starved |= short
            times += got
        return times, starved

    def _batch(self, turn: Call, n: int, reps: int, hold_us: float) -> tuple[list[float], bool]:
        """One hold and `n` samples behind it. True if the host took longer than the hold."""
        marks = [(self.device.event(), self.device.event()) for _ in range(n)]
        before, behind = self.device.event(), self.device.event()
        before.record()
        self._cover(hold_us)
        behind.record()
        host = time.perf_counter()
        for start, end in marks:
            start.record()
            for _ in range(reps):
                turn()
            end.record()
        host_ms = (time.perf_counter() - host) * 1e3
        self.device.synchronize()
        short = self.device.kind == "cuda" and hold_us > 0 and host_ms > before.elapsed_time(behind)
        # Events of an empty queue may read zero on a coarse clock: keep times positive.
        return [max(s.elapsed_time(e) * 1e3 / reps, 1e-3) for s, e in marks], short

    def _cover(self, hold_us: float) -> None:
        """Occupies the stream: asleep in hot mode, at full load in sustained mode."""
        if self._heater is None:
            self.device.hold(hold_us)
            return
        busy_us = max(hold_us, 0.0 if self.device.tiny else 30_000.0)
        for _ in range(1 + int(busy_us / max(self._heater_us, 1.0)) if busy_us else 1):
            self._heater()


def _turn(calls: Sequence[Call]) -> Call:
    """A call that goes round `calls`."""
    state = {"at": 0}

    def turn() -> None:
        at = state["at"]
        calls[at]()
        state["at"] = at + 1 if at + 1 < len(calls) else 0

    return turn
