"""Faults of the machine: no memory, a kill at any call, a disk that is full or broken (faults.cc)."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile

from common import INPUTS, ROOT, Tally, in_parallel, run, sample

JOB = INPUTS / "good.yaml"
CORPUS = ROOT / "tests" / "fuzz" / "corpus"
OLD = b"as it was\n"

# Commands that write files; OUT is their folder.
WRITERS = [
    ["simulate", JOB, "--no-advice", "--json", "OUT/a.json", "--timeline", "OUT/a.pftrace"],
    ["simulate", INPUTS / "ring4.goal", "--csv", "OUT/a.csv"],
    ["simulate", JOB, "--no-advice", "--network", "flow", "--heat-map", "OUT/a.svg"],
    ["sweep", JOB, "--vary", "training.micro_batch=1,2", "--json", "OUT/a.json", "--csv", "OUT/a.csv", "--plot", "OUT/a.svg"],
    ["convert", INPUTS / "ring4.goal", "-o", "OUT/a.bin"],
    ["import", ROOT / "examples/recipes/mixtral-8x7b.sh", "--nodes", "8", "--cluster", "h100-ib-400g", "-o", "OUT/a.yaml", "--json", "OUT/a.json"],
    ["traffic", "all-reduce", "--nodes", "1", "--max", "4KiB", "--svg", "OUT/a.svg", "--json", "OUT/a.json"],
    ["traffic", "ring", "--nodes", "1", "--csv", "OUT/a.csv", "--timeline", "OUT/a.pftrace"],
    ["inspect", INPUTS / "nccl_pairs.xml", "--svg", "OUT/a.svg"],
    ["list", "models", "--json", "OUT/a.json"],
    ["compare", CORPUS / "result/good.json", CORPUS / "result/good.json", "--json", "OUT/a.json"],
    ["calibrate", "nccl-tests", INPUTS / "all_reduce.log", "--out", "OUT/a.json"],
]  # fmt: skip
# Commands that only read.
READERS = [
    ["inspect", JOB],
    ["inspect", INPUTS / "mpi"],
    ["inspect", CORPUS / "nsys/report.sqlite"],
    ["inspect", CORPUS / "memory-snapshot/small.pickle"],
    ["inspect", CORPUS / "kineto/step.json", "--set", "pytorch.replicas=2"],
    ["inspect", INPUTS / "nccl_pairs.xml"],
    ["explain", CORPUS / "result/good.json"],
    ["schema", "job"],
]


def into(command, folder):
    return [str(word).replace("OUT", str(folder)) for word in command]


def calls_of(settings, command, kind, folder):
    """How many calls of that kind a run makes that nothing disturbs."""
    count = os.path.join(folder, "count")
    done = run(settings, into(command, folder), fault=f"{kind}:999999999999", count=count)
    if done.status != 0:
        raise SystemExit(f"undisturbed: {done.said()}")
    calls = int(pathlib.Path(count).read_text())
    os.unlink(count)
    return calls


def content(folder):
    """Files by name, without what differs from run to run."""
    files = {}
    for path in sorted(pathlib.Path(folder).iterdir()):
        bytes_ = path.read_bytes()
        if path.suffix == ".json":
            document = json.loads(bytes_)
            for key in ("wall_s", "peak_rss_bytes", "threads_used"):
                document.get("simulation", document).pop(key, None)
            bytes_ = json.dumps(document).encode()
        files[path.name] = bytes_
    return files


def each_fault(settings, tally, command, faults, undisturbed, judge):
    """The command once with each fault, where old files stand; `judge` says what is wrong then."""

    def one(fault):
        with tempfile.TemporaryDirectory() as folder:
            for name in undisturbed:
                (pathlib.Path(folder) / name).write_bytes(OLD)
            done = run(settings, into(command, folder), fault=fault)
            return judge(command, fault, done, folder, undisturbed)

    for wrong in in_parallel(one, faults):
        tally.check(not wrong, wrong)


def each_call(settings, tally, kinds, judge, share, first):
    """Every writer with every call of the kinds failing: (fault, whose calls are counted, suffix)."""
    for command in WRITERS if settings.full else WRITERS[:1] + WRITERS[4:5]:
        with tempfile.TemporaryDirectory() as whole:
            counts = {counted: calls_of(settings, command, counted, whole) for _, counted, _ in kinds}
            undisturbed = content(whole)
        faults = []
        for kind, counted, suffix in kinds:
            points = sample(range(1, counts[counted] + 1), settings, share, first)
            faults += [f"{kind}:{n}{suffix}" for n in points]
        each_fault(settings, tally, command, faults, undisturbed, judge)


def old_or_new(folder, undisturbed):
    """What is torn: a file that is neither what stood there nor what a whole run writes."""
    left = {path.name: path.read_bytes() for path in pathlib.Path(folder).iterdir() if ".tmp-" not in path.name}
    for name, new in undisturbed.items():
        if name not in left:
            return f"{name} is gone"
        if left[name] == OLD:
            continue
        with tempfile.TemporaryDirectory() as alone:
            (pathlib.Path(alone) / name).write_bytes(left[name])
            try:
                if content(alone)[name] != new:
                    return f"{name} is neither the old nor the new file"
            except ValueError:
                return f"{name} is torn"
    return ""


def memory(settings):
    """Status 3, one line behind warnings, old files as they were; or the answer, where a library goes on without."""
    tally = Tally("memory")

    def judge(command, fault, done, folder, undisturbed):
        fine = not done.late and ((done.status == 3 and done.ends_in_one_line()) or done.status == 0)
        left = [path.name for path in pathlib.Path(folder).iterdir() if ".tmp-" in path.name]
        torn = old_or_new(folder, undisturbed)
        return "" if fine and not left and not torn else f"{fault}: {torn} {left} {done.said()}"

    commands = WRITERS + READERS if settings.full else WRITERS[:1] + READERS[:4]
    for number, command in enumerate(commands):
        with tempfile.TemporaryDirectory() as whole:
            calls = calls_of(settings, command, "alloc", whole)
            undisturbed = content(whole)
        # Every one of the first, while options are read; then so many of the others.
        first, rest = (max(2, int(n * settings.share)) for n in (300, 1000)) if settings.full else (2, 6)
        points = sorted({*range(1, first + 1), *range(1 + number, calls + 1, max(1, calls // rest))})
        faults = [f"alloc:{n}{suffix}" for n in points for suffix in ("", "+")]
        each_fault(settings, tally, command, faults, undisturbed, judge)
    return tally


def threads(settings):
    """The same answer where the system gives fewer threads than were asked for, or none."""
    tally = Tally("threads")
    simulate = ["simulate", JOB, "--no-advice", "--no-fold", "--threads", "4", "--json", "OUT/a.json", "--network"]
    commands = [[*simulate, network] for network in ("analytic", "links", "flow")]
    commands += [
        ["sweep", JOB, "--vary", "training.micro_batch=1,2", "--vary", "parallel.tp=1,2", "--threads", "4", "--json", "OUT/a.json"],
        ["plan", JOB, "--vary", "parallel.tp=1,2,4", "--threads", "4", "--json", "OUT/a.json"],
        ["simulate", ROOT / "examples/tenants/llama-lulesh-packed.yaml", "--threads", "4", "--json", "OUT/a.json"],
    ]

    def judge(command, fault, done, folder, undisturbed):
        same = done.status == 0 and content(folder) == undisturbed
        return "" if same and not done.late else f"{fault}: {done.said()}"

    for command in commands:
        with tempfile.TemporaryDirectory() as whole:
            calls = calls_of(settings, command, "thread", whole)
            undisturbed = content(whole)
        faults = [f"thread:{n}{suffix}" for n in range(1, calls + 1) for suffix in ("", "+")]
        each_fault(settings, tally, command, faults, undisturbed, judge)
    return tally


def kills(settings):
    """Files are the old or the new ones, and the next run removes what a killed one left."""
    tally = Tally("kills")

    def judge(command, fault, done, folder, undisturbed):
        if done.status != -9:
            return f"{fault} did not kill: {done.said()}"
        torn = old_or_new(folder, undisturbed)
        if torn:
            return f"{fault}: {torn}: {done.said()}"
        again = run(settings, into(command, folder))
        if again.status != 0:
            return f"after {fault}: {again.said()}"
        now = content(folder)
        if now != undisturbed:
            return f"after {fault}: {sorted(now)} and not {sorted(undisturbed)}, or other contents: {done.said()}"
        return ""

    if not settings.full:  # what the long form runs is what the program takes
        with tempfile.TemporaryDirectory() as folder:
            for done in (run(settings, into(command, folder)) for command in WRITERS + READERS):
                tally.check(done.status == 0, done.said())
    kinds = [("kill", "kill", ""), ("torn", "torn", "")]
    each_call(settings, tally, kinds, judge, 1 / 3, 0)
    resumed(settings, tally)
    return tally


def resumed(settings, tally):
    """A sweep that was killed goes on where it was: no row is lost or there twice."""
    vary = "1,2,4,8" if settings.full else "1,2"
    sweep = ["sweep", JOB, "--vary", f"training.micro_batch={vary}", "--vary", "parallel.tp=1,2", "--json", "OUT/a.json", "--resume", "OUT/journal"]
    with tempfile.TemporaryDirectory() as whole:
        calls = calls_of(settings, sweep, "kill", whole)
        rows = json.loads((pathlib.Path(whole) / "a.json").read_text())["rows"]

    def one(point):
        kind, n = point
        with tempfile.TemporaryDirectory() as folder:
            killed = run(settings, into(sweep, folder), fault=f"{kind}:{n}")
            again = run(settings, into(sweep, folder))
            if again.status != 0:
                return f"sweep after {kind}:{n} ({killed.status}): {again.said()}"
            now = json.loads((pathlib.Path(folder) / "a.json").read_text())["rows"]
            return "" if now == rows else f"sweep after {kind}:{n}: other rows"

    points = [(kind, n) for kind in ("kill", "torn") for n in range(1, calls + 1)]
    for wrong in in_parallel(one, sample(points, settings, 1 / 6, 1)):
        tally.check(not wrong, wrong)


def disk(settings):
    """Status 3 and the file's name, once or for ever; short and interrupted writes go on."""
    tally = Tally("disk")

    def judge(command, fault, done, folder, undisturbed):
        kind = fault.split(":")[0]
        left = [path.name for path in pathlib.Path(folder).iterdir() if ".tmp-" in path.name]
        torn = old_or_new(folder, undisturbed)
        # A call whose failure changes nothing (the temporary file's lock) goes unnoticed.
        refused = done.status == 3 and done.is_one_line() and ("'" in done.err or "std" in done.err)
        fine = done.status == 0 or (refused and kind != "short")
        # What cannot be removed, for the disk takes no change at all, stays.
        stays = left and not (kind in ("ENOSPC", "EIO", "EDQUOT") and fault.endswith("+"))
        return "" if fine and not done.late and not torn and not stays else f"{fault}: {torn} {left} {done.said()}"

    # A read that fails once while a file's kind is looked at is no fault of a disk: it fails again.
    kinds = [("short", "short", ""), ("short", "short", "+"), ("fsync", "fsync", ""), ("read", "read", "+"), ("EINTR", "EIO", "")]
    kinds += [(name, "EIO", suffix) for name in ("ENOSPC", "EIO", "EDQUOT") for suffix in ("", "+")]
    each_call(settings, tally, kinds, judge, 1 / 12, 1)
    small_disk(settings, tally)
    return tally


def small_disk(settings, tally):
    """A real disk of 1 MiB."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        mount = shutil.which("mount")
        if mount and os.geteuid() == 0 and subprocess.run([mount, "-t", "tmpfs", "-o", "size=1m", "tmpfs", name], capture_output=True, check=False).returncode == 0:
            try:
                (folder / "filler").write_bytes(bytes((1 << 20) - 4096))
                command = ["simulate", JOB, "--no-advice", "--timeline", folder / "t.pftrace"]
                done = run(settings, command)
                left = sorted(path.name for path in folder.iterdir())
                tally.check(done.status == 3 and "t.pftrace" in done.err and left == ["filler"], f"{left}: {done.said()}")
            finally:
                subprocess.run(["umount", name], check=True)
        else:
            tally.note("nothing may be mounted here: no small disk")
