"""Files of strangers: damaged, larger than they look, and written to hurt a parser."""

import functools
import gzip
import os
import pathlib
import random
import tempfile

from common import INPUTS, MIB, ROOT, Tally, in_parallel, run, sample

CORPUS = ROOT / "tests" / "fuzz" / "corpus"
EXAMPLES = ROOT / "examples"
ON = ["--cluster", "h100-ib-400g"]

# Format: the command, with FILE in place of the file, and samples of it.
FORMATS = {
    "job": (["simulate", "FILE", "--no-advice"], [INPUTS / "good.yaml", INPUTS / "fsdp.yaml", INPUTS / "perturb_links.yaml"]),
    "result": (["inspect", "FILE"], [CORPUS / "result/good.json"]),
    "compare": (["compare", "FILE", CORPUS / "result/good.json"], [CORPUS / "result/good.json"]),
    "goal": (["inspect", "FILE"], sorted((CORPUS / "goal").iterdir())[:3]),
    "goal-binary": (["simulate", "FILE"], [CORPUS / "goal-binary/ring.bin"]),
    "graph-text": (["simulate", "FILE", *ON], [CORPUS / "graph-text/experts"]),
    "pattern": (["simulate", "FILE", "--gpus", "4"], sorted((CORPUS / "pattern").iterdir())[:3]),
    "mpi": (["inspect", "FILE"], [INPUTS / "mpi/trace-0.txt"]),
    "spc": (["simulate", "FILE"], [INPUTS / "requests.spc", INPUTS / "bad.spc"]),
    "storage": (["simulate", "FILE"], [INPUTS / "load.storage.yaml", *sorted((CORPUS / "storage").iterdir())]),
    "chakra": (["inspect", "FILE"], [CORPUS / "chakra/rank-0.et"]),
    "simai": (["inspect", "FILE"], [CORPUS / "simai/small.txt"]),
    "astra-text": (["inspect", "FILE"], [CORPUS / "text-workload/mlp.txt"]),
    "kineto": (["inspect", "FILE", "--set", "pytorch.replicas=2"], sorted((CORPUS / "kineto").iterdir())),
    "nsys": (["inspect", "FILE"], [CORPUS / "nsys/report.sqlite"]),
    "nccl-calls": (["inspect", "FILE"], sorted((CORPUS / "nccl-calls").iterdir())),
    "memory-snapshot": (["inspect", "FILE"], sorted((CORPUS / "memory-snapshot").iterdir())),
    "config-json": (["inspect", "FILE"], [CORPUS / "config-json/seed0.json", CORPUS / "config-json/seed1.json", CORPUS / "config-json/mamba_config.json"]),
    "nccl-xml": (["inspect", "FILE"], [INPUTS / "nccl_pairs.xml", INPUTS / "nccl_self.xml"]),
    "nccl-graph": (["traffic", "all-reduce", "--nodes", "1", "--max", "1KiB", "--set", "nccl.NCCL_GRAPH_FILE=FILE"], [INPUTS / "nccl_graphs.xml"]),
    "nccl-tests": (["traffic", "all-reduce", "--nodes", "1", "--compare", "FILE"], [INPUTS / "all_reduce.log", INPUTS / "nccl-tests.log", INPUTS / "pasted.txt"]),
    "calibrate": (["calibrate", "nccl-tests", "FILE"], [INPUTS / "all_reduce.log"]),
    "matrix": (["traffic", "FILE", "--nodes", "4"], [CORPUS / "connection-matrix/two.cm", INPUTS / "bad.cm"]),
    "sizes": (["traffic", "poisson", "--nodes", "2", "--load", "0.01", "--duration", "10us", "--sizes", "FILE"], [INPUTS / "sizes"]),
    "shares": (["traffic", "alltoall", "--nodes", "1", "--max", "1KiB", "--shares", "FILE"], [CORPUS / "shares/eight"]),
    "megatron": (["import", "FILE", *ON], [EXAMPLES / "recipes/llama3-8b-fp8.sh", EXAMPLES / "recipes/mixtral-8x7b.sh", EXAMPLES / "recipes/narayanan-2021.sh"]),
    "torchtitan": (["import", "FILE", *ON, "--gpus", "512", "--from", "torchtitan"], [EXAMPLES / "recipes/torchtitan-llama3-405b.toml", CORPUS / "recipe-torchtitan/of-2024"]),
    "deepspeed": (["import", "FILE", *ON, "--gpus", "16", "--model", "llama3-8b", "--from", "deepspeed"], sorted((CORPUS / "recipe-deepspeed").iterdir())),
    "maxtext": (["import", "FILE", *ON, "--nodes", "8", "--from", "maxtext"], [EXAMPLES / "recipes/maxtext-llama2-70b.yml"]),
    "table": (["validate", "FILE"], [INPUTS / "rows.csv"]),
}


