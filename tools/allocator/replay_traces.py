"""Traces of training steps through PyTorch's own caching allocator, beside Orrery's model of it.

    python replay_traces.py ORRERY CLUSTER TRACE...

Run it under the libraries that README.md names; no GPU is needed. Every allocation, resize, free
and `record_stream` of a trace directory's programs goes through the CUDA build's allocator, in
order and on its stream. Printed are the peaks that PyTorch and `orrery simulate` report: bytes allocated in
the step, reserved in all. Programs without cuBLAS's workspaces in the trace are left out, since
the model adds them.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import torch


def replay(path: Path) -> tuple[int, int] | None:
    """Peaks of one program: allocated in the step, reserved."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    streams = {0: torch.cuda.default_stream()}
    live: dict[int, torch.Tensor] = {}
    library = False
    with gzip.open(path, "rt", encoding="utf-8") as file:
        lines = [json.loads(text) for text in file]
    for line in lines:
        kind, number = line["t"], line.get("storage")
        stream = line.get("stream", 0)
        if kind in ("alloc", "resize", "use") and stream not in streams:
            streams[stream] = torch.cuda.Stream()
        if kind == "step":
            torch.cuda.reset_peak_memory_stats()
        elif kind in ("alloc", "resident") and number not in live:
            if line.get("device", "cuda") != "cuda":
                continue
            library |= line.get("what") == "library"
            with torch.cuda.stream(streams[stream]):
                live[number] = torch.empty(line["bytes"], dtype=torch.uint8, device="cuda")
        elif kind == "resize" and number in live:
            with torch.cuda.stream(streams[stream]):
                live[number].untyped_storage().resize_(line["bytes"])
        elif kind == "use" and number in live:
            live[number].record_stream(streams[stream])
        elif kind == "free":
            live.pop(number, None)
    peaks = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    return peaks if library else None


def main() -> None:
    """A line a program."""
    orrery, cluster = sys.argv[1:3]
    torch.cuda.init()
    clean = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}
    settings = os.environ.get("PYTORCH_CUDA_ALLOC_CONF")
    options = ["--set", f"memory.allocator={settings}"] if settings else []
    print(f"torch {torch.__version__}, {settings or 'default'}")
    print("| program | allocated, GiB | Orrery | reserved, GiB | Orrery |\n|---|---|---|---|---|")
    for folder in map(Path, sys.argv[3:]):
        command = [orrery, "simulate", str(folder), "--cluster", cluster, "--json", "-", *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=clean)
        if not done.stdout:
            sys.exit(f"{' '.join(command)}\n{done.stderr}")
        found = {row["rank"]: row for row in json.loads(done.stdout)["memory"]}
        for program in json.loads((folder / "trace.json").read_text())["programs"]:
            peaks = replay(folder / program["file"])
            if peaks is None:
                continue
            row = found[program["rank"]]
            ours = row["peak_allocated_bytes"], row["peak_reserved_bytes"]
            cells = [
                f"{real / 2**30:.3f} | "
                + ("equal" if mine == real else f"{100 * (mine / real - 1):+.2f} %")
                for real, mine in zip(peaks, ours, strict=True)
            ]
            print(f"| {folder.name} rank {program['rank']} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
