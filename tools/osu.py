#!/usr/bin/env python3
"""Runs Orrery beside published OSU micro-benchmarks of MPI: the figures of docs/mpi-measured.md.

    tools/osu.py --orrery build/release/orrery             # a line a row of validation/osu_measured.csv, then the errors
    tools/osu.py --orrery build/release/orrery --hosts     # on hosts whose ranks share a NIC, by network flow
    tools/osu.py --orrery build/release/orrery --shared    # LogGOPS whose hosts share their NIC, ranks talk through memory
    tools/osu.py --orrery build/release/orrery --auto      # with the algorithms that Orrery chooses by itself
    tools/osu.py --orrery build/release/orrery --system alps --csv rows.csv

LogGOPS's parameters come from the point-to-point figures of validation/osu_systems.csv alone:
o = g = time of a 1-byte message in osu_bw, L = osu_latency of 1 byte - 2 o, G = 1 / the bandwidth of the largest
message, S = the size after which osu_latency jumps. --hosts spreads L over the two NICs and gives a host one NIC of
that bandwidth; inside a host a message costs o and the bandwidth of an NVLink, for none was published. --shared keeps LogGOPS, where the ranks of a host have one NIC, and
messages inside it are copied (loggops.host_ranks, defaults) by a memory of two sockets with eight channels of DDR4-3200
each: the peak of AMD's EPYC 7003 and Intel's Ice Lake Xeon, which these hosts have. A rank's time is when it leaves its one call; OSU prints the mean
over ranks, and so does this. The error is predicted / measured - 1.
"""

import argparse
import csv
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMM = 1140850688
MEMORY = "409.6GB/s"
BANDS = [(1024, "to 1 KiB"), (65536, "to 64 KiB"), (math.inf, "above 64 KiB")]


def parameters(system):
    """LogGOPS's parameters of a system, in ns and bytes."""
    rate = system["one_byte_MBps"]
    overhead = round(1000 / float(rate)) if rate else 0
    latency = round(1000 * float(system["latency_us"])) - 2 * overhead
    if latency < 0:
        sys.exit(f"osu.py: {system['system']}: two overheads exceed the latency")
    return {
        "L": latency,
        "o": overhead,
        "g": overhead,
        "G": 1000 / float(system["bandwidth_MBps"]),
        "S": f"{system['eager_bytes']}B",
    }


def cluster(row, system):
    """The text of a cluster file: hosts of `ranks / nodes` GPUs, each a rank, with one NIC."""
    per_node = int(row["ranks"]) // int(row["nodes"])
    bandwidth = f"{float(system['bandwidth_MBps']) / 1000:.5f}GB/s"
    lines = {
        "preset": "h100-ib-400g",
        "gpus_per_node": per_node,
        "gpus_per_nvlink_domain": per_node,
        "nics_per_node": 1,
        "nic_bandwidth": bandwidth,
        "nic_header_bytes": "0B",
        "nic_latency": f"{parameters(system)['L'] / 2}ns",
        "pcie_bandwidth": bandwidth,
        "pcie_latency": "0ns",
        "nvlink_latency": "0ns",
        "nodes_per_leaf": row["nodes"],
    }
    return "".join(f"{key}: {value}\n" for key, value in lines.items())


def call(row, rank):
    """The line of the call that a row measures, but for its times."""
    size, ranks = int(row["size_bytes"]), int(row["ranks"])
    comm = f"{COMM},{rank},{ranks}"
    kind = row["collective"]
    if kind == "latency":
        name = "MPI_Send" if rank == 0 else "MPI_Recv"
        return f"{name}:1000:4096:{size}:13,1,1:{1 - rank}:7:{comm}" + (":0" if rank else "")
    if kind == "allreduce":
        return f"MPI_Allreduce:1000:4096:8192:{size // 4}:10,4,4:3:{comm}"
    if kind == "alltoall":
        return f"MPI_Alltoall:1000:4096:{size}:13,1,1:8192:{size}:13,1,1:{comm}"
    sys.exit(f"osu.py: collective {kind!r} is not one of latency, allreduce, alltoall")


