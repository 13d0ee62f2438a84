#!/usr/bin/env python3
"""One run on a GPU that says how far the tracer is from it: memory, ops, kernel times, step time.

    python3 python/tracer/tests/gpu_pass.py --out OUT --budget-s 140

For each configuration of `gpu_models.py`, in a process of its own: three steps under the
allocator's history (peaks, snapshot); the median of ten steps after warm-up; three steps under the
profiler (Kineto); then the same program under the recorder with real tensors (structure pass), and
the join of the two. `results.jsonl` has a line for each, `header.json` names GPU, driver, libraries
and clocks, and the files of all are packed into archives of at most 15 MiB. A configuration with a
line is not run again, one that the budget does not cover is left out.

    python3 python/tracer/tests/gpu_pass.py --fake --out OUT      # the traces without a GPU
"""

from __future__ import annotations

import argparse
import gc
import gzip
import json
import os
import pickle
import platform
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

MARK = "training step"
MEMORY_STEPS, WARM_STEPS, TIMED_STEPS, PROFILED_STEPS = 3, 3, 10, 3
PART_BYTES = 15 << 20
CASE_SECONDS = 60.0  # of a configuration on a GPU
CARD = "name,driver_version,pstate,clocks.max.sm,clocks.max.mem,power.limit"
CLOCKS = "timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu"


# --- one configuration, in its own process --------------------------------------------------------


def measure(name: str, out: Path, device: str, tiny: bool) -> dict[str, Any]:
    """Everything about one configuration; files go to `out`/NAME."""
    import torch

    from gpu_models import CASES, Trainer

    case = next(case for case in CASES if case.name == name)
    case = case.tiny() if tiny else case
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    row: dict[str, Any] = {"case": name, **vars(case), "device": device, "begun": time.time()}
    gpu = device == "cuda"
    trainer, row["memory"] = _memory(lambda: Trainer(case, device), folder, gpu)
    row["parameters"] = sum(p.numel() for p in trainer.model.parameters())
    row["steps"] = _timed(trainer, gpu)
    row["profile"] = _profiled(trainer, folder, gpu)
    del trainer
    gc.collect()
    if gpu:
        torch.cuda.empty_cache()
    row["structure"] = _structure(lambda: Trainer(case, device), folder, device)
    row["join"] = _joined(folder)
    row["seconds"] = round(time.time() - row["begun"], 2)
    return row


def _memory(build: Any, folder: Path, gpu: bool) -> tuple[Any, dict[str, Any]]:
    """Three steps from the program's start, with the allocator's history."""
    import torch

    if not gpu:
        trainer = build()
        for _ in range(MEMORY_STEPS):
            trainer.step()
        return trainer, {}
    cuda = torch.cuda
    cuda.init()
    free_before, total = cuda.mem_get_info()
    cuda.memory._record_memory_history(
        enabled="all", context=None, stacks="python", max_entries=400_000
    )
    trainer = build()
    cuda.synchronize()
    built = {"built_peak_allocated": cuda.max_memory_allocated(),
             "built_peak_reserved": cuda.max_memory_reserved()}  # fmt: skip
    rows = []
    for _ in range(MEMORY_STEPS):
        cuda.synchronize()
        cuda.reset_peak_memory_stats()
        before = cuda.memory_allocated()
        trainer.step()
        cuda.synchronize()
        rows.append({"before": before, "allocated": cuda.max_memory_allocated(),
                     "reserved": cuda.max_memory_reserved(),
                     "requested": cuda.memory_stats()["requested_bytes.all.peak"]})  # fmt: skip
    snapshot = cuda.memory._snapshot()
    cuda.memory._record_memory_history(enabled=None)
    with gzip.open(folder / "snapshot.pickle.gz", "wb", compresslevel=6) as file:
        pickle.dump(snapshot, file)
    free_after, _ = cuda.mem_get_info()
    stats = cuda.memory_stats()
    return trainer, {
        **built, "steps": rows, "total": total, "used_at_start": total - free_before,
        "used_after": total - free_after,
        "outside_the_pool": total - free_after - stats["reserved_bytes.all.current"],
        "retries": stats["num_alloc_retries"], "backend": cuda.memory.get_allocator_backend(),
    }  # fmt: skip