def damaged(bytes_, generator, cuts, flips):
    """Beginnings of a file, and the file with a few bytes changed, doubled or left out."""
    for _ in range(cuts):
        yield bytes_[: generator.randrange(len(bytes_))]
    for _ in range(flips):
        changed = bytearray(bytes_)
        for _ in range(generator.choice((1, 1, 1, 2, 8))):
            at = generator.randrange(len(changed))
            match generator.randrange(4):
                case 0:
                    changed[at] ^= 1 << generator.randrange(8)
                case 1:
                    changed[at] = generator.choice(b"\0\xff09-.eE{}[]\"'\n\t :,<>/")
                case 2:
                    changed[at:at] = changed[at : at + generator.randrange(1, 9)]
                case _:
                    del changed[at : at + generator.randrange(1, 9)]
            if not changed:
                changed = bytearray(b"\0")
        yield bytes(changed)


def damage(settings):
    tally = Tally("damage")
    jobs = []
    cuts, flips = (max(1, int(n * settings.share)) for n in (2000, 10000)) if settings.full else (1, 2)
    for name, (command, files) in FORMATS.items():
        for file in files:
            generator = random.Random(f"{name} {file.name}")
            jobs += [(name, command, file, content) for content in damaged(file.read_bytes(), generator, cuts, flips)]

    def one(folder, numbered):
        number, (name, command, file, content) = numbered
        # The ending says the kind of some; what has none is known by what it holds.
        path = pathlib.Path(folder) / f"{number}-{file.name if file.suffix else file.name + '.txt'}"
        path.write_bytes(content)
        done = run(settings, [str(word).replace("FILE", str(path)) for word in command], cwd=folder, seconds=30)
        named = path.name in done.err
        message = done.is_message() if command[0] == "import" else done.is_one_line()
        fine = not done.late and (done.status in (0, 1) or (done.status == 2 and named and message))
        fine = fine and done.rss < 512 * MIB
        if fine:
            path.unlink()
        return fine, f"{name}, {file.name}: {done.said()}; rss {done.rss // MIB} MiB; kept: {path}"

    folder = tempfile.mkdtemp()
    for fine, what in in_parallel(functools.partial(one, folder), enumerate(jobs)):
        tally.check(fine, what)
    if not tally.wrong:
        os.rmdir(folder)
    tally.note(f"{len(FORMATS)} formats, {sum(len(files) for _, files in FORMATS.values())} samples")
    return tally


def apart(make):
    """Runs it in a process of its own: what a child was forked from counts as the child's memory."""
    child = os.fork()
    if child == 0:
        make()
        os._exit(0)
    os.waitpid(child, 0)


def zeros(path, size):
    """A file of zeros that takes no disk."""
    with path.open("wb") as file:
        file.truncate(size)


def bombs(settings):
    """Refused at the budget: memory stays below it and 64 MiB, and nothing is left behind."""
    tally = Tally("bombs")
    with tempfile.TemporaryDirectory() as folder:
        here = pathlib.Path(folder)
        unpacked = (5 << 30) if settings.full else (1 << 26)
        zip_of_zeros = here / "zeros.gz"

        def fill():
            with gzip.open(zip_of_zeros, "wb", compresslevel=1) as file:
                for _ in range(unpacked >> 24):
                    file.write(bytes(1 << 24))

        apart(fill)
        cases = []  # command, budget in bytes
        for ending in ("json.gz", "et.gz", "jsonl.gz", "log.gz", "gz"):
            packed = here / f"a.{ending}"
            os.link(zip_of_zeros, packed)
            cases.append((["inspect", packed], 4 << 30))
            cases.append((["simulate", packed, *ON], 4 << 30))
        nested = here / "nested.json.gz"
        nested.write_bytes(gzip.compress(zip_of_zeros.read_bytes()))
        cases.append((["inspect", nested], 64 * MIB))
        trace = here / "trace"
        trace.mkdir()
        os.link(zip_of_zeros, trace / "rank-0.jsonl.gz")
        cases.append((["inspect", trace], 4 << 30))
        endings = (".yaml", ".json", ".toml", ".sh", ".xml", ".csv", ".txt", ".cm", ".goal", ".et", ".spc", ".sqlite", ".pickle", ".log", "")
        for ending in endings:
            sparse = here / f"zeros{ending}"
            zeros(sparse, 10 << 30)
            cases.append((["inspect", sparse], 64 * MIB))
        for command in (["import", here / "zeros.sh", *ON], ["validate", here / "zeros.csv"], ["traffic", here / "zeros.cm"],
                        ["traffic", "poisson", "--sizes", here / "zeros.txt"], ["compare", here / "zeros.json", here / "zeros.json"]):
            cases.append((command, 64 * MIB))
        before = sorted(os.listdir(folder))
        for command, budget in cases:
            done = run(settings, command, cwd=folder, seconds=120)
            fine = done.status == 2 and not done.late and done.is_one_line() and done.rss <= budget + 64 * MIB
            tally.check(fine, f"{done.said()}; rss {done.rss // MIB} MiB")
        tally.check(sorted(os.listdir(folder)) == before, f"files stay behind: {sorted(os.listdir(folder))}")
    return tally


