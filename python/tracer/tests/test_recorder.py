"""What one rank's record says, on small scripts."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

from conftest import awaited, release_of, run_cli, traced
from orrery_trace.trace import Trace
from orrery_trace.workspaces import column_sum

HEAD = """
import torch, torch.distributed as dist
from torch import nn
dist.init_process_group("nccl")
model = nn.Sequential(nn.Linear(64, 128, bias=False), nn.GELU(), nn.Linear(128, 64, bias=False))
model = model.to("cuda", torch.bfloat16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train(extra=lambda: None, steps=3):
    for _ in range(steps):
        x = torch.randn(32, 64, device="cuda", dtype=torch.bfloat16)
        model(x).square().mean().backward()
        extra()
        optimizer.step()
        optimizer.zero_grad()
"""


def trace_of(tmp_path: Path, path: Path, *options: str) -> Trace:
    """Rank 2 of four."""
    return traced(tmp_path / "out", ["--world-size", "4", "--rank", "2", *options], path)[2]


def test_an_op_says_shape_type_pass_module_and_work(
    tmp_path: Path, script: Callable[[str], Path]
) -> None:
    """The matrix products of two layers, forward and backward, in order."""
    trace = trace_of(tmp_path, script(HEAD + "train()"))
    products = []
    for line in trace.of("op"):
        row = trace.signatures[line["sig"]]
        if row["name"] == "aten::mm":
            module = trace.modules[line["module"]]
            products.append((line["pass"], module["path"], module["class"], row["flops"]))
    flops = 2 * 32 * 64 * 128
    assert products == [
        ("forward", "0", "Linear", flops),
        ("forward", "2", "Linear", flops),
        ("backward", "2", "Linear", flops),
        ("backward", "2", "Linear", flops),
        ("backward", "0", "Linear", flops),  # the input takes no gradient
    ]
    first = next(row for row in trace.signatures if row["name"] == "aten::mm")
    # The weight is read as it lies: [128, 64] transposed by its strides.
    assert first["in"] == [["bfloat16", [32, 64]], ["bfloat16", [64, 128], [1, 64]]]
    assert first["out"] == [["bfloat16", [32, 128]]]
    assert first["read"] == 2 * (32 * 64 + 64 * 128) and first["written"] == 2 * 32 * 128
    views = [row["name"] for row in trace.signatures if not row.get("kernel", True)]
    assert "aten::t" in views and "aten::mm" not in views


def test_every_allocation_is_freed_or_lives_on(
    tmp_path: Path, script: Callable[[str], Path]
) -> None:
    """Live bytes after the step are those before it; the peak is the sum of what lives then."""
    trace = trace_of(tmp_path, script(HEAD + "train()"))
    live = {r["storage"]: r["bytes"] for r in trace.of("resident")}
    named = {r["name"]: r["bytes"] for r in trace.of("resident") if r["what"] == "parameter"}
    assert named == {"0.weight": 2 * 64 * 128, "2.weight": 2 * 64 * 128}
    before = sum(live.values())
    peak = before
    for line in trace.of("alloc", "free"):
        if line["t"] == "alloc":
            assert line["storage"] not in live
            live[line["storage"]] = line["bytes"]
        else:
            del live[line["storage"]]
        peak = max(peak, sum(live.values()))
    assert sum(live.values()) == before
    assert peak == trace.peak_bytes() == trace.end["peak_bytes"]


def test_a_read_value_is_a_sync_and_an_assumption(
    tmp_path: Path, script: Callable[[str], Path]
) -> None:
    """The line of the script is named; the answer is said."""
    path = script(HEAD + "train(lambda: print(model[0].weight.grad.norm().item()))")
    trace = trace_of(tmp_path, path)
    (sync,) = trace.of("sync")
    line = 1 + path.read_text().splitlines().index(path.read_text().splitlines()[-1])
    assert sync["why"] == "aten::_local_scalar_dense" and sync["at"] == f"script.py:{line}"
    (assumed,) = [row for row in trace.setup if row["t"] == "assumed"]
    assert assumed["what"] == "_local_scalar_dense answers 1.0"


def test_streams_and_events(tmp_path: Path, script: Callable[[str], Path]) -> None:
    """An op on a side stream; the event that orders it; a stream that the host waits for."""
    trace = trace_of(tmp_path, script(HEAD + """
side = torch.cuda.Stream()
buffer = torch.zeros(1024, device="cuda")
def extra():
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        buffer.add_(1)
        done = torch.cuda.Event()
        done.record()
    buffer.record_stream(side)
    done.wait()
    done.synchronize()
    side.synchronize()
    torch.cuda.synchronize()
train(extra)
"""))  # fmt: skip
    (add,) = [line for line in trace.of("op") if line.get("stream", 0) != 0]
    side = add["stream"]
    events = [
        (line["t"], line.get("stream", line.get("of")))
        for line in trace.of("record", "await", "sync", "use")
    ]
    assert events == [
        ("record", 0), ("await", side), ("record", side), ("use", side), ("await", 0),
        ("await", "host"), ("sync", side), ("sync", "device"),
    ]  # fmt: skip
    recorded = [line["event"] for line in trace.of("record")]
    assert [line["event"] for line in trace.of("await")] == [*recorded, recorded[1]]


def test_collectives_say_group_sizes_operator_and_wait(
    tmp_path: Path, script: Callable[[str], Path]
) -> None:
    """Ranks of the group, root and peers as global ranks, shares of an all-to-all, coalescing."""
    trace = trace_of(tmp_path, script(HEAD + """
pair = [dist.new_group([0, 1]), dist.new_group([2, 3])][1]
t = torch.zeros(12, 4, device="cuda")
out = torch.zeros(10, 4, device="cuda")
def extra():
    work = dist.all_reduce(t, op=dist.ReduceOp.MAX, group=pair, async_op=True)
    dist.broadcast(t, src=3, group=pair)
    work.wait()
    dist.all_to_all_single(out, t, [1, 2, 3, 4], [3, 3, 3, 3])
    ops = [dist.P2POp(dist.isend, t, 3), dist.P2POp(dist.irecv, t, 1)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    dist.barrier()
train(extra)
"""))  # fmt: skip
    by_kind = {line["kind"]: line for line in trace.of("comm")}
    assert [line["kind"] for line in trace.of("comm")] == [
        "all_reduce", "broadcast", "all_to_all", "send", "recv", "barrier",
    ]  # fmt: skip
    assert trace.ranks(by_kind["all_reduce"]) == [2, 3]
    assert by_kind["all_reduce"]["reduce"] == "max" and by_kind["broadcast"]["peer"] == 3
    if release_of(trace) >= (2, 8):  # whose operators say it
        assert by_kind["all_reduce"]["async"] and not by_kind["broadcast"]["async"]
    assert by_kind["all_to_all"]["send_each"] == [3 * 16] * 4
    assert by_kind["all_to_all"]["recv_each"] == [16, 2 * 16, 3 * 16, 4 * 16]
    assert by_kind["send"]["peer"] == 3 and by_kind["recv"]["peer"] == 1
    order = [
        (line["t"], line.get("kind", line.get("comm")))
        for line in trace.of("comm", "wait", "call_begin", "call_end")
    ]
    first = by_kind["all_reduce"]["id"]
    assert order.index(("comm", "broadcast")) < order.index(("wait", first))
    begin, end = order.index(("call_begin", None)), order.index(("call_end", None))
    assert order[begin + 1 : end] == [("comm", "send"), ("comm", "recv")]
    assert {by_kind["send"]["id"], by_kind["recv"]["id"]} <= set(awaited(trace))


def test_recomputation_is_told_from_backward(tmp_path: Path, script: Callable[[str], Path]) -> None:
    """A checkpointed layer's forward ops appear again, as recompute, with its module."""
    trace = trace_of(tmp_path, script(HEAD + """
from torch.utils.checkpoint import checkpoint
class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = model
    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=False)
outer = Twice()
for _ in range(3):
    x = torch.randn(32, 64, device="cuda", dtype=torch.bfloat16)
    outer(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""))  # fmt: skip
    names = [
        (line["pass"], trace.signatures[line["sig"]]["name"], trace.modules[line["module"]]["path"])
        for line in trace.of("op")
        if "module" in line and trace.signatures[line["sig"]].get("kernel", True)
    ]
    forward = [(name, path) for part, name, path in names if part == "forward"]
    again = [(name, path) for part, name, path in names if part == "recompute"]
    assert ("aten::mm", "inner.0") in again and ("aten::gelu", "inner.1") in again
    assert set(again) <= set(forward)


def test_an_unknown_communication_stops_the_trace_with_its_name(
    tmp_path: Path, script: Callable[[str], Path]
) -> None:
    """An op that a future PyTorch might bring; no file is left."""
    done = run_cli("--world-size", "4", "--out", tmp_path / "out", "--", "python", script(HEAD + """
library = torch.library.Library("c10d", "FRAGMENT")
library.define("gossip_(Tensor(a!) t) -> ()")
library.impl("gossip_", lambda t: None, "Meta")
library.impl("gossip_", lambda t: None, "CUDA")
train(lambda: torch.ops.c10d.gossip_(torch.zeros(4, device="cuda")))
"""))  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "orrery-trace: c10d::gossip_: not in the table" in done.stderr
    assert not list((tmp_path / "out").glob("*"))


def test_the_table_of_communications_covers_this_pytorch() -> None:
    """Every op of c10d and its functional forms is a row, and rows name arguments that exist."""
    import torch.distributed.tensor  # noqa: F401 - registers _dtensor

    from orrery_trace import comm_ops

    assert comm_ops.check() == []
    assert len(comm_ops.installed()) > 35


def test_unmodified_code_under_the_context_manager(
    tmp_path: Path, script: Callable[[str], Path]
) -> None:
    """The block ends with the step; the program goes on behind it."""
    import subprocess
    import sys

    from conftest import ENVIRONMENT

    path = script("import orrery_trace\n" + HEAD.replace(
        'dist.init_process_group("nccl")',
        'session = orrery_trace.rank(world_size=4, rank=1, out="traced")\n'
        'traced = session.__enter__()\ndist.init_process_group("nccl")',
    ).replace("def train", "done = False\ndef train") + """
try:
    train(steps=10**9)
except BaseException as error:
    assert session.__exit__(type(error), error, error.__traceback__)
assert traced.trace().header["rank"] == 1
assert torch.ones(2).sum().item() == 2.0  # real again
print("behind")
""")  # fmt: skip
    done = subprocess.run(
        [sys.executable, path], capture_output=True, text=True, check=False, cwd=tmp_path,
        env=ENVIRONMENT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == "behind\n"


def test_what_a_cuda_build_chooses_by_type_and_device(
    tmp_path: Path, script: Callable[[str], Path]
) -> None:
    """As a GPU run showed: shared weights stay shared, optimizers take multi-tensor kernels, cuDNN
    attends, cuBLAS keeps a workspace a thread, and a bias's gradient is staged."""
    path = script(
        """
import torch
from torch import nn

embed, head = nn.Embedding(64, 1024), nn.Linear(1024, 64)
head.weight = embed.weight
model = nn.ModuleList([embed, head]).cuda().to(torch.bfloat16)
assert embed.weight is head.weight
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
tokens = torch.zeros(8, 1024, dtype=torch.int64, device="cuda")


class Model(nn.Module):
    def forward(self, x):
        x = embed(x).unflatten(-1, (-1, 64)).transpose(1, 2)
        x = nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
        return head(x.transpose(1, 2).flatten(-2)).square().sum()


model = Model()
for _ in range(3):
    model(tokens).backward()
    nn.utils.clip_grad_norm_(embed.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
"""
    )
    (trace,) = traced(tmp_path, ["--world-size", "1"], path).values()
    names = trace.op_names()
    cudnn = release_of(trace) >= (2, 11)
    attention = f"_scaled_dot_product_{'cudnn' if cudnn else 'flash'}_attention_backward"
    for name in ("_foreach_add_", "_foreach_norm", attention):
        assert f"aten::{name}" in names
    assert sum(line["what"] == "parameter" for line in trace.of("resident")) == 2
    kept = [line for line in trace.setup if line.get("what") == "library"]
    assert [line["bytes"] >> 20 for line in kept] == [32, 1, 32]
    # Gradients of queries and row sums in fp32, then the staged sum of 8,192 rows of 64 columns.
    buffers = [
        a["bytes"]
        for a, b in itertools.pairwise(trace.lines)
        if (a["t"], b["t"]) == ("alloc", "free") and a["storage"] == b["storage"]
    ]
    assert (4 * 8 * 16 * 1024 * 65 + 256 in buffers) == cudnn
    assert column_sum(8192, 64) in buffers


def test_a_staged_sum_takes_what_an_h200_took() -> None:
    """Rows and columns of bias gradients, as its allocator recorded them."""
    measured = {(8192, 1024): 67108864, (8192, 1536): 100663296, (8192, 4096): 138412032,
                (8192, 6144): 138412032, (128, 4096): 0}  # fmt: skip
    for (rows, columns), size in measured.items():
        assert column_sum(rows, columns) == size


def test_parameters_that_leave_meta_still_take_gradients(
    tmp_path: Path, script: Callable[[str], Path]
) -> None:
    """Sharded ones and plain ones: each has a weight gradient, a product of its own."""
    path = script(
        """
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

mesh = init_device_mesh("cuda", (2,))
with torch.device("meta"):
    model = nn.Sequential(nn.Linear(64, 64, bias=False), nn.Linear(64, 64, bias=False))
parallelize_module(model, mesh, {"1": ColwiseParallel()})
model.to_empty(device="cuda")
assert all(isinstance(p, nn.Parameter) and p.requires_grad for p in model.parameters())
optimizer = torch.optim.SGD(model.parameters(), foreach=False)
for _ in range(3):
    model(torch.zeros(8, 64, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    )
    (trace,) = traced(tmp_path, ["--world-size", "2"], path).values()
    products = [
        op["pass"] for op in trace.of("op") if trace.signatures[op["sig"]]["name"] == "aten::mm"
    ]
    assert products == ["forward"] * 2 + ["backward"] * 3
