#!/usr/bin/env python3
"""Item 8: steps that wait for the host: how many calls they make, and what these take.

Small models of several families, few tokens, full fine-tuning and adapters, quantised, recomputed;
transformers' own Trainer around some, torch.compile around others. Rows with `taught` 0 were chosen
before anything was measured and are kept back as a test. Hosts that are shared change their speed
within seconds, so a short loop of additions is timed beside every step: `adds` says how many of
them a part took as long as.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch

import finetune
from finetune import Trainer
from kit import finetune_models as models
from kit import host_calls, runner, step_trace
from kit.device import Device
from kit.finetune_models import Job
from kit.host_models import declare
from kit.layers import Layer
from kit.runner import Case, Context, Item, Measured
from kit.schemas import Row
from kit.timing import summarise

Listed = tuple[Job, str, int]  # a job, its loop, whether it may teach
STEPS, WARM = 25, 3
ADDS = 100  # of a loop beside a step
LINKS = 300  # of a chain
CHAINS = (
    *("chain mul", "chain view", "chain transpose", "chain identity", "chain linear"),
    *("chain module", "chain cast"),
)
SEQ = 64
Variant = dict[str, Any]
LORA: Variant = {"method": "lora"}
FP32: Variant = {"weights": "fp32", "autocast": 1}
AUTOCAST: Variant = {"autocast": 1}
CHECKPOINT: Variant = {"checkpoint": 1}
NF4: Variant = {"method": "nf4"}
PREPARED: Variant = {"method": "nf4", "autocast": 1, "prepared": 1, "checkpoint": 1}


@dataclass
class Speed:
    """Times the addition of two small tensors, host time of one in us."""

    x: torch.Tensor

    def sample(self) -> float:
        """A loop of them, now."""
        x = self.x
        begun = time.perf_counter()
        for _ in range(ADDS):
            x + x
        return (time.perf_counter() - begun) / ADDS * 1e6


def speed_of(device: Device) -> Speed:
    """Of the device in hand."""
    return Speed(torch.randn(16, 64, device=device.torch_device, dtype=torch.bfloat16))


def job(
    family: str, *variants: Variant, hidden: int = 1024, layers: int = 8, attention: str = "sdpa"
) -> Job:
    """A job of few tokens: full fine-tuning in bf16, and what the variants change of that."""
    name = declare(family, hidden, layers, attention)
    made = Job(name, "full", "bf16", 0, 0, 0.0, "adamw_fused", 0, SEQ, 1)
    for variant in variants:
        made = replace(made, **variant)
    return made


def _taught() -> list[Listed]:
    own = [
        job("llama"),
        job("llama", layers=4),
        job("llama", layers=16),
        job("llama", LORA, AUTOCAST),
        job("llama", LORA),
        job("llama", NF4),
        job("llama", CHECKPOINT),
        job("llama", FP32),
        job("llama", PREPARED),
        job("llama", {"method": "int8"}),
        job("llama", LORA, AUTOCAST, CHECKPOINT),
        job("llama", LORA, layers=16),
        job("llama", attention="eager"),
        job("qwen2"),
        job("gemma2"),
        job("olmoe"),
        job("llama", {"optimizer": "adamw_8bit"}),
        job("llama", {"optimizer": "adamw_foreach"}),
        job("llama", {"method": "nf4_single"}),
        job("llama", LORA, AUTOCAST, {"dropout": 0.05}),
        job("llama", {"optimizer": "adafactor"}),
        job("llama", hidden=2048),
        job("gpt2"),
    ]
    looped: list[Listed] = [(job("llama", FP32), "trainer", 1)]
    looped += [(job("llama", LORA, AUTOCAST), "trainer", 1)]
    return [(j, "own", 1) for j in own] + looped


def _test() -> list[Listed]:
    own = [
        job("qwen3", LORA, AUTOCAST),
        job("mistral", PREPARED),
        job("gemma3", LORA, CHECKPOINT, hidden=1536),
        job("qwen3", layers=12),
        job("phi3", LORA),
        job("olmo2"),
        job("gpt_neox"),
        job("llama", {"method": "int8"}, AUTOCAST, {"prepared": 1}, layers=4),
        job("qwen2", LORA, AUTOCAST, CHECKPOINT, {"optimizer": "adamw_8bit"}, layers=12),
        job("olmoe", LORA, AUTOCAST),
        job("mixtral"),
        job("mistral", LORA, AUTOCAST, {"dropout": 0.1}, attention="eager"),
        replace(job("llama"), model="llama3.2-1b"),
        replace(job("llama", LORA, AUTOCAST), model="llama3.2-1b"),
        replace(job("llama", PREPARED), model="llama3.2-1b"),
    ]
    looped: list[Listed] = [(job("qwen2", LORA, AUTOCAST, CHECKPOINT), "trainer", 0)]
    return [(j, "own", 0) for j in own] + looped


def _whole() -> list[Listed]:
    """Models and sequences as people train them: kept back, too."""
    own = [
        replace(job("llama", LORA, AUTOCAST), model="olmoe-1b-7b", seq=4096),
        replace(job("llama", NF4), model="llama3.1-8b", seq=2048),
        replace(job("llama", LORA), model="llama3.2-1b", seq=2048),
        replace(job("llama", CHECKPOINT), model="olmoe-1b-7b", seq=4096),
        replace(job("llama", NF4, AUTOCAST), model="llama3.2-1b", seq=4096),
        replace(job("llama", {"method": "int8"}, AUTOCAST), model="llama3.2-3b", seq=2048),
        replace(job("llama", LORA, AUTOCAST, {"dropout": 0.05}), model="llama3.1-8b", seq=2048),
        replace(job("llama", PREPARED), model="llama3.1-8b", seq=2048),
        replace(job("llama", LORA, AUTOCAST), model="llama3.2-3b", seq=4096),
    ]
    return [(j, "own", 0) for j in own]


def jobs() -> list[Listed]:
    """Taught ones and the test between each other, so that a short budget has both."""
    taught, test = _taught(), _test()
    links = [(replace(job("llama"), model=name), "chain", 1) for name in CHAINS]
    mixed: list[Listed] = []
    while taught or test:
        mixed += taught[:2] + test[:1]
        taught, test = taught[2:], test[1:]
    mixed += links + _whole()
    return [*mixed, (job("llama"), "compiled", 1), (job("llama", LORA, layers=4), "compiled", 0)]


def tiny_jobs() -> list[Listed]:
    """Each way once, for the CPU."""
    small: Variant = {"seq": 8}
    return [
        (job("llama", small, hidden=64, layers=1), "own", 1),
        (job("qwen3", small, LORA, AUTOCAST, CHECKPOINT, hidden=64, layers=1), "own", 0),
        (job("olmoe", small, hidden=64, layers=1), "own", 1),
        (job("gemma2", small, FP32, hidden=64, layers=1), "trainer", 1),
        *((replace(job("llama", small), model=name), "chain", 1) for name in CHAINS),
    ]


def key_of(listed: Listed, mode: str) -> Row:
    """Key columns of a job's whole step."""
    made, loop, taught = listed
    return {
        **{"op": "host_step", "dtype": "bf16"},
        **asdict(made),
        **{"loop": loop, "taught": taught, "part": "step", "mode": mode},
    }


