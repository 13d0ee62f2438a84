"""What sweep and plan return: rows of a table, and where they came from."""

from __future__ import annotations

import contextlib
import csv
import pathlib
from typing import TYPE_CHECKING, Any

from . import _html

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    import pandas


class _Table:
    """A document with rows; a row is a plain mapping, values of keys under "values"."""

    _rows = "rows"

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.rows[index]

    @property
    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._document[self._rows]
        return rows

    @property
    def keys(self) -> list[str]:
        """The keys that vary."""
        keys: list[str] = self._document["keys"]
        return keys

    def __repr__(self) -> str:
        best = getattr(self, "best", None)
        first = ""
        if best is not None:
            values = ", ".join(f"{key}={value}" for key, value in best["values"].items())
            first = f"; best: {values}: {best['step_time_s']:.4g} s, {best['tokens_per_s']:,.0f} tokens/s"
        return f"<{type(self).__name__}: {len(self):,} {self._rows[: -1 if len(self) == 1 else None]}{first}>"

    def _repr_html_(self) -> str:
        shown = ("status", "step_time_s", "tokens_per_s", "mfu", "memory_bytes", "why")
        rows = [
            {name: value for name, value in row.items() if name in row_keys or name in shown}
            for row, row_keys in ((record, set(self.keys)) for record in self.records())
        ]
        return _html.table(f"{len(self):,} {self._rows}", rows)

    def to_dict(self) -> dict[str, Any]:
        """The whole document, as ``--json`` writes it."""
        return self._document

    def records(self) -> list[dict[str, Any]]:
        """Flat rows: a column for each key, each number and each part of the step."""
        flat = []
        for row in self.rows:
            record: dict[str, Any] = dict(row["values"])
            for name, value in row.items():
                if name == "parts_ps":
                    record.update({part.removesuffix("_ps") + "_ps": ps for part, ps in value.items()})
                elif name == "step_time_interval_s":
                    record["step_time_low_s"], record["step_time_high_s"] = value
                elif name not in ("values", "scores"):
                    record[name] = value
            flat.append(record)
        return flat

    def to_dataframe(self) -> pandas.DataFrame:
        """The records as a pandas DataFrame, numbers as numbers; ``.to_parquet(path)`` of it writes Parquet."""
        frame = _html.pandas().DataFrame(self.records())
        for key in self.keys:
            with contextlib.suppress(ValueError, TypeError, KeyError):
                frame[key] = _html.pandas().to_numeric(frame[key])
        return frame

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        records = self.records()
        columns = list(dict.fromkeys(name for record in records for name in record))
        with pathlib.Path(path).open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(records)


class SweepResult(_Table):
    """A row for each variant, refused ones included (``row["status"]``)."""

    @property
    def ok(self) -> list[dict[str, Any]]:
        """The rows that run and fit."""
        return [row for row in self.rows if row["status"] == "ok"]

    @property
    def best(self) -> dict[str, Any] | None:
        """The row with most tokens a second among them."""
        return max(self.ok, key=lambda row: row["tokens_per_s"], default=None)


class TrafficResult(_Table):
    """A row for each size of a collective: bytes, microseconds, GB/s, and how NCCL does it."""

    @property
    def keys(self) -> list[str]:
        return ["bytes"]

    def records(self) -> list[dict[str, Any]]:
        return [dict(row) for row in self.rows]

    def _repr_html_(self) -> str:
        return _html.table(str(self._document.get("collective", "traffic")), self.rows)


class PlanResult(_Table):
    """The best plans, best first."""

    _rows = "plans"

    @property
    def proven(self) -> bool:
        """No plan of the space is better than these."""
        return bool(self._document["proven"])

    @property
    def best(self) -> dict[str, Any]:
        return self.rows[0]
