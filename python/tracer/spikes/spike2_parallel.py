"""Spike 2a: DDP, FSDP2, tensor and sequence parallelism under the fake process group.

    python spike2_parallel.py [--case ddp|fsdp|tp|sp] [--foreach] [--lines] [--json]

Eight ranks, rank 0 traced, a two-layer Llama in bf16 on fake cuda with the no-device guard. For
each case: collectives recorded, by hand, and by CommDebugMode; bytes; waits; streams. `--lines`
prints every communication, wait and stream entry of the step.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import common

common.start("cuda")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.nn.parallel.distributed as ddp_module  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.tensor import Replicate, Shard  # noqa: E402
from torch.distributed.tensor.debug import CommDebugMode  # noqa: E402
from torch.distributed.tensor.parallel import (  # noqa: E402
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

import llama  # noqa: E402
from record import Recorder, Trace  # noqa: E402

WORLD = 8
CONFIG = llama.Config(kv_heads=8)


class Mute:
    """Stands in for DDP's logger, whose CUDA timer does not exist in a CPU build."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


class Rebuilt:
    """A reducer whose buckets are final: asked to rebuild them, it says "no"."""

    def __init__(self, reducer: Any) -> None:
        self._reducer = reducer

    def _rebuild_buckets(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reducer, name)


def reduce_bucket(_: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """DDP's default hook in Python: the C++ one wants a tensor from FakeWork's empty future."""
    buffer = bucket.buffer()
    dist.all_reduce(buffer, async_op=True)
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(buffer)
    return future


# DDP compares annotations by value; here they are strings.
reduce_bucket.__annotations__ = {"bucket": dist.GradBucket}


def ddp(model: torch.nn.Module, _: DeviceMesh) -> torch.nn.Module:
    """DDP in its steady state, with the buckets that it builds after its first step.

    The first step uses one bucket and notes the order in which gradients come; DDP then sends that
    order round and reads it back, which a fake tensor cannot do. PyTorch's own bucket function is
    given that order here instead.
    """
    ddp_module._verify_param_shape_across_processes = lambda *_: True
    ready: list[int] = []
    parameters = [p for p in model.parameters() if p.requires_grad]
    hooks = [
        p.register_post_accumulate_grad_hook(lambda _, i=i: ready.append(i))
        for i, p in enumerate(parameters)
    ]
    tokens = torch.zeros(1, CONFIG.seq, dtype=torch.int64)
    llama.loss_of(model(tokens), tokens).backward()
    for hook in hooks:
        hook.remove()
    model.zero_grad()

    first, cap = dist._DEFAULT_FIRST_BUCKET_BYTES, 1 << 20
    buckets, limits = dist._compute_bucket_assignment_by_size(
        [parameters[i] for i in ready], [first, cap], [], ready
    )
    original = dist._compute_bucket_assignment_by_size
    # DDP reverses what this returns, since it expects the order of declaration.
    dist._compute_bucket_assignment_by_size = lambda *_: (buckets[::-1], limits[::-1])
    wrapped = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1)
    dist._compute_bucket_assignment_by_size = original
    wrapped.register_comm_hook(None, reduce_bucket)
    wrapped.logger = Mute()
    wrapped.reducer = Rebuilt(wrapped.reducer)
    return wrapped


def fsdp(model: torch.nn.Module, mesh: DeviceMesh) -> torch.nn.Module:
    """FSDP2 on every layer and on the root; nothing is patched."""
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def tensor_parallel(
    model: torch.nn.Module, mesh: DeviceMesh, sequence: bool = False
) -> torch.nn.Module:
    """DTensor tensor parallelism; with `sequence` norms and residuals are sharded by token."""
    outer = Shard(1) if sequence else Replicate()
    plan: dict[str, Any] = {}
    for name in ("attention.wq", "attention.wk", "attention.wv", "feed_forward.w1"):
        plan[name] = ColwiseParallel()
    plan["feed_forward.w3"] = ColwiseParallel()
    for name in ("attention.wo", "feed_forward.w2"):
        plan[name] = RowwiseParallel(output_layouts=outer)
    if sequence:
        plan |= {
            "attention_norm": SequenceParallel(),
            "ffn_norm": SequenceParallel(),
            "attention": PrepareModuleInput(
                input_layouts=(Shard(1), None), desired_input_layouts=(Replicate(), None)
            ),
            "feed_forward": PrepareModuleInput(
                input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)
            ),
        }
    for layer in model.layers:
        parallelize_module(layer, mesh, plan)
    ends: dict[str, Any] = {
        "embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=outer),
        "head": ColwiseParallel(input_layouts=outer, output_layouts=Replicate()),
    }
    if sequence:
        ends["norm"] = SequenceParallel()
    return parallelize_module(model, mesh, ends)


def sequence_parallel(model: torch.nn.Module, mesh: DeviceMesh) -> torch.nn.Module:
    """Tensor parallelism with sequence parallelism."""
    return tensor_parallel(model, mesh, sequence=True)


CASES: dict[str, Callable[[torch.nn.Module, DeviceMesh], torch.nn.Module]] = {
    "ddp": ddp,
    "fsdp": fsdp,
    "tp": tensor_parallel,
    "sp": sequence_parallel,
}