def job_of(key: Row) -> Job:
    """The job behind key columns."""
    known = Job.__dataclass_fields__
    return Job(**{k: v for k, v in key.items() if k in known})  # type: ignore[arg-type]


def cases(layers: list[Layer], device: Device | None, options: argparse.Namespace) -> list[Case]:
    """The jobs above, first ones first."""
    return [
        Case(
            key_of(listed, options.mode),
            1000.0 - i,
            100_000.0,
            f"{listed[1]} {listed[0].method}",
            cost_s=60.0 if listed[1] == "compiled" else 5.0,
        )
        for i, listed in enumerate(tiny_jobs() if options.tiny else jobs())
    ]


def count(trainer: Trainer) -> dict[str, Row]:
    """Calls of one step, by part."""
    with host_calls.counted() as forward:
        loss = trainer.forward()
    nodes, functions = host_calls.graph_of(loss)
    with host_calls.counted() as backward:
        loss.backward()
    backward.nodes, backward.functions = nodes, functions
    with host_calls.counted() as optimizer:
        trainer.finish(loss)
    parts = {"forward": forward, "backward": backward, "optimizer": optimizer}
    rows = {name: calls.columns() for name, calls in parts.items()}
    keys = rows["forward"].keys()
    rows["step"] = {k: sum(int(r[k]) for r in rows.values()) for k in keys}
    return rows


