"""Records what PyTorch's own caching allocator does with random allocations, on a device with a limit.

    python record.py SETTINGS CAPACITY SEED EVENTS [FRACTION] > trace.txt

Run it under the libraries that README.md names; no GPU is needed. One event a line:

    a ID BYTES STREAM     allocate          f ID           free
    r ID STREAM           record_stream     b STREAM 0|1   the stream is (not) busy
    e                     empty_cache

each followed by the bytes allocated and reserved after it, and `oom` where the allocation failed.
"""

from __future__ import annotations

import ctypes
import random
import sys

import torch

MIB = 1 << 20
SIZES = (
    (0.35, 1, 64 * 1024),
    (0.10, 64 * 1024, MIB),
    (0.25, MIB, 10 * MIB),
    (0.25, 10 * MIB, 64 * MIB),
    (0.05, 64 * MIB, 200 * MIB),
)
STREAMS = 3


def draw_size(rng: random.Random, sizes: list[int]) -> int:
    """A new size of a random magnitude, or one that was seen before."""
    if sizes and rng.random() < 0.5:
        return rng.choice(sizes)
    at = rng.random()
    for share, low, high in SIZES:
        if at < share:
            break
        at -= share
    size = rng.randint(low, high)
    if rng.random() < 0.5:
        size = max(1, size // 512) * 512
    sizes.append(size)
    return size


def main() -> None:
    """Draws events, does them and prints them."""
    settings, total, seed, events = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    fraction = float(sys.argv[5]) if len(sys.argv) > 5 else 0.0
    rng = random.Random(seed)
    device = ctypes.CDLL(None)
    device.orrery_set_busy.argtypes = [ctypes.c_void_p, ctypes.c_int]
    if fraction:
        torch.cuda.set_per_process_memory_fraction(fraction)
    streams = [torch.cuda.current_stream()]
    streams += [torch.cuda.Stream() for _ in range(STREAMS - 1)]
    # Handles of streams rise, so that pools order as ours do.
    assert [s.cuda_stream for s in streams] == sorted(s.cuda_stream for s in streams)
    print(f"torch {torch.__version__}")
    device_bytes = torch.cuda.get_device_properties(0).total_memory
    print(f"settings {settings or 'default'} device {device_bytes} capacity {total} fraction {fraction:g}")
    live: dict[int, torch.Tensor] = {}
    sizes: list[int] = []

    def say(what: str) -> None:
        print(what, torch.cuda.memory_allocated(), torch.cuda.memory_reserved())

    for event in range(events):
        at = rng.random()
        if not live or at < 0.48 + (0.1 if event < events // 4 else 0):
            size = draw_size(rng, sizes)
            stream = 0 if rng.random() < 0.8 else rng.randrange(STREAMS)
            try:
                with torch.cuda.stream(streams[stream]):
                    live[event] = torch.empty(size, dtype=torch.uint8, device="cuda")
                say(f"a {event} {size} {stream}")
            except torch.OutOfMemoryError:
                say(f"a {event} {size} {stream} oom")
                for key in rng.sample(sorted(live), min(len(live), 4)):
                    del live[key]
                    say(f"f {key}")
        elif at < 0.92:
            key = rng.choice(sorted(live))
            del live[key]
            say(f"f {key}")
        elif at < 0.96:
            key, stream = rng.choice(sorted(live)), rng.randrange(STREAMS)
            live[key].record_stream(streams[stream])
            say(f"r {key} {stream}")
        elif at < 0.998:
            stream, busy = rng.randrange(1, STREAMS), rng.randrange(2)
            device.orrery_set_busy(streams[stream].cuda_stream, busy)
            say(f"b {stream} {busy}")
        else:
            torch.cuda.empty_cache()
            say("e")


if __name__ == "__main__":
    main()