def _timed(trainer: Any, gpu: bool) -> dict[str, Any]:
    """Steps back to back, by events of the device and by the host's clock."""
    import torch

    for _ in range(WARM_STEPS):
        trainer.step()
    if gpu:
        torch.cuda.synchronize()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(TIMED_STEPS + 1)] if gpu else []
    host, begun = [], time.time()
    start = time.perf_counter()
    for i in range(TIMED_STEPS):
        if gpu:
            events[i].record()
        called = time.perf_counter()
        trainer.step()
        host.append((time.perf_counter() - called) * 1e3)
    if gpu:
        events[-1].record()
        torch.cuda.synchronize()
    wall = (time.perf_counter() - start) * 1e3
    each = [a.elapsed_time(b) for a, b in zip(events, events[1:], strict=False)] if gpu else host
    middle = sorted(each)
    return {
        "median_ms": (middle[(len(each) - 1) // 2] + middle[len(each) // 2]) / 2,
        "each_ms": each, "wall_ms": wall / TIMED_STEPS, "host_ms": host, "from": begun,
        "to": time.time(),
    }  # fmt: skip


def _profiled(trainer: Any, folder: Path, gpu: bool) -> dict[str, Any]:
    """Kineto over steps that are marked."""
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if gpu else [])
    begun = time.time()
    with profile(activities=activities, record_shapes=True) as profiler:
        for _ in range(PROFILED_STEPS):
            with record_function(MARK):
                trainer.step()
        if gpu:
            torch.cuda.synchronize()
    ended = time.time()
    plain = folder / "kineto.json"
    profiler.export_chrome_trace(str(plain))
    with plain.open("rb") as source, gzip.open(folder / "kineto.json.gz", "wb", 6) as target:
        shutil.copyfileobj(source, target)
    plain.unlink()
    return {"from": begun, "to": ended, "ms_a_step": (ended - begun) * 1e3 / PROFILED_STEPS}


def _structure(build: Any, folder: Path, device: str) -> dict[str, Any]:
    """The recorder over the same program, tensors real."""
    import orrery_trace

    begun = time.time()
    with orrery_trace.rank(1, 0, folder / "real", fake=False, device=device) as session:
        trainer = build()
        for _ in range(MEMORY_STEPS):
            trainer.step()
    trace = session.trace()
    return {
        "seconds": round(time.time() - begun, 2), "ops": len(trace.op_names()),
        "lines": len(trace.lines), "peak_bytes": trace.peak_bytes(device),
    }  # fmt: skip


def _joined(folder: Path) -> dict[str, Any]:
    """What part of the device's time belongs to ops of the trace."""
    from orrery_trace import timing
    from orrery_trace.trace import read_directory

    trace = read_directory(folder / "real")[0]
    steps = timing.read_profile(folder / "kineto.json.gz", MARK).steps
    joined = [timing.join(trace, step) for step in steps]
    busy = [sum(kernel.microseconds for kernel in step.kernels) / 1e3 for step in steps]
    return {
        "shares": [one.share for one in joined], "device_ms": busy,
        "kernels": [len(step.kernels) for step in steps],
        "left_ns": [dict(one.left.most_common(8)) for one in joined],
        "missing": [one.missing[:20] for one in joined],
    }  # fmt: skip


# --- the traces without a GPU ---------------------------------------------------------------------


def fake(name: str, out: Path, tiny: bool) -> None:
    """The same program as a fake trace, in `out`/NAME/fake."""
    import orrery_trace

    with orrery_trace.rank(1, 0, out / name / "fake"):
        from gpu_models import CASES, Trainer

        case = next(case for case in CASES if case.name == name)
        trainer = Trainer(case.tiny() if tiny else case, "cuda")
        for _ in range(MEMORY_STEPS):
            trainer.step()


# --- all of them ----------------------------------------------------------------------------------


def header(device: str) -> dict[str, Any]:
    """What was measured on."""
    import torch

    told: dict[str, Any] = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "device": device,
        "python": platform.python_version(), "torch": torch.__version__, "cores": os.cpu_count(),
        "cuda": torch.version.cuda, "command": " ".join(sys.argv),
    }  # fmt: skip
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        told |= {"gpu": properties.name, "memory": properties.total_memory,
                 "sms": properties.multi_processor_count,
                 "cudnn": torch.backends.cudnn.version(),
                 "nvidia_smi": _smi(f"--query-gpu={CARD}", "--format=csv,noheader")}  # fmt: skip
    return told


