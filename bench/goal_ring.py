#!/usr/bin/env python3
"""Writes the GOAL schedule of a ring all-reduce, whose figures docs/formats/goal.md quotes.

Usage: goal_ring.py RANKS BYTES > ring.goal
"""

import sys


def main():
    ranks, size = int(sys.argv[1]), int(sys.argv[2]) // int(sys.argv[1])
    out = [f"num_ranks {ranks}"]
    for rank in range(ranks):
        out.append(f"rank {rank} {{")
        for step in range(2 * (ranks - 1)):
            out.append(f"s{step}: send {size}b to {(rank + 1) % ranks} tag {step}")
            if step > 0:
                out.append(f"s{step} requires r{step - 1}")
            out.append(f"r{step}: recv {size}b from {(rank - 1) % ranks} tag {step}")
        out.append("}")
        print("\n".join(out))
        out = []


if __name__ == "__main__":
    main()