def ddp_buckets(layers: int, cap: int) -> list[int]:
    """Bytes of each bucket: gradients in backward order, closed once `cap` is reached."""
    hidden, ffn = CONFIG.hidden, CONFIG.ffn
    norm, square, wide = 2 * hidden, 2 * hidden * hidden, 2 * hidden * ffn
    layer = [wide, wide, wide, norm, square, square, square, square, norm]
    head = 2 * hidden * CONFIG.vocab
    buckets, open_bucket = [], 0
    for gradient in [head, norm, *layer * layers, head]:
        open_bucket += gradient
        if open_bucket >= cap:
            buckets.append(open_bucket)
            open_bucket = 0
    return [*buckets, open_bucket] if open_bucket else buckets


def hand_count(case: str, layers: int) -> dict[str, int]:
    """What one training step must issue.

    fsdp: an all-gather a unit forward (layers and root) and one a layer backward, since the root
    stays gathered; a reduce-scatter a unit. tp: forward one all-reduce for the embedding and two a
    layer, backward one for each column-parallel input, that is 3 + 2 a layer and 1 for the head;
    an all-gather for the logits. sp: each pair of a layer's sub-blocks gathers on entry and
    scatters on exit, both ways; the embedding scatters forward and gathers backward, the head the
    other way round, and gathers the logits. ddp: `ddp_buckets`. Gradients of norm
    weights (2 a layer and 1) are partial sums: DTensor reduces them each time that the optimizer
    asks, once for fused AdamW, three times for the foreach one.
    """
    if case == "ddp":
        return {"all_reduce": len(ddp_buckets(layers, cap=1 << 20))}
    if case == "fsdp":
        return {"all_gather": 2 * layers + 1, "reduce_scatter": layers + 1}
    if case == "tp":
        return {"all_gather": 1, "all_reduce": 1 + 2 * layers + 5 * layers + 1}
    if case == "sp":
        return {
            "all_gather": 4 * layers + 1 + 1 + 1,
            "all_reduce": (3 if "--foreach" in sys.argv else 1) * (2 * layers + 1),
            "reduce_scatter": 4 * layers + 1 + 1,
        }
    return {}


def optimizer_of(case: str, model: torch.nn.Module) -> torch.optim.Optimizer:
    """Fused AdamW; SGD for plain TP, whose norm weights are no DTensors, which fused refuses."""
    if case == "tp":
        return torch.optim.SGD(model.parameters(), lr=0.1)
    if "--foreach" in sys.argv:
        return torch.optim.AdamW(model.parameters())
    return torch.optim.AdamW(model.parameters(), fused=True)


def trace(case: str) -> tuple[Trace, dict[str, int]]:
    """The second step of rank 0, and what CommDebugMode counted in the same step."""
    common.fake_job(0, WORLD)
    mesh = init_device_mesh("cuda", (WORLD,))
    torch.set_default_dtype(torch.bfloat16)
    recorder, debug = Recorder(), CommDebugMode()
    with FakeTensorMode(), torch.device("cuda"):
        model = CASES[case](llama.Llama(CONFIG, "cuda"), mesh)
        optimizer = optimizer_of(case, model)
        tokens = torch.zeros(1, CONFIG.seq, dtype=torch.int64)
        for _ in range(2):
            recorder, debug = Recorder(), CommDebugMode()
            with debug, recorder:
                recorder.mark("forward")
                loss = llama.loss_of(model(tokens), tokens)
                recorder.mark("backward")
                loss.backward()
                recorder.mark("optimizer")
                optimizer.step()
                optimizer.zero_grad()
    counted = {str(op).split(".")[-1]: n for op, n in debug.get_comm_counts().items()}
    return recorder.trace, counted


def report(case: str) -> dict[str, Any]:
    """One case."""
    with common.clock() as time:
        recorded, debug = trace(case)
    comms, waits = recorded.of("comm"), recorded.of("wait")
    streams = Counter(f"{e.name} on stream {e.stream}" for e in recorded.of("stream"))
    result: dict[str, Any] = {
        "case": case,
        "recorded": recorded.comm_counts(),
        "by_hand": hand_count(case, CONFIG.layers),
        "comm_debug_mode": debug,
        "buckets_by_hand": ddp_buckets(CONFIG.layers, 1 << 20) if case == "ddp" else [],
        "sent_bytes": sum(e.sent for e in comms),
        "bytes_each": sorted({(e.name, e.sent) for e in comms}),
        "streams_of_comms": sorted({e.stream for e in comms}),
        "waits": len(waits),
        "stream_entries": dict(sorted(streams.items())),
        "ops": len([e for e in recorded.of("op") if not e.view]),
        "seconds": round(time.seconds, 2),
    }
    if "--lines" in sys.argv:
        result["lines"] = [
            f"{i:5} {e.what:6} {e.name:15} #{e.number} stream {e.stream} sent {e.sent}"
            for i, e in enumerate(recorded.entries)
            if e.what in ("comm", "wait", "stream", "mark")
        ]
    return result


def main() -> None:
    """All cases, or one."""
    chosen = [sys.argv[sys.argv.index("--case") + 1]] if "--case" in sys.argv else list(CASES)
    for case in chosen:
        common.emit(report(case))


if __name__ == "__main__":
    main()