def _smi(*arguments: str) -> str:
    try:
        return subprocess.run(
            ["nvidia-smi", *arguments], capture_output=True, text=True, timeout=20, check=False
        ).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _worker(options: argparse.Namespace, case: Any) -> subprocess.Popen[str]:
    """A process that has imported PyTorch and waits for a line before it touches the device."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path[:2])}
    if case.allocator:
        environment["PYTORCH_CUDA_ALLOC_CONF"] = environment["PYTORCH_ALLOC_CONF"] = case.allocator
    command = [sys.executable, __file__, "--only", case.name, "--out", str(options.out)]
    command += ["--device", options.device] + ["--tiny"] * options.tiny + ["--fake"] * options.fake
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, env=environment,
    )  # fmt: skip


def run_all(options: argparse.Namespace) -> None:
    """Each configuration in turn; the next one's process starts while one is measured."""
    from gpu_models import CASES

    begun = time.monotonic()
    results = options.out / "results.jsonl"
    known = set()
    if results.exists():
        known = {json.loads(line)["case"] for line in results.read_text().splitlines()}
    wanted = [case for case in CASES if not options.cases or case.name in options.cases.split(",")]
    wanted = [case for case in wanted if case.name not in known]
    warm: list[tuple[Any, subprocess.Popen[str]]] = []
    for at, case in enumerate(wanted):
        left = options.budget_s - (time.monotonic() - begun)
        if left < 12:
            print(f"{case.name} and what follows: the budget is spent")
            break
        for ahead in wanted[at : at + 2]:
            if all(ahead is not started for started, _ in warm):
                warm.append((ahead, _worker(options, ahead)))
        _, worker = warm.pop(0)
        try:
            most = CASE_SECONDS if options.device == "cuda" and not options.fake else left
            said, _ = worker.communicate("go\n", timeout=min(left, most))
        except subprocess.TimeoutExpired:
            worker.kill()
            said = worker.communicate()[0] + "\nout of time"
        row = _row_of(said, case.name)
        with results.open("a") as file:
            file.write(json.dumps(row) + "\n")
        _tell(row)
    for _, worker in warm:
        worker.kill()
        worker.communicate()


def _row_of(said: str, name: str) -> dict[str, Any]:
    last = said.strip().splitlines()[-1] if said.strip() else ""
    if last.startswith("{"):
        return json.loads(last)
    return {"case": name, "error": said[-2000:]}


def _tell(row: dict[str, Any]) -> None:
    """One line for the person who waits."""
    if "error" in row:
        print(f"{row['case']}: FAILED\n{row['error']}", flush=True)
        return
    if "steps" not in row:
        print(f"{row['case']}: traced", flush=True)
        return
    shares = min(row["join"]["shares"])
    peak = row["memory"].get("steps", [{}])[-1]
    print(
        f"{row['case']}: {row['seconds']} s; step {row['steps']['median_ms']:.3f} ms, device "
        f"{sorted(row['join']['device_ms'])[1]:.3f} ms, host {min(row['steps']['host_ms']):.1f} "
        f"ms; joined {100 * shares:.2f} %, left {list(row['join']['left_ns'][0].items())[:3]}, "
        f"missing {row['join']['missing'][0][:4]}; peak {peak.get('allocated', 0) / 2**30:.3f} "
        f"GiB, reserved {peak.get('reserved', 0) / 2**30:.3f}",
        flush=True,
    )


def pack(out: Path) -> None:
    """All files into archives that can be taken home, each of at most 15 MiB."""
    files = sorted(p for p in out.rglob("*") if p.is_file() and p.suffix != ".tar")
    parts: list[list[Path]] = [[]]
    size = 0
    for path in files:
        if parts[-1] and size + path.stat().st_size > PART_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(path)
        size += path.stat().st_size + 1024
    for number, part in enumerate(parts):
        with tarfile.open(out / f"gpu_pass_{number}.tar", "w") as archive:
            for path in part:
                archive.add(path, path.relative_to(out))
    for path in files:
        path.unlink()
    for folder in sorted((p for p in out.rglob("*") if p.is_dir()), reverse=True):
        folder.rmdir()


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--budget-s", type=float, default=140.0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--cases", default="", help="names, separated by commas; default: all")
    parser.add_argument("--tiny", action="store_true", help="sizes for a CPU")
    parser.add_argument("--fake", action="store_true", help="trace without a GPU")
    parser.add_argument("--pack", action="store_true", help="leave archives in place of files")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.only:
        return _one(options)
    clock = None
    if not options.fake:
        (options.out / "header.json").write_text(json.dumps(header(options.device), indent=1))
        if options.device == "cuda" and shutil.which("nvidia-smi"):
            clock = subprocess.Popen(
                ["nvidia-smi", f"--query-gpu={CLOCKS}", "--format=csv,nounits", "-lms", "100",
                 "-f", str(options.out / "clock.csv")])  # fmt: skip
    try:
        run_all(options)
    finally:
        if clock is not None:
            clock.terminate()
            clock.wait()
    if options.pack:
        pack(options.out)
    return 0


def _one(options: argparse.Namespace) -> int:
    """One configuration: waits for a line, prints its row last."""
    if options.fake:
        fake(options.only, options.out, options.tiny)
        print(json.dumps({"case": options.only}))
        return 0
    import torch.profiler  # noqa: F401  the slow part, before the device is touched

    import orrery_trace  # noqa: F401
    import orrery_trace.recorder  # noqa: F401

    sys.stdin.readline()
    print("\n" + json.dumps(measure(options.only, options.out, options.device, options.tiny)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
