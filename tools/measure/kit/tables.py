"""Writes and reads the kit's CSV tables, `orrery.measured/1` (schemas: kit/schemas.py)."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kit.errors import UserError
from kit.schemas import TABLES, Row, Table, Value, cell_text

MAGIC = "# orrery.measured/1"
NOT_DATA = "(tiny, not data)"
MAX_FILE_BYTES = 256 * 1024 * 1024  # a table of 3,000 GEMM rows is 0.3 MB
MAX_LINE_CHARS = 4096


@dataclass
class Loaded:
    """A table read and checked: header keys, rows as typed values, and the file's lines."""

    path: Path
    table: Table
    header: dict[str, str]
    rows: list[Row]
    torn: bool = False  # the last line had no end: cut by a kill

    @property
    def is_data(self) -> bool:
        """False for tiny or CPU runs, whose times mean nothing."""
        return NOT_DATA not in self.header["device"]


def format_row(table: Table, row: Mapping[str, Value]) -> str:
    """One CSV line. Floats have at most four digits after the point."""
    unknown = set(row) - set(table.names)
    missing = [n for n in table.names if n not in row]
    if unknown or missing:
        raise ValueError(f"{table.name}: unknown {sorted(unknown)}, missing {missing}")
    out = io.StringIO()
    cells = [cell_text(row[n]) for n in table.names]
    csv.writer(out, lineterminator="\n").writerow(cells)
    return out.getvalue()


def header_lines(header: Mapping[str, str]) -> list[str]:
    """The lines before the column names. Values lose line breaks."""
    return [MAGIC] + [f"# {k}: {' '.join(str(v).split())}" for k, v in header.items()]


class Appender:
    """Writes one table: rows are flushed one by one, the header is renewed at the end.

    An existing file is continued; its rows are known by key, so that a case is measured once.
    """

    def __init__(self, path: Path, table: Table, header: Mapping[str, str]) -> None:
        self.path, self.table = path, table
        self.header = {"table": table.name, **header}
        self.done: set[tuple[str, ...]] = set()
        self.rows = 0
        if path.exists():
            self._continue()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            _replace(path, "\n".join(header_lines(self.header) + [",".join(table.names)]) + "\n")
        self._file = path.open("a", encoding="utf-8", newline="")

    def _continue(self) -> None:
        old = load(self.path, allow_torn=True)
        for key in ("table", "device", "gpu_name", "torch", "driver", "blas"):
            mine, theirs = self.header.get(key, ""), old.header.get(key, "")
            if key == "driver":  # a branch is enough: two machines of one kind differ in the patch
                mine, theirs = mine.split(".")[0], theirs.split(".")[0]
            if mine != theirs:
                raise UserError(
                    f"{self.path}:1",
                    key,
                    theirs,
                    f"this run has {mine!r}",
                    "write to another --out folder",
                )
        if old.torn:
            text = self.path.read_text(encoding="utf-8")
            _replace(self.path, text[: text.rfind("\n") + 1])
        self.done = {self.table.key_of(r) for r in old.rows}
        self.rows = len(old.rows)
        runs = int(old.header.get("runs", "1")) + 1
        again = {
            f"{key}_{runs}": self.header[key]
            for key in ("date", "command", "driver", "clocks_before")
            if key in self.header
        }
        self.header = {**old.header, "runs": str(runs), **again}

    def append(self, rows: Iterable[Mapping[str, Value]]) -> None:
        """Adds rows that are not there yet, in one write, so that a killed run keeps them."""
        text = ""
        for row in rows:
            key = self.table.key_of(row)
            if key not in self.done:
                text += format_row(self.table, row)
                self.done.add(key)
                self.rows += 1
        self._file.write(text)
        self._file.flush()

    def close(self, final: Mapping[str, str]) -> None:
        """Adds the header keys known only at the end (clocks after) and syncs the file."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        body = [
            ln
            for ln in self.path.read_text(encoding="utf-8").splitlines(keepends=True)
            if not ln.startswith("#")
        ]
        _replace(
            self.path, "\n".join(header_lines({**self.header, **final})) + "\n" + "".join(body)
        )


def _replace(path: Path, text: str) -> None:
    """Writes a whole file or nothing: temporary, sync, rename."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("w", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def load(path: Path, *, allow_torn: bool = False) -> Loaded:
    """Reads and checks one table; every defect is a UserError with file, line, field and remedy."""
    text = _read(path)
    torn = not text.endswith("\n")
    if torn and not allow_torn:
        raise UserError(
            f"{path}:{text.count(chr(10)) + 1}",
            "line end",
            text[-40:],
            "the last line is cut",
            "run the script again: it resumes and repairs the file",
        )
    lines = text.split("\n")[:-1]
    header, first = _read_header(path, lines)
    table = TABLES.get(header.get("table", ""))
    if table is None:
        raise UserError(
            f"{path}:2",
            "table",
            header.get("table", ""),
            "is no known table",
            f"valid: {', '.join(TABLES)}",
        )
    if "device" not in header:
        raise UserError(f"{path}:2", "device", "", "is missing", "add the line `# device: cuda`")
    if first >= len(lines) or lines[first].rstrip("\r") != ",".join(table.names):
        found = lines[first] if first < len(lines) else ""
        raise UserError(
            f"{path}:{first + 1}",
            "column names",
            found,
            "do not fit the table",
            f"expected {','.join(table.names)}",
        )
    rows = _read_rows(path, lines, first + 1, table)
    return Loaded(path, table, header, rows, torn)


