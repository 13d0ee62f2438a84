"""The CSV: round trip, resume, and for any damage an error with file, line, field and remedy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import HEADER, ROOT

from kit.errors import UserError
from kit.schemas import TABLES
from kit.tables import Appender, format_row, load

ROW = {
    "op": "gemm",
    "dtype": "bf16",
    "layout": "nt",
    "m": 4096,
    "n": 6144,
    "k": 4096,
    "groups": 1,
    "time_us": 312.4,
    "time_us_q1": 311.0,
    "time_us_q3": 313.25,
    "mode": "hot",
    "samples": 9,
}


def write(path: Path, rows: int = 3) -> Path:
    writer = Appender(path, TABLES["gemm"], HEADER)
    writer.append({**ROW, "m": 16 * (i + 1)} for i in range(rows))
    writer.close({"clocks_after": "sm=1980MHz"})
    return path


def test_round_trip(tmp_path):
    loaded = load(write(tmp_path / "gemm.csv"))
    assert loaded.is_data and not loaded.torn
    assert loaded.header["clocks_after"] == "sm=1980MHz"
    assert [r["m"] for r in loaded.rows] == [16, 32, 48]
    assert loaded.rows[0] == {**ROW, "m": 16}
    assert not list(tmp_path.glob("*.tmp"))


def test_resume_keeps_rows_and_skips_known_keys(tmp_path):
    path = write(tmp_path / "gemm.csv")
    writer = Appender(path, TABLES["gemm"], HEADER)
    writer.append([{**ROW, "m": 16, "time_us": 1.0}, {**ROW, "m": 64}])
    writer.close({})
    loaded = load(path)
    assert [r["m"] for r in loaded.rows] == [16, 32, 48, 64]
    assert loaded.rows[0]["time_us"] == 312.4  # measured once
    assert loaded.header["runs"] == "2" and loaded.header["command_2"] == HEADER["command"]


def test_a_torn_last_line_is_refused_by_readers_and_repaired_by_resume(tmp_path):
    path = write(tmp_path / "gemm.csv")
    path.write_text(path.read_text()[:-20])
    with pytest.raises(UserError, match=r"last line is cut.*resumes and repairs"):
        load(path)
    writer = Appender(path, TABLES["gemm"], HEADER)
    assert len(writer.done) == 2
    writer.append([{**ROW, "m": 48}])
    writer.close({})
    assert len(load(path).rows) == 3


def test_every_prefix_of_a_file_loads_or_says_why(tmp_path):
    text = write(tmp_path / "gemm.csv").read_text()
    path = tmp_path / "cut.csv"
    for length in range(0, len(text), 7):
        path.write_text(text[:length])
        try:
            load(path)
        except UserError as error:
            assert str(error).startswith(str(path))


@pytest.mark.parametrize("key", ["device", "gpu_name", "torch", "driver", "blas"])
def test_resume_on_another_machine_is_refused(tmp_path, key):
    path = write(tmp_path / "gemm.csv")
    with pytest.raises(UserError, match=rf"{key}.*another --out"):
        Appender(path, TABLES["gemm"], {**HEADER, key: "other"})


def test_a_newer_patch_of_the_driver_goes_on_and_is_noted(tmp_path):
    path = write(tmp_path / "gemm.csv")
    writer = Appender(path, TABLES["gemm"], {**HEADER, "driver": HEADER["driver"] + ".9"})
    writer.close({})
    assert load(path).header["driver_2"] == HEADER["driver"] + ".9"


DAMAGE = [  # (replace, by, line of the error, field, part of the message)
    ("# orrery.measured/1\n", "# orrery.measured/2\n", 1, "format", "first line must be"),
    ("# table: gemm", "# table: gem", 2, "table", "valid: gemm"),
    ("# device: cuda\n", "", 2, "device", "is missing"),
    ("# gpu: h200", "# gpu h200", 5, "header", "`# key: value`"),
    ("# gpu: h200", "# item: gemm", 5, "item", "stands there twice"),
    ("op,dtype,", "op,type,", 13, "column names", "expected op,dtype,"),
    ("gemm,bf16,nt,32,", "gemm,bf17,nt,32,", 15, "dtype", "valid: bf16"),
    ("gemm,bf16,nt,32,", "gemm,bf16,tt,32,", 15, "layout", "valid: nn, nt, tn"),
    ("gemm,bf16,nt,32,", "mm,bf16,nt,32,", 15, "op", "valid: gemm"),
    ("gemm,bf16,nt,32,", "gemm,bf16,nt,3x2,", 15, "m", "is not an integer"),
    ("gemm,bf16,nt,32,", "gemm,bf16,nt,-32,", 15, "m", "at least 1"),
    ("gemm,bf16,nt,32,", "gemm,bf16,nt,,", 15, "m", "is not an integer"),
    ("gemm,bf16,nt,32,", "gemm,bf16,nt,32,7,", 15, "line", "has 13 of 12 cells"),
    ("gemm,bf16,nt,32,", 'gemm,"bf16,nt,32,', 15, "line", "restore"),
    ("gemm,bf16,nt,32,", "gemm,bf16,nt,16,", 15, "row", "repeats line 14"),
    (
        "gemm,bf16,nt,32,6144,4096,1,312.4",
        "gemm,bf16,nt,32,6144,4096,1,nan",
        15,
        "time_us",
        "finite",
    ),
    (
        "gemm,bf16,nt,32,6144,4096,1,312.4",
        "gemm,bf16,nt,32,6144,4096,1,inf",
        15,
        "time_us",
        "finite",
    ),
    (
        "gemm,bf16,nt,32,6144,4096,1,312.4",
        "gemm,bf16,nt,32,6144,4096,1,0",
        15,
        "time_us",
        "at least",
    ),
    (
        "gemm,bf16,nt,32,6144,4096,1,312.4",
        "gemm,bf16,nt,32,6144,4096,1,400",
        15,
        "time_us",
        "quartiles",
    ),
    (
        "gemm,bf16,nt,32,6144,4096,1,312.4",
        "gemm,bf16,nt,32,6144,4096,1,abc",
        15,
        "time_us",
        "a number",
    ),
    ("gemm,bf16,nt,32,", "g" * 5000 + ",", 15, "line", "over 4096 characters"),
    ("gemm,bf16,nt,32,", "\ngemm,bf16,nt,32,", 15, "line", "has 0 of 12 cells"),
]


@pytest.mark.parametrize("old,new,line,field,part", DAMAGE)
def test_damage_names_file_line_field_and_remedy(tmp_path, old, new, line, field, part):
    path = write(tmp_path / "gemm.csv")
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(UserError) as caught:
        load(path)
    error = caught.value
    assert error.place == f"{path}:{line}" and error.field == field and part in str(error)
    assert error.remedy


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "x.csv"
    with pytest.raises(UserError, match="No such file"):
        load(path)
    path.write_bytes(b"# orrery.measured/1\n\xff\xfe\n")
    with pytest.raises(UserError, match=r"byte 20.*UTF-8"):
        load(path)
    path.write_text("")
    with pytest.raises(UserError):
        load(path)


def test_cells_never_carry_formulas_or_line_breaks():
    row = {
        "op": "step_kernel",
        "model": "a",
        "index": 0,
        "name": "=1+1\n2",
        "stream": 1,
        "start_us": 0.0,
        "duration_us": 1.5,
    }
    assert format_row(TABLES["step_kernels"], row) == "step_kernel,a,0,'=1+1 2,1,0,1.5\n"


def test_a_row_with_an_unknown_or_missing_column_is_a_bug_and_fails():
    with pytest.raises(ValueError, match="missing"):
        format_row(TABLES["gemm"], {"op": "gemm"})


@pytest.mark.parametrize("name", list(TABLES))
def test_the_format_text_lists_every_table_with_its_columns_in_order(name):
    text = (ROOT.parent.parent / "docs/formats/measured-kernels.md").read_text()
    table = TABLES[name]
    wanted = [c for c in table.columns if not (table.timed and c.name.startswith("time_us"))]
    wanted = [c for c in wanted if not (table.timed and c.name in ("mode", "samples"))]
    paragraph = next(
        p for p in re.split(r"\n(?=`|- )", text) if f"`op*` = `{table.columns[0].choices[0]}`" in p
    )
    found = re.findall(r"`(\w+)(\*?)`(?: = )?", paragraph)
    names = [(n, bool(star)) for n, star in found if n in table.names or n == "op"]
    assert list(dict.fromkeys(names))[: len(wanted)] == [(c.name, c.key) for c in wanted]
