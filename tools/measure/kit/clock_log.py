"""Clocks, power and temperature twice a second while a run goes on, as the table `clock`."""

from __future__ import annotations

import datetime
import subprocess
import sys
from pathlib import Path

from kit import header as header_module
from kit.device import open_device
from kit.errors import UserError
from kit.schemas import TABLES, Row
from kit.tables import Appender

PERIOD_MS = 500
FIELDS = (
    "timestamp",
    "clocks.sm",
    "clocks.mem",
    "power.draw",
    "temperature.gpu",
    "clocks_event_reasons.active",
)


class ClockLog:
    """nvidia-smi in a process of its own; it only reads. `close` makes clock.csv of its output."""

    def __init__(self, folder: Path) -> None:
        self._raw = folder / "clock.raw"
        self._table = folder / "clock.csv"
        self._file = self._raw.open("w", encoding="utf-8")
        command = [
            "nvidia-smi",
            f"--query-gpu={','.join(FIELDS)}",
            "--format=csv,noheader,nounits",
            "-lms",
            str(PERIOD_MS),
            *header_module.smi_device(),
        ]
        try:
            self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
                command, stdout=self._file, stderr=subprocess.DEVNULL
            )
        except OSError:
            self._process = None

    def close(self, tiny: bool) -> None:
        """Ends the log and writes the table, after the rows of earlier runs."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
        self._file.close()
        rows = parse(self._raw.read_text(encoding="utf-8"))
        self._raw.unlink()
        if not rows:
            return
        try:
            header = header_module.describe(open_device("cuda", tiny), "clock")
            writer = Appender(self._table, TABLES["clock"], header)
        except UserError as error:
            print(f"clock log: not kept: {error}", file=sys.stderr)
            return
        first = writer.rows
        writer.append({**row, "index": first + i} for i, row in enumerate(rows))
        writer.close({"date_after": header_module.now()})


def parse(text: str) -> list[Row]:
    """Rows from nvidia-smi's lines; a line that is cut or not a number is left out."""
    rows: list[Row] = []
    begun: datetime.datetime | None = None
    for line in text.splitlines():
        cells = [c.strip() for c in line.split(",")]
        if len(cells) != len(FIELDS):
            continue
        try:
            at = datetime.datetime.strptime(cells[0], "%Y/%m/%d %H:%M:%S.%f")
            begun = begun or at
            rows.append(
                {
                    "op": "clock",
                    "index": len(rows),
                    "seconds": (at - begun).total_seconds(),
                    "sm_mhz": int(cells[1]),
                    "memory_mhz": int(cells[2]),
                    "power_w": float(cells[3]),
                    "temperature_c": float(cells[4]),
                    "reasons": cells[5] or "none",
                }
            )
        except ValueError:
            continue
    return rows