def _read(path: Path) -> str:
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise UserError(
                str(path), "size", size, f"is over {MAX_FILE_BYTES} bytes", "split the file"
            )
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(
            str(path), "file", path.name, error.strerror or "cannot be read", "check the path"
        ) from error
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: byte {error.start}", "text", error.reason, "is not UTF-8", "restore the file"
        ) from error
    if not text.startswith(MAGIC + "\n"):
        raise UserError(
            f"{path}:1",
            "format",
            text[:40].split("\n")[0],
            "is not this format",
            f"the first line must be `{MAGIC}`",
        )
    return text


def _read_header(path: Path, lines: Sequence[str]) -> tuple[dict[str, str], int]:
    header: dict[str, str] = {}
    for number, line in enumerate(lines[1:], start=2):
        if not line.startswith("#"):
            return header, number - 1
        name, colon, value = line[1:].partition(":")
        if not colon or not name.strip():
            raise UserError(
                f"{path}:{number}",
                "header",
                line[:60],
                "is not `# key: value`",
                "restore the line or delete it",
            )
        if name.strip() in header:
            raise UserError(
                f"{path}:{number}",
                name.strip(),
                value.strip(),
                "stands there twice",
                "delete one of the two lines",
            )
        header[name.strip()] = value.strip()
    return header, len(lines)


def _read_rows(path: Path, lines: Sequence[str], first: int, table: Table) -> list[Row]:
    rows: list[Row] = []
    seen: dict[tuple[str, ...], int] = {}
    for number, line in enumerate(lines[first:], start=first + 1):
        place = f"{path}:{number}"
        if len(line) > MAX_LINE_CHARS:
            raise UserError(
                place,
                "line",
                line[:40],
                f"is over {MAX_LINE_CHARS} characters",
                "restore the line or delete it",
            )
        try:
            cells = next(csv.reader([line], strict=True), [])
        except csv.Error as error:
            raise UserError(place, "line", line[:60], str(error), "restore or delete it") from error
        if len(cells) != len(table.columns):
            raise UserError(
                place,
                "line",
                line[:60],
                f"has {len(cells)} of {len(table.columns)} cells",
                "restore the line or delete it",
            )
        row = {c.name: c.parse(t, place) for c, t in zip(table.columns, cells, strict=True)}
        if table.timed and not row["time_us_q1"] <= row["time_us"] <= row["time_us_q3"]:  # type: ignore[operator]
            raise UserError(
                place, "time_us", row["time_us"], "lies outside its quartiles", "measure it again"
            )
        key = table.key_of(row)
        if key in seen:
            raise UserError(
                place, "row", ",".join(key), f"repeats line {seen[key]}", "delete one of the two"
            )
        seen[key] = number
        rows.append(row)
    return rows
