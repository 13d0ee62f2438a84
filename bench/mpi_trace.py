#!/usr/bin/env python3
"""Writes traces of an MPI program as liballprof does: the trace whose figures docs/formats/mpi.md quotes.

A step exchanges faces with the six neighbours on a torus (MPI_Irecv, MPI_Isend, MPI_Waitall), works, and
reduces eight bytes over all ranks: 14 calls. Work differs by rank and step.

Usage: mpi_trace.py RANKS STEPS FOLDER [BYTES]
"""

import pathlib
import sys


def grid(ranks):
    best = (ranks, 1, 1)
    for x in range(1, ranks + 1):
        for y in range(1, x + 1):
            if x * y > ranks or ranks % (x * y):
                continue
            z = ranks // (x * y)
            if z <= y and x + y + z < sum(best):
                best = (x, y, z)
    return best


def neighbours(rank, extent):
    at = [rank % extent[0], rank // extent[0] % extent[1], rank // extent[0] // extent[1]]
    for d in range(3):
        for way in (-1, 1):
            to = list(at)
            to[d] = (at[d] + way) % extent[d]
            yield d, way, to[0] + extent[0] * (to[1] + extent[1] * to[2])


def main():
    ranks, steps, folder = int(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3])
    size = int(sys.argv[4]) if len(sys.argv) > 4 else 8192
    extent = grid(ranks)
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(ranks):
        comm = f"1140850688,{rank},{ranks}"
        lines = [f"# liballprof, rank {rank}", f"MPI_Init:-:0:0:{1000 + rank}"]
        now = 1000 + rank
        around = list(neighbours(rank, extent))
        for step in range(steps):
            request = 7000
            for d, way, other in around:
                tag = 2 * d + (way < 0)
                lines.append(f"MPI_Irecv:{now}:4096:{size}:13,1,1:{other}:{tag}:{comm}:{request}:{now + 1}")
                now += 1
                request += 8
            for d, way, other in around:
                tag = 2 * d + (way > 0)
                lines.append(f"MPI_Isend:{now}:4096:{size}:13,1,1:{other}:{tag}:{comm}:{request}:{now + 1}")
                now += 1
                request += 8
            lines.append(f"MPI_Waitall:{now}:12:7000:0:{now + 20}")
            now += 20 + 200 + (rank * 2654435761 + step * 40503) % 97
            lines.append(f"MPI_Allreduce:{now}:4096:8192:1:10,8,8:3:{comm}:{now + 30}")
            now += 30 + 50
        lines.append(f"MPI_Finalize:{now}:-")
        (folder / f"trace-{rank}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