def part_rows(key: Row, trainer: Trainer, adds: list[float]) -> list[Row]:
    """Rows of the parts, and of the step from its first mark to its last."""
    rows = step_trace.part_rows(key, trainer.marks, trainer.host_us)
    whole = [m[0].elapsed_time(m[-1]) * 1e3 for m in trainer.marks]
    for row in rows:
        part = str(row["part"])
        at = step_trace.PARTS.index(part) if part != "step" else -1
        host = [sum(h) if at < 0 else h[at] for h in trainer.host_us]
        row["add_us"] = summarise(adds)[0]
        row["adds"] = summarise([h / a for h, a in zip(host, adds, strict=True)])[0]
        if at < 0:
            median, q1, q3 = summarise(whole)
            row |= {"time_us": median, "time_us_q1": q1, "time_us_q3": q3, "samples": len(whole)}
    return rows


def own_loop(context: Context, case: Case) -> Measured:
    """Times steps of a loop as the Trainer's, counts one, profiles two."""
    device, made = context.device, job_of(case.key)
    trainer = finetune.trainer_of(made, device)
    compiled = case.key["loop"] == "compiled"
    try:
        counts = count(trainer)
        if compiled:
            trainer.model = torch.compile(trainer.model)  # type: ignore[assignment]
        for _ in range(1 if device.tiny else WARM):
            trainer.step()
        device.synchronize()
        trainer.marks.clear()
        trainer.host_us.clear()
        gc.collect()
        speed = speed_of(device)
        adds: list[float] = []
        for _ in range(2 if device.tiny else STEPS):
            before = speed.sample()
            trainer.step()
            adds.append((before + speed.sample()) / 2)
        device.synchronize()
        timed = part_rows(case.key, trainer, adds)
        events = step_trace.kernels(trainer.step, device)
        whole = {"busy_us": step_trace.busy_us(events), "launches": len(events)}
        rows: Measured = [
            ("host_steps", {**row, **whole, **counts[str(row["part"])]}) for row in timed
        ]
        label = f"{made.label()} {case.key['loop']}"
        calls = host_calls.host_calls(trainer.step, device, label)
        return rows + [("host_calls", r) for r in calls]
    finally:
        models.release(trainer.optimizer)
        del trainer
        gc.collect()
        device.release()


class _Samples(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Random tokens."""

    def __init__(self, number: int, seq: int, vocab: int) -> None:
        self.tokens = torch.randint(1, vocab, (number, seq))

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


def trainers_loop(context: Context, case: Case) -> Measured:
    """Times steps of transformers' Trainer, beginning to beginning."""
    device, made = context.device, job_of(case.key)
    transformers = models.needs("transformers")
    models.needs("accelerate")
    torch.manual_seed(1)
    steps = 4 if device.tiny else 30
    model = models.model_of(replace(made, checkpoint=0), device.torch_device)
    starts: list[float] = []
    ends: list[float] = []
    adds: list[float] = []
    speed = speed_of(device)

    class Clock(transformers.TrainerCallback):  # type: ignore[name-defined,misc]
        """Notes when steps begin."""

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            """Looks at the clock, and how fast the host is."""
            ends.append(time.perf_counter())
            adds.append(speed.sample())
            starts.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=made.micro_batch,
            max_steps=steps,
            bf16=bool(made.autocast),
            optim="adamw_torch_fused",
            gradient_checkpointing=bool(made.checkpoint),
            logging_steps=10,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            use_cpu=device.kind != "cuda",
        )
        samples = _Samples(steps * made.micro_batch, made.seq, model.config.vocab_size)
        trainer = transformers.Trainer(
            model=model, args=arguments, train_dataset=samples, callbacks=[Clock()]
        )
        trainer.train()
    del trainer, model
    gc.collect()
    device.release()
    skipped = 1 if device.tiny else 6
    spans = [(b - a) * 1e6 for a, b in zip(starts, ends[1:], strict=False)][skipped:]
    beside = [(a + b) / 2 for a, b in pairwise(adds)][skipped:]
    median, q1, q3 = summarise(spans)
    none = {k: 0 for k in ("launches", "operators", "views", "modules", "nodes", "functions")}
    times = {"time_us": median, "time_us_q1": q1, "time_us_q3": q3, "samples": len(spans)}
    times["add_us"] = summarise(beside)[0]
    times["adds"] = summarise([t / a for t, a in zip(spans, beside, strict=True)])[0]
    return [("host_steps", {**case.key, **none, "host_us": median, "busy_us": 0.0, **times})]


