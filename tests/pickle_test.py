#!/usr/bin/env python3
"""PyTorch's memory snapshots are read as data. Usage: pickle_test.py PROGRAM [CASES]

Snapshots of every protocol give one answer; pickles that would run something are refused with exit
status 2, and leave no trace; damaged ones end in an answer or a named refusal.
"""

import os
import pathlib
import pickle
import random
import subprocess
import sys
import tempfile

MIB = 1 << 20


def snapshot():
    """Two buffers of 12 MiB at once, one that lived before, and one left in the end."""
    frames = [{"filename": "train.py", "line": 7, "name": "forward"}]
    base = 0x7F0000000000

    def event(action, addr, size):
        return {"action": action, "addr": addr, "size": size, "stream": 0, "frames": frames}

    a, b, old = base, base + 12 * MIB, base + 100 * MIB
    trace = [
        event("segment_alloc", a, 12 * MIB), event("alloc", a, 12 * MIB),
        event("segment_alloc", b, 12 * MIB), event("alloc", b, 12 * MIB),
        event("free_requested", a, 12 * MIB), event("free_completed", a, 12 * MIB),
        event("free_requested", old, 4 * MIB), event("free_completed", old, 4 * MIB),
        {"action": "snapshot", "addr": 0, "size": 0, "stream": 0},
    ]  # fmt: skip

    def segment(address, total, *blocks):
        return {"device": 0, "address": address, "total_size": total, "stream": 0,
                "is_expandable": False, "blocks": list(blocks)}  # fmt: skip

    live = {"address": b, "size": 12 * MIB, "requested_size": 12 * MIB,
            "state": "active_allocated", "frames": frames}  # fmt: skip
    free = {"size": 12 * MIB, "requested_size": 0, "state": "inactive", "frames": []}
    rest = {"size": 20 * MIB, "requested_size": 0, "state": "inactive", "frames": []}
    segments = [segment(a, 12 * MIB, free), segment(b, 12 * MIB, live), segment(old, 20 * MIB, rest)]
    return {"segments": segments, "device_traces": [trace], "allocator_settings": {}}


class Hostile:
    """Runs a command where it is unpickled."""

    def __init__(self, how, canary):
        self.how, self.canary = how, canary

    def __reduce__(self):
        if self.how == "system":
            return os.system, (f"touch {self.canary}",)
        if self.how == "eval":
            return eval, (f"open({str(self.canary)!r}, 'w')",)
        return pathlib.Path.touch, (self.canary,)


def inspect(program, path):
    done = subprocess.run(
        [program, "inspect", path], capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode, done.stdout, done.stderr


def main():
    program, cases = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 120
    problems = []
    passed = 0

    def expect(holds, what):
        nonlocal passed
        passed += bool(holds)
        if not holds:
            problems.append(what)

    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "snapshot.pickle"
        canary = pathlib.Path(folder) / "canary"
        for protocol in (2, 3, 4, 5):
            path.write_bytes(pickle.dumps(snapshot(), protocol))
            status, out, err = inspect(program, path)
            said = " ".join(out.split())
            expect(status == 0, f"protocol {protocol}: {err}")
            for text in ("lived before 4.0 MiB of 1 storages", "peak allocated 28.0 MiB",
                         "peak reserved 44.0 MiB", "train.py:7 forward 24.0 MiB"):  # fmt: skip
                expect(text in said, f"protocol {protocol}: no '{text}' in {said}")
        for how in ("system", "eval", "touch"):
            for protocol in (2, 3, 4, 5):
                for place in (Hostile(how, canary), [Hostile(how, canary)],
                              snapshot() | {"x": Hostile(how, canary)}):  # fmt: skip
                    path.write_bytes(pickle.dumps(place, protocol))
                    status, out, err = inspect(program, path)
                    expect(status == 2 and "opcode" in err and not out, f"{how}: {status} {err}")
        bomb = [b"\x80\x04]" + b"2" * 1000 + b".", b"\x80\x04" + b"(" * 100000 + b".",
                b"\x80\x04\x8d" + b"\xff" * 8 + b"x", b"\x80\x04\x8b\xff\xff\xff\x7f."]  # fmt: skip
        for data in bomb:
            path.write_bytes(data)
            status, _, err = inspect(program, path)
            expect(status == 2 and "offset" in err, f"{data[:8]!r}: {status} {err}")
        rng = random.Random(1)
        whole = pickle.dumps(snapshot(), 4)
        for case in range(cases):
            data = bytearray(whole[: rng.randrange(3, len(whole) + 1)])
            for _ in range(rng.randrange(3)):
                data[rng.randrange(2, len(data))] = rng.randrange(256)
            path.write_bytes(data)
            status, _, err = inspect(program, path)
            expect(status in (0, 2), f"damage {case}: {status} {err}")
        expect(not canary.exists(), "a pickle ran its command")
    print("\n".join(problems[:20]))
    print(f"{passed} passed, {len(problems)} failed")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
