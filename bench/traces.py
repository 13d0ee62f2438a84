#!/usr/bin/env python3
"""Writes the traces whose loading and simulation docs/formats/chakra.md and docs/formats/pytorch.md time.

Usage: traces.py ring RANKS FOLDER            ASTRA-sim's four inputs: an all-reduce of 1 GiB over a ring
       traces.py chakra RANKS NODES FOLDER    NODES nodes a rank, one behind the other, every fourth an all-reduce
       traces.py kineto MEGABYTES FILE        a GPU's profile of as many steps as fill it
"""

import json
import pathlib
import sys

COMPUTE, COLLECTIVE = 4, 7  # Chakra's node types


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def attributes(**values):
    return b"".join(field(10, field(1, name) + field(27 if name == "is_cpu_op" else 13, v)) for name, v in values.items())


def framed(message):
    return varint(len(message)) + message


def ring(ranks, folder):
    trace = framed(field(1, "0.0.4")) + framed(
        field(1, 1) + field(2, "all-reduce") + field(3, COLLECTIVE) + attributes(is_cpu_op=0, comm_type=0, comm_size=1 << 30))
    for rank in range(ranks):
        (folder / f"w.{rank}.et").write_bytes(trace)
    system = {"scheduling-policy": "LIFO", "endpoint-delay": 10, "active-chunks-per-dimension": 1, "preferred-dataset-splits": 4,
              "collective-optimization": "localBWAware", "local-mem-bw": 1600}
    for name in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all"):
        system[f"{name}-implementation"] = ["ring"]
    (folder / "system.json").write_text(json.dumps(system, indent=1))
    (folder / "memory.json").write_text('{"memory-type": "NO_MEMORY_EXPANSION"}')
    (folder / "network.yml").write_text(f"topology: [Ring]\nnpus_count: [{ranks}]\nbandwidth: [50]\nlatency: [500]\n")


def chakra(ranks, nodes, folder):
    for rank in range(ranks):
        with open(folder / f"w.{rank}.et", "wb") as out:
            out.write(framed(field(1, "0.0.4")))
            for n in range(nodes):
                message = field(1, n) + field(2, f"n{n}") + field(3, COLLECTIVE if n % 4 == 3 else COMPUTE)
                if n > 0:
                    message += field(5, n - 1)
                if n % 4 == 3:
                    message += attributes(is_cpu_op=0, comm_type=0, comm_size=1 << 20)
                else:
                    message += field(7, 10 + (7 * n + rank) % 5) + attributes(is_cpu_op=0, num_ops=10**6, tensor_size=10**5)
                out.write(framed(message))


def kineto(size, path):
    """A step is 500 operators, each with its kernel and the call that launched it."""
    number = 0

    def event(category, name, tid, start, duration, **args):
        return json.dumps({"ph": "X", "cat": category, "name": name, "pid": 1, "tid": tid, "ts": start, "dur": duration, "args": args})

    with open(path, "w") as out:
        out.write('{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}],\n'
                  '"distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1},\n"traceEvents": [\n')
        step = 0
        while out.tell() < size:
            at = 20_000.0 * step
            out.write(("" if step == 0 else ",\n") + event("user_annotation", f"ProfilerStep#{step}", 10, at, 19_990.0))
            for op in range(500):
                number += 1
                start = at + 10 + 38 * op
                shapes = {"Input Dims": [[4096, 4096], [4096, 1024], [], [], []], "Input type": ["c10::BFloat16", "c10::BFloat16", "", "", ""],
                          "Concrete Inputs": ["", "", "", "", "1"], "Record function id": number, "Ev Idx": number}
                kernel = {"device": 0, "context": 1, "stream": 7, "correlation": number, "External id": number, "queued": 0,
                          "registers per thread": 168, "shared memory": 213_000, "blocks per SM": 0.97, "warps per SM": 3.9,
                          "grid": [128, 1, 1], "block": [384, 1, 1], "est. achieved occupancy %": 19}
                for line in (event("cpu_op", "aten::mm", 10, start, 30.0, **shapes, **{"External id": number, "Sequence number": number}),
                             event("cuda_runtime", "cudaLaunchKernel", 10, start + 8, 6.5, correlation=number, **{"External id": number, "cbid": 211}),
                             event("kernel", "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
                                   7, start + 20, 33.0, **kernel)):
                    out.write(",\n" + line)
            step += 1
        out.write("\n]}\n")


def main():
    kind, *rest = sys.argv[1:] or [""]
    if kind == "ring" and len(rest) == 2 or kind == "chakra" and len(rest) == 3:
        folder = pathlib.Path(rest[-1])
        folder.mkdir(parents=True, exist_ok=True)
        (ring if kind == "ring" else chakra)(*map(int, rest[:-1]), folder)
    elif kind == "kineto" and len(rest) == 2:
        kineto(int(rest[0]) * 1_000_000, rest[1])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
