"""Frameworks from their released packages, each against a count from model and plan alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from conftest import EXAMPLES, drawn, traced
from orrery_trace import routing
from orrery_trace.mesh import Mesh
from orrery_trace.trace import Trace, ranks_of, read_directory, write_index

Found = Counter[tuple[str, int]]


def sizes(trace: Trace) -> Found:
    """Communications by kind and bytes sent (received, where none are sent)."""
    return Counter((c["kind"], c["send"] or c["recv"]) for c in trace.of("comm"))


def groups(trace: Trace) -> dict[tuple[str, int], set[tuple[int, ...]]]:
    """The ranks of each kind and size of communication."""
    found: dict[tuple[str, int], set[tuple[int, ...]]] = {}
    for c in trace.of("comm"):
        found.setdefault((c["kind"], c["send"] or c["recv"]), set()).add(tuple(trace.ranks(c)))
    return found


# --- Megatron-Core: TP2 PP2, sequence parallel, bf16 gradients, four layers and micro-batches -----
HIDDEN, FFN, SEQ, VOCAB, MICRO, HERE = 256, 512, 128, 1024, 4, 2  # HERE: layers of a stage
WHOLE, SHARD = 2 * SEQ * HIDDEN, SEQ * HIDDEN
ATTENTION = (3 + 1) * HIDDEN * HIDDEN // 2  # parameters of a tensor-parallel rank
NORMS = 2 * 2 * HIDDEN  # weights and biases of two norms
ENDS = VOCAB * HIDDEN // 2


def megatron_dense(last: bool, chunks: int, context: int = 1) -> Found:
    """By Megatron's rules.

    Each half of a layer gathers on entry and scatters on exit; backward the other way round, with
    the input gathered once more for the weight gradient. The embedding scatters forward and gathers
    backward; the output layer gathers twice and scatters once, and the loss over a sharded
    vocabulary reduces a number a token three times. Once a step: gradients of norms over the
    tensor-parallel ranks, the gradient norm, and a reduce-scatter and a gather a chunk.

    Ranks of a sequence hold a part of it each, and count as replicas. In a layer keys and values of
    a part, half of the heads, go round forward and again backward, and their gradients once more.
    """
    found: Found = Counter()
    shard = SHARD // context
    found["all_gather", shard] = MICRO * (6 * HERE + (2 if last else 1))
    found["reduce_scatter", WHOLE // context] = MICRO * (4 * HERE + 1)
    if last:
        found["all_reduce", 4 * SEQ // context] = 3 * MICRO
    found["send", shard] = found["recv", shard] = MICRO * (1 if chunks == 1 else 3)
    if context > 1:
        round_ = MICRO * HERE * (2 * (context - 1) + context)
        found["send", 2 * shard] = found["recv", 2 * shard] = round_
    extra = 2 * HIDDEN if last else 0  # the final norm
    found["all_reduce", 2 * (HERE * NORMS + extra)] += 1
    found["all_reduce", 4] += 1
    layer = ATTENTION + 3 * FFN * HIDDEN // 2 + NORMS
    for chunk in range(chunks):
        ends = ENDS + extra if chunk == (chunks - 1 if last else 0) else 0
        bytes_of_chunk = 2 * (HERE // chunks * layer + ends)
        found["reduce_scatter", bytes_of_chunk] += 1
        found["all_gather", bytes_of_chunk // 2] += 1
    return found


def test_megatron_dense(tmp_path: Path) -> None:
    """First and last stage; the groups are those of Megatron's order tp, dp, pp."""
    options = ["--world-size", "8", "--rank", "0,7"]
    traces = traced(tmp_path, options, EXAMPLES / "megatron_core.py", "dense")
    for rank, trace in traces.items():
        assert sizes(trace) == megatron_dense(last=rank == 7, chunks=1)
        of = groups(trace)
        pair = (rank // 2 * 2, rank // 2 * 2 + 1)
        assert of["all_gather", SHARD] == of["reduce_scatter", WHOLE] == {pair}
        replicas = tuple(r for r in range(8) if r % 2 == rank % 2 and r // 4 == rank // 4)
        (gradients,) = [k for k in of if k[0] == "reduce_scatter" and k[1] != WHOLE]
        assert of[gradients] == {replicas}
        assert of["send", SHARD] == {(rank % 4, rank % 4 + 4)}
        assert {c["peer"] for c in trace.of("comm") if "peer" in c} == {(rank + 4) % 8}
        assert of["all_reduce", 4] == {tuple(range(8))}
        waited = {w["comm"] for w in trace.of("wait")}
        assert {c["id"] for c in trace.of("comm") if c["kind"] in ("send", "recv")} <= waited


@pytest.mark.parametrize("check", drawn(["interleaved", "fused", "context"], 1))
def test_megatron_variants(tmp_path: Path, check: str) -> None:
    """Two chunks a rank, fused kernels, two ranks a sequence; one of them a day."""
    if check == "interleaved":
        megatron_interleaved(tmp_path)
    elif check == "context":
        megatron_context(tmp_path)
    else:
        megatron_fused(tmp_path)


def megatron_interleaved(folder: Path) -> None:
    """Two chunks a rank: the pipeline's border is crossed three times each way."""
    command = [EXAMPLES / "megatron_core.py", "dense", "interleaved"]
    (trace,) = traced(folder, ["--world-size", "8"], *command).values()
    assert sizes(trace) == megatron_dense(last=False, chunks=2)


def megatron_context(folder: Path) -> None:
    """Keys and values go to the next rank of the sequence, from the one before."""
    command = [EXAMPLES / "megatron_core.py", "dense", "context"]
    for rank, trace in traced(folder, ["--world-size", "8", "--rank", "2,5"], *command).items():
        assert sizes(trace) == megatron_dense(last=rank == 5, chunks=1, context=2)
        of = groups(trace)
        pair = tuple(sorted((rank, rank ^ 2)))
        assert of["send", SHARD] == of["recv", SHARD] == {pair}
        (gradients,) = [k for k in of if k[0] == "reduce_scatter" and k[1] != WHOLE // 2]
        assert of[gradients] == {pair}


def megatron_fused(folder: Path) -> None:
    """fp16 with Apex's kernels, every layer recomputed: forward twice, backward once.

    A layer has one softmax with mask, and as compiled functions a bias with GeLU and two dropouts
    with bias and residual. Each kernel backward of the latter leaves the sum of a bias behind. No
    gradient overflows, so that the optimizer steps.
    """
    command = ["--layers", "2", "--hidden", "256", "--heads", "4", "--seq", "64", "--tp", "2"]
    command += ["--pp", "1", "--batch", "2", "--micro-batch", "2", "--vocab", "1024", "--fp16"]
    command += ["--fused", "--recompute", "full", "--dropout", "0.1", "--no-sequence-parallel"]
    command += ["--no-sharding", "--no-overlap"]
    options = ["--world-size", "2"]
    (trace,) = traced(folder, options, EXAMPLES / "megatron_gpt3.py", *command).values()
    names = Counter(trace.op_names())
    softmax = "megatron::scaled_upper_triang_masked_softmax"
    assert (names[f"{softmax}.forward"], names[f"{softmax}.backward"]) == (2 * 2, 2)
    assert names["fused::pointwise"] == 2 * 3 * (2 + 1)
    assert names["aten::_fused_adamw_"] == 2  # with and without weight decay
    assert names["aten::tanh"] == 0


def test_megatron_experts(tmp_path: Path) -> None:
    """All-to-alls of a balanced router, token counts, and two optimizers.

    A layer and micro-batch: attention as in a dense layer; the router gathers token counts; tokens,
    probabilities and results go all-to-all, both ways. The two optimizers, of dense and of expert
    parameters, each gather the parameters of both.
    """
    trace = traced(tmp_path, ["--world-size", "8"], EXAMPLES / "megatron_core.py")[0]
    unevenly_routed(trace, tmp_path)
    experts, topk = 4, 2
    tokens = SEQ // 2
    found: Found = Counter()
    found["all_gather", SHARD] = MICRO * (3 * HERE + 1)
    found["reduce_scatter", WHOLE] = MICRO * (2 * HERE + 1)
    found["all_gather", 8 * experts] = MICRO * HERE  # int64 counts
    found["all_to_all", tokens * topk * HIDDEN * 2] = 4 * MICRO * HERE
    found["all_to_all", tokens * topk * 2] = 2 * MICRO * HERE
    found["send", SHARD] = found["recv", SHARD] = MICRO
    router = experts * HIDDEN
    found["all_reduce", 2 * HERE * (NORMS + router)] = found["all_reduce", 4] = 1
    dense = 2 * (HERE * (ATTENTION + NORMS + router) + ENDS)
    sparse = 2 * HERE * experts // 2 * 3 * FFN * HIDDEN
    for size in (dense, sparse):
        found["reduce_scatter", size] = 1
        found["all_gather", size // 2] = 2
    assert sizes(trace) == found
    for c in trace.of("comm"):
        if c["kind"] == "all_to_all":
            assert c["send_each"] == c["recv_each"] == [c["send"] // 2] * 2
    records = trace.of("routing")
    assert len(records) == MICRO * HERE
    assert {(r["tokens"], r["topk"], r["experts"], r["local_experts"]) for r in records} == {
        (tokens, topk, experts, experts // 2)
    }


def unevenly_routed(trace: Trace, folder: Path) -> None:
    """Experts drawn anew: no token, product or byte sent is lost, and an even draw changes none."""
    layers = routing.layers_of(trace, "zipf:0", 1, 0)
    even = routing.redraw(trace, layers, 0)
    assert even.lines == [line for line in trace.lines if line.get("what") != routing.BALANCED]
    layers = routing.layers_of(trace, "dirichlet:1", 3, 0)
    both = [routing.redraw(trace, layers, place) for place in (0, 1)]

    def flops(of: Trace) -> int:
        return sum(of.signatures[line["sig"]].get("flops", 0) for line in of.of("op"))

    assert flops(both[0]) != flops(both[1])
    assert sum(map(flops, both)) == 2 * flops(trace)
    exchanges = [[c for c in t.of("comm") if c["kind"] == "all_to_all"] for t in (*both, trace)]
    for here, there, before in zip(*exchanges, strict=True):
        assert here["send"] + there["send"] == 2 * before["send"]
        assert here["send_each"] == [here["recv_each"][0], there["recv_each"][0]]
        assert sum(here["recv_each"]) == here["recv"]
    assert both[0].end["peak_bytes"] != both[1].end["peak_bytes"]
    mesh = Mesh.parse("pp=2,dp=2,tp=2")
    spans = [mesh.dimensions(ranks_of(group["ranks"]), 0, ["pp"]) for group in trace.groups]
    program = {"rank": 0, "file": "rank-0.jsonl.gz", "ranks": [[0, 4, 1]], "groups": spans}
    sizes_by_name = list(zip(mesh.names, mesh.sizes, strict=True))
    write_index(folder, {"world_size": 8, "mesh": sizes_by_name, "programs": [program]})
    out = folder / "uneven"
    said = routing.redraw_directory(folder, "dirichlet:1", 3, out)
    busiest = max(layer.factor(place) for layer in layers.values() for place in (0, 1))
    assert f"the busiest rank gets {busiest:.3f} times the mean" in said
    found = read_directory(out)
    assert sorted(found) == [0, 1]  # one of ranks 0 and 2, one of 1 and 3
    second = next(c for c in found[1].of("comm") if c["kind"] == "all_to_all")
    assert second["recv_each"] == [exchanges[1][0]["recv_each"][0]] * 2
    message = next(c for c in found[1].of("comm") if c["kind"] == "send")
    assert (message["peer"], found[1].ranks(message)) == (5, [1, 5])


# --- DeepSpeed and transformers: the same Llama of two layers, bf16 -------------------------------
PARAMETERS = 2 * 1024 * 256 + 256 + 2 * (2 * 256 * 256 + 2 * 256 * 128 + 3 * 256 * 688 + 2 * 256)


@pytest.mark.parametrize("stage", [*drawn([1, 2], 1), 3])
def test_deepspeed_zero(tmp_path: Path, stage: int) -> None:
    """Gradients once, parameters once; the rest is the overflow flag and the gradient norm.

    Stages 1 and 2 reduce whole buckets to all ranks and keep a part, as DeepSpeed's multi-rank
    buckets do; stage 3 scatters. A model below stage 3's prefetch limits is gathered once.
    """
    command = [EXAMPLES / "deepspeed_zero.py", str(stage)]
    (trace,) = traced(tmp_path, ["--world-size", "4"], *command).values()
    total = 2 * PARAMETERS
    large: Found = Counter({k: n for k, n in sizes(trace).items() if k[1] > 64})
    reduce = ("all_reduce", total) if stage < 3 else ("reduce_scatter", total)
    assert large == Counter({reduce: 1, ("all_gather", total // 4): 1})
    small = [c for c in trace.of("comm") if c["send"] <= 64]
    assert {c["kind"] for c in small} == {"all_reduce"}
    assert {c["pass"] for c in small} == {"optimizer"}


def test_fsdp1(tmp_path: Path) -> None:
    """Root and blocks gather forward, blocks again backward; each reduces once, in fp32 if asked.

    A unit's flat parameter is cut into eight; the norm of the gradients is one number.
    """
    layers, hidden = 2, 256
    command = [EXAMPLES / "mpt.py", "--layers", str(layers), "--hidden", str(hidden)]
    command += ["--heads", "4", "--reduce-fp32"]
    (trace,) = traced(tmp_path, ["--world-size", "8"], *command).values()
    block, root = 12 * hidden * hidden + 2 * hidden, 50368 * hidden + hidden
    assert sizes(trace) == Counter(
        {
            ("all_gather", 2 * block // 8): 2 * layers,
            ("all_gather", 2 * root // 8): 1,
            ("reduce_scatter", 4 * block): layers,
            ("reduce_scatter", 4 * root): 1,
            ("all_reduce", 4): 1,
        }
    )
    # Gathered parameters are used on another stream than the one they came from.
    assert trace.of("use")


def test_transformers_with_checkpointing_and_accumulation(tmp_path: Path) -> None:
    """DDP reduces on the second micro-batch only; every layer's attention runs twice forward."""
    (trace,) = traced(tmp_path, ["--world-size", "4"], EXAMPLES / "transformers_llama.py").values()
    # Backward order; the first bucket is closed at 1 MB, the second would be at 25.
    first = 2 * (1024 * 256 + 256 + 2 * 256 * 688)
    # Before that DDP broadcasts buffers: rotary frequencies, 16 of a head of 32, kept twice.
    assert [(c["kind"], c["send"], c["mb"]) for c in trace.of("comm")] == [
        ("broadcast", 2 * 16 * 2, 0),
        ("all_reduce", first, 1),
        ("all_reduce", 2 * PARAMETERS - first, 1),
    ]
    attention = Counter(
        (op["pass"], op["mb"])
        for op in trace.of("op")
        if trace.signatures[op["sig"]]["name"] == "aten::_scaled_dot_product_cudnn_attention"
    )
    assert attention == Counter({(p, m): 2 for p in ("forward", "recompute") for m in (0, 1)})


@pytest.mark.parametrize("check", drawn(["dense", "experts"], 1))
def test_torchtitan(tmp_path: Path, check: str) -> None:
    """`python -m torchtitan.train`, the script unchanged; one of two models a day."""
    if check == "dense":
        torchtitan_dense(tmp_path)
    else:
        torchtitan_experts(tmp_path)


def torchtitan(folder: Path, config: str, *words: str) -> Trace:
    """Rank 0 of eight."""
    command = ["-m", "torchtitan.train", "--module", "torchtitan_llama", "--config", config]
    command += ["--dump_folder", str(folder / "dump")]
    command += ["--parallelism.spmd_backend", "partial_dtensor"]  # the others need PyTorch 2.14
    return traced(folder / "t", ["--world-size", "8"], *command, *words, cwd=EXAMPLES)[0]


def torchtitan_experts(folder: Path) -> None:
    """DeepSeek-V3 of 6 layers, 5 with experts: each over four ranks, in two replicas.

    Tokens go to experts and back, forward and backward; recomputation keeps what they brought. Its
    experts are cut in two by FSDP2 and gathered forward and backward.
    """
    words = ["--parallelism.expert_parallel_degree", "4", "--training.disable_cuda_graphs"]
    trace = torchtitan(folder, "deepseek_v3_debugmodel", *words)
    layers, hidden, ffn, rows, seq, experts, topk, parts = 5, 256, 256, 8, 2048, 8, 3, 4
    own = experts // parts * 3 * hidden * ffn
    found, of = sizes(trace), groups(trace)
    here = {k: n for k, n in found.items() if of[k] in ({(0, 1, 2, 3)}, {(0, 4)})}
    assert here == {
        ("all_to_all", 8 * experts): layers,  # how many tokens each gets
        ("all_to_all", 2 * rows * seq * topk * hidden): 4 * layers,
        ("all_gather", 2 * own // 2): 2 * layers,
        ("reduce_scatter", 4 * own): layers,
    }
    for c in trace.of("comm"):
        if c["kind"] == "all_to_all":
            assert c["send_each"] == c["recv_each"] == [c["send"] // parts] * parts


def torchtitan_dense(folder: Path) -> None:
    """Its Llama of 6 layers, tensor parallel over 2, FSDP2 over 4.

    A layer gathers and scatters the sequence on entry and exit of both halves, forward and
    backward; selective recomputation keeps what was scattered and gathers again. Embedding and head
    add one of each both ways. The loss, in eight pieces, reduces three numbers a token over the
    sharded vocabulary. FSDP2 gathers bf16 and reduces fp32.
    """
    trace = torchtitan(folder, "debugmodel", "--parallelism.tensor_parallel_degree", "2")
    layers, hidden, ffn, vocab, rows, seq, tp, shards = 6, 256, 768, 2048, 8, 2048, 2, 4
    part = 2 * rows * seq // tp * hidden
    layer = (4 * hidden * hidden + 3 * ffn * hidden) // tp + 2 * hidden
    ends = vocab * hidden // tp
    assert {k: n for k, n in sizes(trace).items() if k[1] > 256} == {
        ("all_gather", part): 6 * layers + 2,
        ("reduce_scatter", tp * part): 4 * layers + 2,
        ("all_reduce", 4 * rows * seq // 8): 3 * 8,
        ("all_reduce", 2 * hidden): 2 * layers + 1,  # gradients of norms
        ("all_gather", 2 * layer // shards): 2 * layers,
        ("all_gather", 2 * ends // shards): 2,  # the embedding
        ("all_gather", 2 * (ends + hidden) // shards): 3,  # norm and head: for both, and backward
        ("reduce_scatter", 4 * layer): layers,
        ("reduce_scatter", 4 * ends): 2,
        ("reduce_scatter", 4 * hidden): 1,
    }
    of = groups(trace)
    assert of["all_gather", part] == {(0, 1)} and of["reduce_scatter", 4 * layer] == {(0, 2, 4, 6)}
    kernels = Counter(trace.signatures[op["sig"]]["name"] for op in trace.of("op"))
    for name in ("flex_attention", "flex_attention_backward"):
        assert kernels[f"higher_order::{name}"] == layers
