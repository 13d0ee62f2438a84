"""The format: what is written is read back; what is damaged is refused by name."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest

from orrery_trace.errors import TraceError
from orrery_trace.mesh import Mesh
from orrery_trace.trace import (
    Writer,
    rank_file,
    ranks_of,
    read,
    read_directory,
    runs_of,
    write_index,
)


def small(folder: Path) -> Path:
    """A trace of one allocation."""
    path = folder / rank_file(0)
    writer = Writer(path, {"rank": 0, "world_size": 1, "torch": "2.13.0"})
    writer.line({"t": "step", "index": 1})
    writer.line({"t": "alloc", "storage": 0, "bytes": 512})
    writer.close(steps=2, peak_bytes=512)
    return path


def test_runs_hold_any_list_of_ranks() -> None:
    """A thousand random lists, in any order, and the common ones in one run."""
    draw = random.Random(1)
    for _ in range(1000):
        ranks = draw.sample(range(64), draw.randrange(20))
        assert ranks_of(runs_of(ranks)) == ranks
    assert runs_of(list(range(3, 8192, 8))) == [[3, 1024, 8]]
    assert runs_of([5]) == [[5, 1, 1]]


def test_equal_traces_are_equal_files(tmp_path: Path) -> None:
    """No time and no name in the file."""
    for name in ("a", "b"):
        small(tmp_path / name)
    assert (tmp_path / "a" / rank_file(0)).read_bytes() == (
        tmp_path / "b" / rank_file(0)
    ).read_bytes()


def test_a_cut_file_is_refused(tmp_path: Path) -> None:
    """Cut inside gzip at every byte, and between lines."""
    path = small(tmp_path)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(TraceError, match=str(path)):
            read(path)
    lines = gzip.decompress(whole).splitlines(keepends=True)
    path.write_bytes(gzip.compress(b"".join(lines[:-1])))
    with pytest.raises(TraceError, match="cut off after 3 lines"):
        read(path)
    path.write_bytes(gzip.compress(b"".join(lines[:-2] + lines[-1:])))
    with pytest.raises(TraceError, match="counts another number"):
        read(path)


def test_another_version_is_refused(tmp_path: Path) -> None:
    """File and index."""
    path = small(tmp_path)
    text = gzip.decompress(path.read_bytes()).replace(b'"version":1', b'"version":2')
    path.write_bytes(gzip.compress(text))
    with pytest.raises(TraceError, match="trace version 2; this reader knows version 1"):
        read(path)
    write_index(tmp_path, {"programs": []})
    index = json.loads((tmp_path / "trace.json").read_text())
    (tmp_path / "trace.json").write_text(json.dumps(index | {"orrery_trace": 7}))
    with pytest.raises(TraceError, match="trace version 7"):
        read_directory(tmp_path)


def test_a_mesh_names_the_dimensions_of_a_group() -> None:
    """pp=2, dp=3, tp=4: rank 13 is pp 1, dp 0, tp 1."""
    mesh = Mesh.parse("pp=2,dp=3,tp=4")
    assert mesh.coordinates(13) == (1, 0, 1)
    assert mesh.dimensions([12, 13, 14, 15], 13) == ["tp"]
    assert mesh.dimensions([13, 17, 21], 13) == ["dp"]
    assert mesh.dimensions([1, 13], 13) == ["pp"]
    assert mesh.dimensions(list(range(24)), 13) == ["pp", "dp", "tp"]
    assert mesh.dimensions([13], 13) == []
    assert mesh.dimensions([12, 13], 13) is None  # half of tp
    for bad in ("pp", "pp=0", "pp=2,pp=2", "=4", "pp=two"):
        with pytest.raises(TraceError, match="--mesh"):
            Mesh.parse(bad)