def predict(orrery, row, system, auto, hosts, shared):
    """Microseconds until the mean rank has left the call (of osu_latency: the receiver)."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "t").mkdir()
        for rank in range(int(row["ranks"])):
            text = f"# rank {rank}\nMPI_Init:-:0:0:1000\n{call(row, rank)}:1001\nMPI_Finalize:1001:-\n"
            (folder / "t" / f"trace-{rank}.txt").write_text(text, encoding="utf-8")
        command = [orrery, "simulate", str(folder / "t"), "--csv", str(folder / "ranks.csv")]
        command += ["--set", f"mpi.library={system['library']}"]
        keys = parameters(system)
        if hosts:
            (folder / "cluster.yaml").write_text(cluster(row, system), encoding="utf-8")
            command += ["--network", "flow", "--cluster", str(folder / "cluster.yaml")]
            keys = {key: keys[key] for key in ("o", "S")}
        if shared:
            keys |= {"host_ranks": int(row["ranks"]) // int(row["nodes"]), "host_memory": MEMORY}
        for key, value in keys.items():
            command += ["--set", f"loggops.{key}={value}"]
        if row["algorithm"] and not auto:
            command += ["--set", f"mpi.{row['collective']}={row['algorithm']}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"osu.py: {' '.join(command)}\n{done.stderr}")
        with open(folder / "ranks.csv", encoding="utf-8", newline="") as file:
            lines = list(csv.DictReader(file))
    finish = [float(line["finish_ps"]) for line in lines]
    return (finish[1] if row["collective"] == "latency" else statistics.mean(finish)) / 1e6


def summary(title, rows, keys):
    print(f"\n{title}: rows, median error, least, most, median of |ln(predicted / measured)| as a factor")
    groups = {}
    for row in rows:
        groups.setdefault(tuple(k(row) for k in keys), []).append(row["ratio"])
    for key, ratios in groups.items():
        factor = math.exp(statistics.median(abs(math.log(r)) for r in ratios))
        least, middle, most = (100 * (f(ratios) - 1) for f in (min, statistics.median, max))
        print(f"  {', '.join(key):58s} {len(ratios):3d} {middle:+7.0f} % {least:+7.0f} % {most:+7.0f} %  {factor:.2f}x")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orrery", required=True)
    parser.add_argument("--system", help="this one only")
    parser.add_argument("--auto", action="store_true", help="the algorithms that Orrery chooses by itself")
    parser.add_argument("--hosts", action="store_true", help="rows with several ranks a host, whose messages share a NIC")
    parser.add_argument("--shared", action="store_true", help="the same rows, whose messages inside a host go through memory")
    parser.add_argument("--csv", help="write the rows with their predictions to FILE")
    options = parser.parse_args()
    with open(ROOT / "validation/osu_systems.csv", encoding="utf-8", newline="") as file:
        systems = {row["system"]: row for row in csv.DictReader(file)}
    with open(ROOT / "validation/osu_measured.csv", encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if options.system in (None, row["system"])]
    if not rows:
        sys.exit(f"osu.py: no system {options.system!r}; there are {', '.join(systems)}")
    if options.hosts or options.shared:
        rows = [row for row in rows if int(row["ranks"]) > int(row["nodes"]) and systems[row["system"]]["shared_nic"] == "yes"]
    for row in rows:
        row["predicted_us"] = predict(options.orrery, row, systems[row["system"]], options.auto, options.hosts, options.shared)
        row["ratio"] = row["predicted_us"] / float(row["measured_us"])
        how = "as Orrery chooses" if options.auto and row["algorithm"] else row["algorithm"]
        print(
            f"{row['system']:15s} {row['collective']:10s} {row['ranks']:>5s} ranks {row['size_bytes']:>8s} B "
            f"{float(row['measured_us']):9.2f} us {row['predicted_us']:9.2f} us {100 * (row['ratio'] - 1):+7.1f} %  {how}",
            flush=True,
        )
    band = lambda row: next(name for bound, name in BANDS if int(row["size_bytes"]) <= bound)  # noqa: E731
    summary("by system and size", rows, [lambda r: r["system"], lambda r: r["collective"], band])
    collectives = [row for row in rows if row["algorithm"]]
    if not options.auto:
        summary("by algorithm and size", collectives, [lambda r: r["collective"], lambda r: r["algorithm"], band])
    if options.csv:
        with open(options.csv, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