Link = Callable[[torch.Tensor], torch.Tensor]


def chains(device: Device) -> dict[str, Link]:
    """Calls of one kind, to be put one behind the other."""
    where = device.torch_device
    w = torch.randn(64, 64, device=where, dtype=torch.bfloat16, requires_grad=True)
    identity = torch.nn.Identity()
    linear = torch.nn.Linear(64, 64, bias=False, device=where, dtype=torch.bfloat16)
    return {
        "chain mul": lambda x: x * 1.5,
        "chain view": lambda x: x.view(x.shape[1], x.shape[0]),
        "chain transpose": lambda x: x.transpose(0, 1),
        "chain identity": identity,
        "chain linear": lambda x: torch.nn.functional.linear(x, w),
        "chain module": linear,
        "chain cast": lambda x: x.to(torch.float32 if x.dtype != torch.float32 else w.dtype),
    }


def chained(context: Context, case: Case) -> Measured:
    """Times a chain of equal calls, forward and backward."""
    device = context.device
    link = chains(device)[str(case.key["model"])]
    x = torch.randn(64, 64, device=device.torch_device, dtype=torch.bfloat16, requires_grad=True)
    speed = speed_of(device)
    ran: dict[str, list[tuple[float, float]]] = {"forward": [], "backward": []}
    for i in range(3 if device.tiny else 20):
        add = speed.sample()
        marks = [time.perf_counter()]
        with host_calls.counted() if i == 0 else nullcontext() as calls:
            y = x
            for _ in range(LINKS):
                y = link(y)
        marks.append(time.perf_counter())
        gradient = torch.ones_like(y)
        marks.append(time.perf_counter())
        y.backward(gradient)
        marks.append(time.perf_counter())
        device.synchronize()
        if i == 0 and calls:
            counts = calls.columns()
        if i > 1:
            ran["forward"].append(((marks[1] - marks[0]) * 1e6, add))
            ran["backward"].append(((marks[3] - marks[2]) * 1e6, add))
    rows: Measured = []
    for part, samples in ran.items():
        median, q1, q3 = summarise([t for t, _ in samples])
        times = {"time_us": median, "time_us_q1": q1, "time_us_q3": q3, "samples": len(samples)}
        times["add_us"] = summarise([a for _, a in samples])[0]
        times["adds"] = summarise([t / a for t, a in samples])[0]
        own = {"host_us": median, "busy_us": 0.0, "launches": 0}
        rows.append(("host_steps", {**case.key, "part": part, **own, **counts, **times}))
    summed = ("time_us", "time_us_q1", "time_us_q3", "host_us", "adds")
    whole = {k: sum(float(r[k]) for _, r in rows) for k in summed}
    rows.append(("host_steps", {**rows[0][1], **whole, "part": "step"}))
    return rows


LOOPS: dict[str, Callable[[Context, Case], Measured]] = {
    "own": own_loop,
    "compiled": own_loop,
    "trainer": trainers_loop,
    "chain": chained,
}


def measure(context: Context, case: Case) -> Measured:
    """One job by its loop."""
    return LOOPS[str(case.key["loop"])](context, case)


ITEM = Item(
    "host_steps",
    "Steps that wait for the host, with the calls that they make.",
    ("host_steps", "host_calls"),
    cases,
    measure,
    start_s=30.0,
    libraries=models.libraries,
)

if __name__ == "__main__":
    sys.exit(runner.main(ITEM))
