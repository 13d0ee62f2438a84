"""The time a run may take."""

from __future__ import annotations

import time
from collections.abc import Callable


class Budget:
    """Counts seconds since it was made. A case starts only if its estimate still fits."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._start = clock()

    def used_s(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._start

    def left_s(self) -> float:
        """Seconds left, negative once overrun."""
        return self.seconds - self.used_s()

    def fits(self, estimate_s: float) -> bool:
        """True if something of `estimate_s` seconds would still end in time."""
        return estimate_s <= self.left_s()
