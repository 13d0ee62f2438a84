#!/usr/bin/env python3
"""The end and the communication of every rank under ASTRA-sim's analytical binaries beside ours, on drawn inputs.

Usage: beside_astra.py UNAWARE AWARE [--from SEED] [--count N] [--program PROGRAM] [--keep FOLDER] [--only KIND,…]
  UNAWARE, AWARE: AstraSim_Analytical_Congestion_Unaware and _Aware, built elsewhere; - for one that is not there
  PROGRAM:        build/release/orrery unless said
  KEEP:           where inputs that differ are kept
  KIND:           unaware, aware (one dimension), aware-dims (several), bus (unaware, with model-shared-bus), custom (unaware,
                  collectives as graphs of their own)

A seed draws a network (one to three dimensions of rings, switches and full meshes, odd sizes), a system file (policy, chunks,
queues, algorithms, memory bus, roofline), remote memory, communicators, and a trace a rank: computation, collectives of all
kinds over all and some ranks and dimensions, messages, memory, dependencies. Prints each seed that differs and a count of all.
"""

import argparse
import json
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
ALL_REDUCE, ALL_GATHER, BROADCAST, ALL_TO_ALL, REDUCE_SCATTER = 0, 2, 5, 6, 7
MEM_LOAD, MEM_STORE, COMPUTE, SEND, RECEIVE, COLLECTIVE = 2, 3, 4, 5, 6, 7
FINISHED = re.compile(r"sys\[(\d+)\] finished, (\d+) cycles, exposed communication (\d+) cycles")
COMMUNICATED = re.compile(r"sys\[(\d+)\], Comm time: (\d+)")


# Protobuf, as much as a trace needs.
def varint(n):
    out = b""
    n &= (1 << 64) - 1
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(number, payload):
    if isinstance(payload, int):
        return varint(number << 3) + varint(payload)
    payload = payload.encode() if isinstance(payload, str) else payload
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def attribute(name, number, value):
    return field(10, field(1, name) + field(number, value))


def framed(message):
    return varint(len(message)) + message


class Trace:
    def __init__(self):
        self.out = framed(field(1, "0.0.4"))

    def add(self, node, kind, deps=(), micros=0, cpu=False, **attributes):
        m = field(1, node) + field(2, f"n{node}") + field(3, kind)
        for d in deps:
            m += field(5, d)
        if micros:
            m += field(7, micros)
        m += attribute("is_cpu_op", 27, int(cpu))
        for name, value in attributes.items():
            if name == "pg_name":
                m += attribute(name, 29, value)
            elif name == "involved_dim":
                m += attribute(name, 28, b"".join(field(1, int(v)) for v in value))
            elif name in ("comm_src", "comm_dst", "comm_tag", "comm_priority"):
                m += attribute(name, 11, value)
            else:
                m += attribute(name, 13, value)
        self.out += framed(m)


def is_power(n):
    return n & (n - 1) == 0


