"""Values at the ends of what a key may hold, and the same job again."""

import functools
import itertools
import json
import os
import tempfile

from common import INPUTS, Tally, in_parallel, run, sample

JOB = INPUTS / "good.yaml"
ALWAYS = ["0", "-1", "1", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808",
          "1e308", "-1e308", "5e-324", "1e999", "nan", "inf", "-0", "0.5", "''", "1,000", "0x10", "null"]  # fmt: skip
QUANTITIES = {
    "B/s": ["0B/s", "1B/s", "17592186044416B/s", "17592186044417B/s", "1e30GB/s", "-1GB/s", "1Gb", "9223372036854775807B/s"],
    "time": ["0us", "1ps", "-1us", "1e9s", "9223372036854775807ps", "1e300s", "5", "1parsec"],
    "bytes": ["0B", "1B", "4611686018427387904B", "9223372036854775808B", "-1KiB", "1e300GiB", "1KB/s"],
}  # fmt: skip


def numeric_keys(node, path=()):
    """(path, least, most) of every number, ([path], unit) of every quantity, from the schema."""
    for group in ("anyOf", "oneOf", "allOf"):
        for below in node.get(group, []):
            yield from numeric_keys(below, path)
    if node.get("type") in ("integer", "number"):
        yield path, node
    elif node.get("type") == "string" and "enum" not in node and any(
        word in node.get("description", "") for word in ("bandwidth", "B/s", "latency", "time", "bytes", "GiB", "TFLOP")
    ):
        yield path, node
    for name, below in node.get("properties", {}).items():
        yield from numeric_keys(below, (*path, name))


def boundary_values(node):
    if node["type"] == "string":
        return list(dict.fromkeys(itertools.chain(*QUANTITIES.values())))
    ends = []
    for end in ("minimum", "maximum"):
        if end in node:
            whole = node["type"] == "integer"
            ends += [str(int(node[end]) + d) for d in (-1, 0, 1)] if whole else [repr(node[end])]
    return list(dict.fromkeys([*ends, *ALWAYS]))


def values(settings):
    """Every value is refused with the key's name, or runs to an answer."""
    tally = Tally("values")
    schema = json.loads(run(settings, ["schema", "job"]).out)
    keys = {".".join(path): node for path, node in numeric_keys(schema) if path and path[0] != "jobs"}
    cases = [(key, value) for key, node in keys.items() for value in boundary_values(node)]

    def one(case):
        key, value = case
        command = ["simulate", JOB, "--no-advice", "--set", f"{key}={value}"]
        if key.split(".")[0] in ("loggops", "packet"):
            command += ["--network", key.split(".")[0]]
        done = run(settings, command, seconds=60)
        named = key.rsplit(".", 1)[-1] in done.err
        fine = not done.late and (done.status in (0, 1) or (done.status == 2 and named and done.is_one_line()))
        return fine, done.said()

    for fine, what in in_parallel(one, sample(cases, settings, 0.03, 3)):
        tally.check(fine, what)
    tally.note(f"{len(keys)} keys, {len(cases):,} values")
    return tally


def repeats(settings):
    """One fingerprint for any number of threads, folded or not, however often."""
    tally = Tally("repeats")
    again = max(1, int(25 * settings.share)) if settings.full else 1
    jobs = [
        [INPUTS / "good.yaml"],
        [INPUTS / "good.yaml", "--network", "flow"],
        [INPUTS / "good.yaml", "--network", "links"],
        [INPUTS / "good.yaml", "--set", "perturb.jitter=1%"],
        [INPUTS / "fsdp.yaml", "--network", "flow"],
        [INPUTS / "ring4.goal"],
        [INPUTS / "mpi"],
    ]

    def one(folder, case):
        number, (job, extra) = case
        path = os.path.join(folder, f"{number}.json")
        done = run(settings, ["simulate", *job, *extra, "--json", path], seconds=60)
        if done.status not in (0, 1):
            return job, "", done.said()
        with open(path, encoding="utf-8") as file:
            return job, json.load(file)["simulation"]["fingerprint"], ""

    cases = []
    for job in jobs:
        yaml = job[0].suffix == ".yaml"
        ways = [[], ["--threads", "2"], ["--threads", "8"], ["--no-fold"]] if yaml else [[], []]
        cases += [(job, way) for way in ways * again]
    with tempfile.TemporaryDirectory() as folder:
        prints = {}
        for job, fingerprint, wrong in in_parallel(functools.partial(one, folder), enumerate(cases)):
            first = prints.setdefault(str(job), fingerprint)
            tally.check(not wrong and fingerprint == first, wrong or f"{job}: {fingerprint}, first {first}")
    tally.check(len(set(prints.values())) == len(prints), "different jobs have one fingerprint")
    return tally
