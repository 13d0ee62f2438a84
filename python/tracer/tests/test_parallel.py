"""The communication of each parallelism, against a count from model and plan alone.

The examples train a Llama of two layers: hidden 256, ffn 688, vocabulary 1024, sequence 128, bf16.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from conftest import EXAMPLES, awaited, skip_without, traced
from orrery_trace.trace import Trace

HIDDEN, FFN, VOCAB, SEQ, LAYERS, WORLD = 256, 688, 1024, 128, 2, 8
ACTIVATION = 2 * SEQ * HIDDEN
LAYER_PARAMETERS = 4 * HIDDEN * HIDDEN + 3 * HIDDEN * FFN + 2 * HIDDEN
EMBEDDING = VOCAB * HIDDEN


def sizes(trace: Trace) -> Counter[tuple[str, int]]:
    """Communications by kind and bytes sent."""
    return Counter((c["kind"], c["send"]) for c in trace.of("comm"))


def test_ddp_reduces_the_buckets_of_its_steady_state(tmp_path: Path) -> None:
    """Gradients in backward order; a bucket is closed once it has 1 MB."""
    (trace,) = traced(tmp_path, ["--world-size", "8"], EXAMPLES / "ddp.py").values()
    square, wide = 2 * HIDDEN * HIDDEN, 2 * HIDDEN * FFN
    norm, ends = 2 * HIDDEN, 2 * EMBEDDING
    layer = [wide, wide, wide, norm, square, square, square, square, norm]
    buckets, pending = [], 0
    for gradient in [ends, norm, *layer * LAYERS, ends]:
        pending += gradient
        if pending >= 1 << 20:
            buckets.append(pending)
            pending = 0
    buckets += [pending] if pending else []
    comms = trace.of("comm")
    assert [c["send"] for c in comms] == buckets
    assert {(c["kind"], c["reduce"], c["pass"]) for c in comms} == {
        ("all_reduce", "sum", "backward")
    }
    assert all(trace.ranks(c) == list(range(WORLD)) for c in comms)
    # Issued while backward runs, awaited together when it is over.
    assert [w["comm"] for w in trace.of("wait")] == [c["id"] for c in comms]
    lines = trace.lines
    first_wait = next(i for i, line in enumerate(lines) if line["t"] == "wait")
    assert max(i for i, line in enumerate(lines) if line["t"] == "comm") < first_wait


def test_fsdp2_gathers_and_scatters_each_unit_on_its_own_streams(tmp_path: Path) -> None:
    """Root and layers gather forward, layers again backward; each reduces once."""
    (trace,) = traced(tmp_path, ["--world-size", "8"], EXAMPLES / "fsdp2.py").values()
    layer, root = 2 * LAYER_PARAMETERS, 2 * (2 * EMBEDDING + HIDDEN)
    found = sizes(trace)
    norm = [size for kind, size in found if kind == "all_reduce"]  # clipping: a number a tensor
    assert len(norm) == 1
    del found["all_reduce", norm[0]]
    assert found == Counter(
        {
            ("all_gather", layer // WORLD): 2 * LAYERS,
            ("all_gather", root // WORLD): 1,
            ("reduce_scatter", layer): LAYERS,
            ("reduce_scatter", root): 1,
        }
    )
    comms = trace.of("comm")
    streams = {c["kind"]: c.get("stream", 0) for c in comms if c["kind"] != "all_reduce"}
    assert 0 not in streams.values() and len(set(streams.values())) == 2
    assert {c["reduce"] for c in comms if c["kind"] == "reduce_scatter"} == {"avg"}
    # The compute stream waits for events of the streams that gather and copy.
    assert {a["stream"] for a in trace.of("await")} >= {0, *streams.values()}
    # Gathered parameters are given back: their storage shrinks to nothing and grows again.
    resized = [r["bytes"] for r in trace.of("resize")]
    assert 0 in resized and sum(size == 0 for size in resized) >= LAYERS


def test_context_parallel_gathers_keys_and_sends_their_gradients_round(tmp_path: Path) -> None:
    """Attention gathers keys and values forward and again backward.

    Their gradients, in fp32, move on by one rank at a time, as often as there are ranks. FSDP2's
    gathers and scatters are those of the whole model.
    """
    skip_without("distributed/tensor/experimental/__init__.py", "context_parallel")
    world, kv_heads, head = 4, 4, 32
    options = ["--world-size", str(world)]
    (trace,) = traced(tmp_path, options, EXAMPLES / "context_parallel.py").values()
    narrow = 2 * HIDDEN * (HIDDEN - kv_heads * head)  # of keys and values
    layer, root = 2 * (LAYER_PARAMETERS - narrow), 2 * (2 * EMBEDDING + HIDDEN)
    keys_and_values = 2 * SEQ // world * kv_heads * head
    assert sizes(trace) == Counter(
        {
            ("all_gather", 2 * keys_and_values): 2 * LAYERS,
            ("all_to_all", 4 * keys_and_values): world * LAYERS,
            ("all_gather", layer // world): 2 * LAYERS,
            ("all_gather", root // world): 1,
            ("reduce_scatter", layer): LAYERS,
            ("reduce_scatter", root): 1,
        }
    )
    for c in trace.of("comm"):
        if c["kind"] == "all_to_all":
            assert sorted(c["send_each"]) == [0] * (world - 1) + [c["send"]]


@pytest.mark.parametrize("sequence", [False, True])
def test_tensor_parallel_issues_what_dtensor_issues(tmp_path: Path, sequence: bool) -> None:
    """DTensor's plan, counted by hand.

    Plain: forward one all-reduce for the embedding and two a layer; backward one for each
    column-parallel input, 3 + 2 a layer, and 1 for the head; the logits are gathered. With sequence
    parallelism each half of a layer gathers on entry and scatters on exit, both ways; the ends do
    the same once; each norm weight's gradient (2 a layer and 1) is reduced by the optimizer.
    """
    command = [EXAMPLES / "tensor_parallel.py", *(["--sequence"] if sequence else [])]
    (trace,) = traced(tmp_path, ["--world-size", "8"], *command).values()
    logits = 2 * SEQ * VOCAB // WORLD
    shard = ACTIVATION // WORLD
    if sequence:
        # A gather whose group receives one activation of the whole sequence, in bf16.
        want = Counter(
            {
                ("all_gather", shard): 4 * LAYERS + 2,
                ("all_gather", logits): 1,
                ("reduce_scatter", ACTIVATION): 4 * LAYERS + 2,
                ("all_reduce", 2 * HIDDEN): 2 * LAYERS + 1,
            }
        )
    else:
        want = Counter({("all_reduce", ACTIVATION): 1 + 7 * LAYERS + 1, ("all_gather", logits): 1})
    assert sizes(trace) == want
    waited = {w["comm"] for w in trace.of("wait")}
    assert waited == {c["id"] for c in trace.of("comm")}


STAGES = {
    "1F1B": lambda r: [r],
    "GPipe": lambda r: [r],
    "Interleaved1F1B": lambda r: [r, r + 4],
    "InterleavedZeroBubble": lambda r: [r, r + 4],
    "ZBVZeroBubble": lambda r: [r, 7 - r],
    "DualPipeV": lambda r: [r, 7 - r],
}


@pytest.mark.parametrize("schedule", STAGES)
def test_pipelines_send_each_border_once_a_micro_batch(tmp_path: Path, schedule: str) -> None:
    """Forward out of every stage but the last, backward out of every one but the first.

    No message crosses the turn of a V, whose two stages lie on one rank. Four ranks, eight
    micro-batches.
    """
    skip_without("distributed/pipelining/schedules.py", f"class Schedule{schedule}(")
    ranks = [1] if schedule != "1F1B" else [0, 1, 2, 3]
    options = ["--world-size", "4", "--rank", ",".join(map(str, ranks))]
    traces = traced(tmp_path, options, EXAMPLES / "pipeline.py", schedule)
    assert sorted(traces) == ranks
    for rank, trace in traces.items():
        held = STAGES[schedule](rank)
        total = 4 * len(held)
        home = {stage: r for r in range(4) for stage in STAGES[schedule](r)}
        want: Counter[tuple[str, int, int]] = Counter()
        for stage in held:
            for other in (stage - 1, stage + 1):
                if 0 <= other < total and other not in held:
                    want["send", home[other], ACTIVATION] += 8
                    want["recv", home[other], ACTIVATION] += 8
        comms = trace.of("comm")
        found = Counter((c["kind"], c["peer"], max(c["send"], c["recv"])) for c in comms)
        assert found == want
        assert sorted(awaited(trace)) == sorted(c["id"] for c in comms)
        check_actions(trace, schedule, held)


def check_actions(trace: Trace, schedule: str, held: list[int]) -> None:
    """Each stage runs each micro-batch forward and backward once, and ops say which."""
    actions = Counter(m["name"] for m in trace.of("mark"))
    split = schedule in ("InterleavedZeroBubble", "ZBVZeroBubble")
    for stage in held:
        for mb in range(8):
            assert actions[f"{stage}F{mb}"] == 1
            whole, parts = actions[f"{stage}B{mb}"], actions[f"{stage}I{mb}"]
            assert whole + parts == 1 and actions[f"{stage}W{mb}"] == parts
    if schedule == "ZBVZeroBubble":
        assert any(name.split("I")[0].isdigit() for name in actions if "I" in name)
    passes = {op.get("pass") for op in trace.of("op")}
    assert {"forward", "optimizer"} <= passes
    assert ("backward_weight" in passes) == (split or schedule == "DualPipeV")
    assert {op["mb"] for op in trace.of("op") if op.get("pass") == "forward" and "mb" in op} == set(
        range(8)
    )
