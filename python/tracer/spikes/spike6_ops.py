"""Spike 6: is every communication op of this PyTorch mapped or explicitly refused?

python spike6_ops.py            the table; exit status 1 if an op is unmapped
python spike6_ops.py --demo     the same after registering an op nobody mapped: must fail
"""

from __future__ import annotations

import sys
from collections import Counter

import torch
import torch.distributed.tensor  # noqa: F401 - registers _dtensor

from comm_ops import NAMESPACES, REFUSED_NAMESPACES, TABLE, CommOp, check, installed

_FRAGMENTS: list[torch.library.Library] = []


def register_unknown_op() -> None:
    """Adds an op that no table knows, as a future PyTorch would."""
    library = torch.library.Library("c10d", "FRAGMENT")
    library.define("all_gather_single_(Tensor output, Tensor input) -> ()")
    _FRAGMENTS.append(library)


def report() -> list[str]:
    """Lines of the table, one per op."""
    lines = []
    for name, schema in sorted(installed().items()):
        namespace = name.split("::")[0]
        row = TABLE.get(name)
        if namespace in REFUSED_NAMESPACES:
            lines.append(f"{name:55} refused: {REFUSED_NAMESPACES[namespace]}")
        elif isinstance(row, CommOp):
            group = "coalesced " if row.coalesced else ""
            lines.append(f"{name:55} {group}{row.kind}, waits on {row.wait}")
        elif row is not None:
            verdict = "ignored" if row.harmless else "refused"
            lines.append(f"{name:55} {verdict}: {row.reason}")
        else:
            lines.append(f"{name:55} UNMAPPED {schema}")
    return lines


def main() -> int:
    """Prints the table and the verdict."""
    if "--demo" in sys.argv:
        register_unknown_op()
    print("\n".join(report()))
    counts = Counter(name.split("::")[0] for name in installed())
    print(torch.__version__, ", ".join(f"{n} {counts[n]}" for n in (*NAMESPACES, "symm_mem")))
    absent = sorted(set(TABLE) - set(installed()))
    print("in the table, not in this PyTorch:", ", ".join(absent) or "none")
    complaints = check()
    for complaint in complaints:
        print("UNMAPPED", complaint, file=sys.stderr)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