class Case:
    def __init__(self, seed, kind):
        self.random = random.Random(f"{seed}/{kind}")
        self.kind = kind
        r = self.random
        self.aware = kind.startswith("aware")
        self.options = []
        self.set = ["astra.congestion=aware"] if self.aware else []
        self.draw_network()
        self.draw_system()
        self.draw_memory()
        self.draw_groups()
        self.draw_traces()

    def draw_network(self):
        r = self.random
        most = {"aware": 24, "aware-dims": 48}.get(self.kind, 64)
        dims = 1 if self.kind == "aware" else r.randint(2, 3) if self.kind == "aware-dims" else r.choice([1, 1, 2, 2, 3])
        while True:
            self.sizes = [r.choice([2, 2, 3, 4, 4, 5, 6, 7, 8, 8, 12, 16]) for _ in range(dims)]
            self.ranks = 1
            for n in self.sizes:
                self.ranks *= n
            if self.ranks <= most:
                break
        self.network = {
            "topology": [r.choice(["Ring", "FullyConnected", "Switch"]) for _ in self.sizes],
            "npus_count": self.sizes,
            "bandwidth": [r.choice([12.5, 25, 50, 100, 200, 450, 33.3, 0.7, 80.0, 741.34]) for _ in self.sizes],
            "latency": [r.choice([0, 1, 25, 500, 700.5, 936.25, 3.39, 2000]) for _ in self.sizes],
        }

    def draw_system(self):
        r = self.random
        system = {
            "scheduling-policy": r.choice(["LIFO", "FIFO", "EXPLICIT"]),
            "active-chunks-per-dimension": r.choice([1, 1, 2, 3, 4, 8]),
            "preferred-dataset-splits": r.choice([1, 2, 3, 4, 4, 7, 16]),
            "collective-optimization": r.choice(["baseline", "localBWAware"]),
            "local-mem-bw": r.choice([1600, 50, 2039, 3350.5, 7]),
            "boost-mode": 0,
        }
        if r.random() < 0.8:
            system["endpoint-delay"] = r.choice([0, 1, 10, 10, 25, 400])
        if r.random() < 0.2:
            system["local-reduction-delay"] = r.choice([0, 1, 5])
        if r.random() < 0.15:
            system["trace-enabled"] = r.choice([0, 0, 1])
        self.roofline = r.random() < 0.35
        if self.roofline:
            system["roofline-enabled"] = 1
            system["peak-perf"] = r.choice([100, 312, 989.5, 0.5])
        self.replay = r.random() < 0.05
        if self.replay:
            system["replay-only"] = 1
        whole = r.random() < 0.15
        for name in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all"):
            entries = []
            for d, n in enumerate(self.sizes):
                choices = ["ring", "direct", f"direct{r.randint(1, max(1, n))}"]
                if is_power(n) and name != "all-to-all":
                    choices.append("halvingDoubling")
                if is_power(n) and name == "all-reduce" and system["collective-optimization"] == "baseline":
                    choices.append("doubleBinaryTree")
                entries.append(r.choice(choices))
            if whole:
                choices = ["oneRing", "oneDirect", f"oneDirect{r.randint(1, self.ranks)}"]
                if is_power(self.ranks) and name != "all-to-all":
                    choices.append("oneHalvingDoubling")
                entries = [r.choice(choices)]
            system[f"{name}-implementation"] = entries
        if self.kind == "bus":
            system["model-shared-bus"] = 1
            system["L"], system["o"], system["g"] = r.choice([0, 1, 5]), r.choice([0, 1, 3]), r.choice([0, 1, 10])
            system["G"] = r.choice([0, 0.0038, 0.01, 0.5])
            if r.random() < 0.5:
                system["local-reduction-delay"] = r.choice([0, 1, 5])
        self.system = system
        queues = r.choice([1, 1, 1, 2, 4, 5])
        if system["collective-optimization"] == "localBWAware" and queues % 2:
            queues = 1 if queues == 1 else 4
        self.queues = queues
        if queues > 1:
            self.options.append(f"--num-queues-per-dim={queues}")
        if r.random() < 0.1:
            self.options.append(f"--injection-scale={r.choice([0.5, 2, 1.7])}")
        if r.random() < 0.12:
            self.options.append("--rendezvous-protocol=true")

    def draw_memory(self):
        r = self.random
        kind = r.choice(["NO", "PER_NODE", "PER_NPU", "POOL"])
        name = {"POOL": "MEMORY_POOL"}.get(kind, f"{kind}_MEMORY_EXPANSION")
        self.memory = {"memory-type": name}
        self.remote = kind != "NO"
        if self.remote:
            self.memory |= {"remote-mem-latency": r.choice([0, 100, 1000]), "remote-mem-bw": r.choice([1, 50, 900])}
        if kind == "PER_NODE":
            per = r.choice([p for p in range(1, self.ranks + 1) if self.ranks % p == 0])
            self.memory |= {"num-nodes": self.ranks // per, "num-npus-per-node": per}

    def draw_groups(self):
        r = self.random
        self.groups = {}
        if self.kind == "custom" or r.random() < 0.5:
            return
        for i in range(r.randint(1, 3)):
            members = list(range(self.ranks)) if r.random() < 0.15 else sorted(
                r.sample(range(self.ranks), r.randint(2, self.ranks)))
            if r.random() < 0.2:
                r.shuffle(members)
            self.groups[i + 1] = members

    def usable(self, group, collective):
        """Whether a communicator's algorithm fits its size: several dimensions become one ring."""
        name = {ALL_REDUCE: "all-reduce", ALL_GATHER: "all-gather", REDUCE_SCATTER: "reduce-scatter", ALL_TO_ALL: "all-to-all"}[collective]
        entries = self.system[f"{name}-implementation"]
        members = self.groups[group]
        if len(members) == self.ranks or len(entries) > 1:
            return True
        if "alving" in entries[0]:
            return is_power(len(members))
        return "Tree" not in entries[0]

    def draw_traces(self):
        r = self.random
        # Steps all ranks share, so that collectives meet; computation may differ by rank.
        alike = r.random() < 0.4
        steps = []
        for _ in range(r.randint(1, 9)):
            what = r.random()
            if what < 0.4:
                collective = r.choice([ALL_REDUCE, ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL])
                group = r.choice([0, *self.groups]) if r.random() < 0.6 else 0
                if group and not self.usable(group, collective):
                    group = 0
                bytes_ = r.choice([r.randint(1, 5000), r.randint(1 << 14, 1 << 22), 1 << r.randint(10, 24)])
                if collective == ALL_GATHER:
                    bytes_ = max(bytes_, 64)
                step = ("collective", collective, bytes_, group, r.randint(0, 5), None)
                if group == 0 and len(self.sizes) > 1 and r.random() < 0.15 and "one" not in self.system["all-reduce-implementation"][0]:
                    involved = [r.random() < 0.6 for _ in self.sizes]
                    if any(involved):
                        step = step[:5] + (involved,)
                steps.append(step)
            elif what < 0.65:
                steps.append(("compute",))
            elif what < 0.72:
                steps.append(("cpu",))
            elif what < 0.82 and self.remote:
                steps.append(("memory",))
            elif what < 0.86:
                steps.append(("broadcast", r.randint(0, 40)))
            elif not alike:
                a, b = r.sample(range(self.ranks), 2)
                steps.append(("message", a, b, r.choice([r.randint(1, 9999), 1 << r.randint(8, 22)]), r.randint(0, 3)))
        if not steps:
            steps = [("compute",)]
        links = [[j for j in range(i) if r.random() < 0.5] for i in range(len(steps))]
        serial = r.random() < 0.3
        shared = r.getrandbits(32)
        self.traces = []
        for rank in range(self.ranks):
            own = random.Random(shared if alike else shared + rank)
            trace, made, last = Trace(), {}, None
            for i, step in enumerate(steps):
                deps = [made[j] for j in links[i] if j in made]
                if serial and last is not None:
                    deps = [last]
                node = i + 1
                if step[0] == "collective":
                    _, collective, bytes_, group, priority, involved = step
                    if group and rank not in self.groups[group]:
                        continue
                    more = {"comm_type": collective, "comm_size": bytes_, "comm_priority": priority}
                    if group:
                        more["pg_name"] = str(group)
                    if involved:
                        more["involved_dim"] = involved
                    trace.add(node, COLLECTIVE, deps, micros=own.randint(0, 50), **more)
                elif step[0] in ("compute", "cpu"):
                    trace.add(node, COMPUTE, deps, micros=own.choice([0, 1, own.randint(1, 300)]), cpu=step[0] == "cpu",
                              num_ops=own.randint(1, 10**9), tensor_size=0 if own.random() < 0.02 else own.randint(1, 10**7))
                elif step[0] == "memory":
                    trace.add(node, own.choice([MEM_LOAD, MEM_STORE]), deps, tensor_size=own.randint(0, 1 << 20))
                elif step[0] == "broadcast":
                    trace.add(node, COLLECTIVE, deps, micros=step[1], comm_type=BROADCAST, comm_size=100)
                else:
                    _, a, b, bytes_, tag = step
                    if rank not in (a, b):
                        continue
                    trace.add(node, SEND if rank == a else RECEIVE, deps, comm_src=a, comm_dst=b, comm_size=bytes_, comm_tag=tag)
                made[i] = last = node
            if not made:
                trace.add(1, COMPUTE, micros=1, num_ops=1, tensor_size=1)
            self.traces.append(trace.out)

    def write_custom(self, folder):
        """Graphs for a kind of collective, and for one node: rounds in which places send by a drawn permutation."""
        r = self.random
        name = r.choice(["all-reduce", "all-gather", "reduce-scatter", "all-to-all"])
        self.system["preferred-dataset-splits"] = 1
        self.system[f"{name}-implementation-custom"] = [f"{folder}/custom"]
        if r.random() < 0.4:
            self.system["per-node-custom-implementation"] = f"{folder}/nodes.yml"
            (folder / "nodes.yml").write_text(f"{r.randint(1, 4)}: {folder}/other\n")
        for prefix in ("custom", "other"):
            graphs = [Trace() for _ in range(self.ranks)]
            nodes = [0] * self.ranks
            open_ = [[] for _ in range(self.ranks)]
            for step in range(r.randint(1, 4)):
                to = list(range(self.ranks))
                r.shuffle(to)
                bytes_ = r.choice([r.randint(1, 9999), 1 << r.randint(8, 20)])
                for place in range(self.ranks):
                    source = to.index(place)
                    if source == place:
                        continue
                    made = []
                    for kind, peers in ((SEND, {"comm_dst": to[place]}), (RECEIVE, {"comm_src": source})):
                        node = nodes[place]
                        nodes[place] += 1
                        graphs[place].add(node, kind, open_[place], comm_size=bytes_, comm_tag=step, **peers)
                        made.append(node)
                    if r.random() < 0.6:
                        graphs[place].add(nodes[place], COMPUTE, made, micros=r.choice([0, 1, 7]))
                        made = [nodes[place]]
                        nodes[place] += 1
                    open_[place] = made
            for place, graph in enumerate(graphs):
                if nodes[place] == 0:
                    graph.add(0, COMPUTE, micros=1)
                (folder / f"{prefix}.{place}.et").write_bytes(graph.out)

    def write(self, folder):
        if self.kind == "custom":
            self.write_custom(folder)
        for rank, bytes_ in enumerate(self.traces):
            (folder / f"w.{rank}.et").write_bytes(bytes_)
        (folder / "system.json").write_text(json.dumps(self.system, indent=1))
        (folder / "network.yml").write_text("".join(f"{k}: [ {', '.join(map(str, v))} ]\n" for k, v in self.network.items()))
        (folder / "memory.json").write_text(json.dumps(self.memory))
        files = [f"--workload-configuration={folder}/w", f"--system-configuration={folder}/system.json",
                 f"--network-configuration={folder}/network.yml", f"--remote-memory-configuration={folder}/memory.json"]
        if self.groups:
            (folder / "groups.json").write_text(json.dumps({str(k): v for k, v in self.groups.items()}))
            files.append(f"--comm-group-configuration={folder}/groups.json")
        return files + self.options


def theirs(program, arguments, folder):
    run = subprocess.run([str(pathlib.Path(program).resolve()), *arguments, f"--logging-folder={folder}/log"], capture_output=True, text=True, cwd=folder, timeout=300)
    ends = {}
    for rank, cycles, exposed in FINISHED.findall(run.stdout):
        ends.setdefault(int(rank), (int(cycles), int(exposed)))  # exposed: modulo 2^64
    # What it prints of communication, where it does: some runs have none, or break off before.
    for rank, time in COMMUNICATED.findall(run.stdout):
        ends[int(rank)] += (int(time),)
    return ends, run.returncode, (run.stdout + run.stderr)[-400:]


def ours(program, arguments, sets, folder):
    command = [program, "simulate", "--format", "astra-sim", *arguments, "--json", f"{folder}/result.json", "--csv", f"{folder}/ranks.csv"]
    for s in sets:
        command += ["--set", s]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if run.returncode:
        return {}, run.returncode, run.stderr[-400:]
    lines = (folder / "ranks.csv").read_text().splitlines()
    names = lines[0].split(",")
    ends, rank = {}, 0
    for line in lines[1:]:
        row = dict(zip(names, line.split(",")))
        finish = int(row["finish_ps"]) // 1000
        ticks = int(row["gpu_ticks_ps"]) // 1000
        for _ in range(int(row.get("alike", 1))):
            ends[rank] = (finish, (finish - ticks) % 2**64, int(row["communication_ps"]) // 1000)
            rank += 1
    return ends, 0, ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("unaware")
    parser.add_argument("aware")
    parser.add_argument("--from", dest="start", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--program", default=str(ROOT / "build/release/orrery"))
    parser.add_argument("--keep", default="")
    parser.add_argument("--only", default="unaware,aware")
    args = parser.parse_args()
    agree = differ = refused = silent = strange = 0
    for seed in range(args.start, args.start + args.count):
        for kind in args.only.split(","):
            peer = args.aware if kind.startswith("aware") else args.unaware
            if peer == "-":
                continue
            with tempfile.TemporaryDirectory() as name:
                folder = pathlib.Path(name)
                case = Case(seed, kind)
                arguments = case.write(folder)
                try:
                    expected, code, said = theirs(peer, arguments, folder)
                except subprocess.TimeoutExpired:
                    expected, code, said = {}, -1, "timeout"
                got, status, error = ours(args.program, arguments, case.set, folder)
                whole = len(expected) == case.ranks
                if not whole:
                    # Without a result of theirs: where it stalls, so do we when asked to.
                    silent += 1
                    stalls, _, _ = ours(args.program, arguments, [*case.set, "astra.stalls=true"], folder)
                    bad = code == 0 and bool(stalls)
                    strange += bad
                    if bad:
                        print(f"{kind} {seed}: theirs stalls, ours does not: {said.strip()[-160:]}", flush=True)
                elif status:
                    refused += 1
                    print(f"{kind} {seed}: refused: {error.strip()}", flush=True)
                elif any(got.get(r, ())[: len(expected[r])] != expected[r] for r in range(case.ranks)):
                    differ += 1
                    first = next(r for r in range(case.ranks) if got.get(r, ())[: len(expected[r])] != expected[r])
                    print(f"{kind} {seed}: rank {first}: theirs {expected[first]}, ours {got.get(first)}", flush=True)
                else:
                    agree += 1
                if args.keep and (bad if not whole else status or any(got.get(r, ())[: len(e)] != e for r, e in expected.items())):
                    shutil.copytree(folder, pathlib.Path(args.keep) / f"{kind}-{seed}", dirs_exist_ok=True)
    print(f"{agree} agree, {differ} differ, {refused} refused by us, {silent} without a result of ASTRA-sim's, {strange} of which stall there alone")
    return 1 if differ or refused or strange else 0


if __name__ == "__main__":
    sys.exit(main())
