"""What scripts rely on (one document on stdout, no colours in files), and what typing errors are told."""

import json
import os
import pathlib
import pty
import re
import tempfile

from common import INPUTS, ROOT, Tally, in_parallel, run, sample

RESULT = ROOT / "tests/fuzz/corpus/result/good.json"
ON = ["--cluster", "h100-ib-400g"]

# Of each command one that works, {TMP} an empty folder, and one that does not.
COMMANDS = {
    "simulate": (["simulate", "good.yaml", "--no-advice"], ["simulate", "nosuch.yaml"]),
    "import": (["import", ROOT / "examples/recipes/llama3-8b-fp8.sh", *ON], ["import", "recipe_refused.sh", *ON]),
    "list": (["list", "models"], ["list", "modells"]),
    "inspect": (["inspect", "good.yaml"], ["inspect", "bad.goal"]),
    "doctor": (["doctor"], ["doctor", "--nosuch"]),
    "schema": (["schema", "job"], ["schema", "jobb"]),
    "plan": (["plan", "good.yaml"], ["plan", "unknown_key.yaml"]),
    "sweep": (["sweep", "good.yaml", "--vary", "training.global_batch=16,32"], ["sweep", "good.yaml", "--vary", "training=1"]),
    "merge": (["merge", "{TMP}/1.json", "{TMP}/2.json"], ["merge", "good.yaml"]),
    "validate": (["validate", "rows.csv"], ["validate", "good.yaml"]),
    "convert": (["convert", "ring4.goal", "-o", "{TMP}/x.bin"], ["convert", "cut.goal", "-o", "{TMP}/y.bin"]),
    "traffic": (["traffic", "all-reduce", "--nodes", "1", "--max", "1KiB"], ["traffic", "all-reduze"]),
    "queue": (["queue", "queue.yaml"], ["queue", "queue_bad.yaml"]),
    "compare": (["compare", RESULT, RESULT], ["compare", RESULT, "good.yaml"]),
    "explain": (["explain", RESULT, "step_time_s"], ["explain", RESULT, "step_tim"]),
}  # fmt: skip
WITHOUT_JSON = {"trace", "calibrate"}


def terminal(settings, command, cwd, no_color):
    """What the command writes when both streams are a terminal."""
    child, master = pty.fork()
    if child == 0:
        os.chdir(cwd)
        variables = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "ORRERY_MEASURED": "", "TERM": "xterm"}
        if no_color:
            variables["NO_COLOR"] = "1"
        os.execve(settings.program, [settings.program, *map(str, command)], variables)
    shown = b""
    while True:
        try:
            part = os.read(master, 1 << 16)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        shown += part
    os.waitpid(child, 0)
    os.close(master)
    return shown


def documents(text):
    """How many JSON documents a text is; 0 where there is anything else in it."""
    decoder, count = json.JSONDecoder(), 0
    text = text.decode().strip()
    while text:
        try:
            _, end = decoder.raw_decode(text)
        except ValueError:
            return 0
        count, text = count + 1, text[end:].lstrip()
    return count


def contract(settings):
    """`--json -` is one document, of a failure too; a failure writes nothing else to stdout; nothing is animated or
    coloured in a file, nor in a terminal that asks for no colours."""
    tally = Tally("contract")
    helped = run(settings, ["--help"]).out.decode()
    commands = re.findall(r"^  ([a-z]+) ", helped[helped.index("Subcommands") :], re.MULTILINE)
    tally.check(set(commands) == set(COMMANDS) | WITHOUT_JSON, f"commands: {sorted(commands)}")
    with tempfile.TemporaryDirectory() as folder:
        for shard in (1, 2):
            shards = ["sweep", "good.yaml", "--vary", "training.global_batch=16,32", "--shard", f"{shard}/2"]
            run(settings, [*shards, "--json", f"{folder}/{shard}.json"])

        def one(name):
            good, bad = ([str(w).replace("{TMP}", folder) for w in words] for words in COMMANDS[name])
            checks = []
            for command, expected in ((good, (0, 1)), (bad, (2,))):
                answer = run(settings, [*command, "--json", "-"])
                fine = answer.status in expected and documents(answer.out) == 1
                schema = json.loads(answer.out) if fine else {}
                named = "schema" in schema or "$schema" in schema
                failed = schema.get("schema") == "orrery.error/1"
                checks.append((fine and named and failed == (expected == (2,)), answer.said()))
                plain = run(settings, command)
                quiet = plain.status != 2 or (plain.out == b"" and plain.is_message())
                still = not any(sign in plain.out + plain.err.encode() for sign in (b"\x1b", b"\r"))
                checks.append((plain.status in expected and quiet and still, plain.said()))
                shown = terminal(settings, command, INPUTS, no_color=True)
                checks.append((shown != b"" and b"\x1b[" not in shown, f"NO_COLOR: {plain.said()}"))
            return checks

        for checks in in_parallel(one, COMMANDS):
            for fine, what in checks:
                tally.check(fine, what)
    tally.note(f"{len(COMMANDS)} commands")
    return tally


def edits(name):
    """Every name that one letter more, less, other or swapped makes of it."""
    for i in range(len(name) + 1):
        yield name[:i] + "x" + name[i:]
        if i < len(name):
            yield name[:i] + name[i + 1 :]
            yield name[:i] + "q" + name[i + 1 :]
        if i + 1 < len(name):
            yield name[:i] + name[i + 1] + name[i] + name[i + 2 :]


def typos(settings):
    """Of the typing errors of presets' names and of options at least 95 % are told the right name first: of a few, 90."""
    tally = Tally("typos")
    cases = []
    for kind, key in (("models", "model"), ("clusters", "cluster"), ("frameworks", "framework"), ("networks", "network")):
        names = [entry["name"] for entry in json.loads(run(settings, ["list", kind, "--json", "-"]).out)["entries"]]
        for name in names:
            command = ["simulate", "good.yaml", "--no-advice", "--set"]
            cases += [(name, [*command, f"{key}={typo}"]) for typo in edits(name) if typo not in names]
    for verb, (good, _) in COMMANDS.items():
        options = re.findall(r"--[a-z][a-z-]+", run(settings, [verb, "--help"]).out.decode())
        for option in dict.fromkeys(options):
            wrong = (f"--{typo}" for typo in edits(option[2:]))
            cases += [(option, [*good[:2], typo]) for typo in wrong if typo not in options]

    def one(case):
        name, command = case
        done = run(settings, command)
        first = re.search(r"(?:did you mean|the nearest:|valid:) '?([^'?, ]+)", done.err)
        return done.status == 2, first is not None and first[1].rstrip("';") == name, done.said()

    chosen = sample(cases, settings, 0.005, 5)
    found = 0
    for refused, right, what in in_parallel(one, chosen):
        tally.check(refused, what)
        found += right
    least = 0.95 if settings.full else 0.9  # of a few dozen
    tally.check(found >= least * len(chosen), f"{found} of {len(chosen)} are told the right name first")
    tally.note(f"{100 * found / len(chosen):.1f} % of {len(chosen):,} are told the right name first, {len(cases):,} in all")
    return tally