def hostile_documents():
    """(name, text) of documents that are no job, and that some parser falls for."""
    deep = 5000
    yaml = {
        "aliases": "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nmodel: *c\n",
        "cycle": "model: &a\n  preset: *a\n",
        "cycle of a list": "model: &a [*a]\n",
        "merge": "base: &b {tp: 2}\nparallel:\n  <<: *b\n",
        "tag": "model: !!python/object/apply:os.system [id]\n",
        "own tag": "model: !exec gpt2\n",
        "binary": "model: !!binary R0lGODlh\n",
        "set": "model: !!set {a, b}\n",
        "two documents": "model: gpt2\n---\nmodel: gpt2\n",
        "directive": "%YAML 9.9\n---\nmodel: gpt2\n",
        "tag directive": "%TAG ! tag:x,2000:\n---\nmodel: !a gpt2\n",
        "duplicate": "model: gpt2\nmodel: gpt2\n",
        "duplicate below": "model: gpt2\nparallel: {tp: 1, tp: 2}\n",
        "flow deep": "model: " + "[" * deep,
        "flow deep, closed": "model: " + "[" * deep + "]" * deep,
        "maps deep": "model: " + "{a: " * deep,
        "indented deep": "".join(" " * i + "a:\n" for i in range(1000)),
        "dashes": "- " * deep,
        "question": "? " * deep,
        "long scalar": "model: " + "x" * 10_000_000,
        "long key": "x" * 10_000_000 + ": 1\n",
        "long list": "model: [" + "1," * 1_000_000 + "1]\n",
        "many keys": "".join(f"k{i}: 1\n" for i in range(50_000)),
        "long comment": "#" + "x" * 10_000_000,
        "NUL": "model: gpt2\0\n",
        "escape": "model: \"\\x1b[31mred\"\n",
        "tab": "parallel:\n\ttp: 2\n",
        "carriage": "model:\rgpt2\rnodes: x\r",
        "unclosed quote": "model: \"gpt2\nnodes: 1\n",
        "unclosed single": "model: 'gpt2\nnodes: 1\n",
        "block": "model: |\n  gpt2\n  more\n",
        "null": "model: ~\nnodes: ~\n",
        "only null": "~\n",
        "number": "5\n",
        "list": "- model: gpt2\n",
        "empty": "",
        "spaces": " " * 100_000,
        "newlines": "\n" * 900_000,
        "colons": ":" * 100_000,
        "byte order": "\ufeffmodel: gpt2\nnodes: x\n",
    }
    for name, text in yaml.items():
        yield f"yaml {name}.yaml", text.encode()
    numbers = ("1e999", "-1e999", "1e-999", ".inf", "-.inf", ".nan", "NaN", "0x7fffffffffffffffff", "0b1", "0o7", "1_000", "9" * 400, "-0", "--1", "+", "1.5", "1e", "0x", "٣", "１", "true", "''", "[1]", "{a: 1}")
    for i, number in enumerate(numbers):
        yield f"number {i}.yaml", f"model: gpt2\ncluster: h100-ib-400g\nnodes: {number}\ntraining: {{global_batch: 16, seq_len: 1024, micro_batch: x}}\n".encode()
    bad = (b"\xff\xfe", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\x80", b"\xe2\x82", b"\xf0\x9f", b"\xfe\xff\x00m")
    for i, bytes_ in enumerate(bad):
        yield f"utf8 {i}.yaml", b"model: " + bytes_ + b"\n"
    json = {
        "deep": "[" * deep,
        "deep, closed": "[" * deep + "]" * deep,
        "maps deep": '{"a":' * deep,
        "duplicate": '{"model": "gpt2", "model": "gpt2"}',
        "NaN": '{"nodes": NaN}',
        "exponent": '{"nodes": 1e400}',
        "digits": '{"nodes": ' + "9" * 100_000 + "}",
        "surrogate": '{"model": "\\ud800"}',
        "escape": '{"model": "\\u001b[31m"}',
        "NUL": '{"model": "\\u0000"}',
        "trailing": '{"model": "gpt2"} x',
        "two": '{"model": "gpt2"}{"model": "gpt2"}',
        "comma": '{"model": "gpt2",}',
        "comment": '{/* x */"model": "gpt2"}',
        "quote": "{'model': 'gpt2'}",
        "unclosed": '{"model": "gpt2',
        "long string": '{"model": "' + "x" * 10_000_000 + '"}',
        "long key": '{"' + "x" * 10_000_000 + '": 1}',
    }
    for name, text in json.items():
        yield f"json {name}.json", text.encode()
    laugh = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 10))
    xml = {
        "laughs": f'<?xml version="1.0"?><!DOCTYPE l [<!ENTITY l0 "ha">{laugh}]><system>&l9;</system>',
        "external": '<!DOCTYPE s [<!ENTITY x SYSTEM "file:///etc/passwd">]><system version="&x;"/>',
        "parameter": '<!DOCTYPE s [<!ENTITY % p SYSTEM "file:///etc/passwd"> %p;]><system/>',
        "cycle": '<!DOCTYPE s [<!ENTITY a "&b;"><!ENTITY b "&a;">]><system>&a;</system>',
        "deep": "<system version='1'>" + "<cpu>" * deep,
        "deep, closed": "<system version='1'>" + "<cpu>" * deep + "</cpu>" * deep + "</system>",
        "attributes": "<system " + " ".join(f"a{i}='1'" for i in range(100_000)) + "/>",
        "duplicate": "<system version='1' version='2'><cpu/></system>",
        "unclosed": "<system version='1'><cpu numaid='0'>",
        "other end": "<system version='1'></cpu>",
        "cdata": "<system version='1'><![CDATA[" + "x" * 1_000_000,
        "encoding": '<?xml version="1.0" encoding="UTF-7"?><system/>',
        "no element": "<?xml version='1.0'?>",
        "other root": "<html><body/></html>",
        "text": "<system version='1'>" + "x" * 1_000_000 + "</system>",
    }
    for name, text in xml.items():
        yield f"xml {name}.xml", text.encode()
    toml = {
        "deep": "a = " + "[" * deep,
        "dotted": ".".join("a" * 2 for _ in range(deep)) + " = 1\n",
        "tables": "".join(f"[a{i}]\n" for i in range(100_000)),
        "duplicate": "[model]\nname = 1\n[model]\nname = 2\n",
        "date": "[training]\nsteps = 1979-05-27T07:32:00Z\n",
        "unclosed": "[training\nsteps = 1\n",
        "quote": "[training]\nname = \"\"\"x\n",
        "number": "[training]\nsteps = 99999999999999999999\n",
    }
    for name, text in toml.items():
        yield f"toml {name}.toml", text.encode()


def hostile(settings):
    tally = Tally("hostile")

    def one(path):
        if path.suffix == ".xml":
            command = ["traffic", "all-reduce", "--cluster", path, "--max", "1KiB"]
        elif path.suffix == ".toml":
            command = ["import", path, *ON]
        else:
            command = ["simulate", path]
        done = run(settings, command, seconds=20)
        fine = done.status == 2 and not done.late and done.is_one_line() and path.name in done.err
        return fine and done.rss <= 64 * MIB, f"{done.said()}; rss {done.rss // MIB} MiB"

    with tempfile.TemporaryDirectory() as folder:
        apart(lambda: [(pathlib.Path(folder) / name).write_bytes(content) for name, content in hostile_documents()])
        for fine, what in in_parallel(one, sorted(pathlib.Path(folder).iterdir())):
            tally.check(fine, what)
    return tally
