#!/usr/bin/env python3
"""Traces a small transformer on CPUs with both of PyTorch's profilers, one file of each a rank.

Usage: trace.py --ranks 2|4 --parallel ddp|fsdp --out FOLDER
Needs torch (the CPU wheel will do). Writes FOLDER/kineto-RANK.json.gz, FOLDER/et-RANK.json.gz and
FOLDER/measured.json: the seconds that the traced step took by the machine's clock, from the first
rank's begin to the last one's end.
"""

import argparse
import gzip
import json
import os
import pathlib
import shutil
import socket
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, schedule

WARM_STEPS = 3


class Layer(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        batch, seq, hidden = x.shape
        q, k, v = (
            part.view(batch, seq, self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).chunk(3, dim=-1)
        )
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, seq, hidden))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self, layers, hidden, heads, vocabulary):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.layers = nn.ModuleList(Layer(hidden, heads) for _ in range(layers))
        self.head = nn.Linear(hidden, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def parallel(model, kind):
    if kind == "ddp":
        return nn.parallel.DistributedDataParallel(model, bucket_cap_mb=4)
    for layer in model.layers:
        fully_shard(layer)
    return fully_shard(model)


def train(rank, arguments, port, folder):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    dist.init_process_group("gloo", rank=rank, world_size=arguments.ranks)
    model = parallel(Transformer(arguments.layers, 256, 4, 2048), arguments.parallel)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(2048, (arguments.batch, 128))

    def step():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()

    plan = schedule(wait=0, warmup=WARM_STEPS, active=1, repeat=1)
    raw = f"{folder}/et-{rank}.json"
    observer = ExecutionTraceObserver()
    observer.register_callback(raw)
    begin = end = 0
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=plan,
        record_shapes=True,
        execution_trace_observer=observer,
    ) as profiler:
        for _ in range(WARM_STEPS + 1):
            begin = time.time_ns()
            dist.barrier()
            step()
            end = time.time_ns()
            profiler.step()
    profiler.export_chrome_trace(f"{folder}/kineto-{rank}.json")
    with open(f"{folder}/measured-{rank}.json", "w", encoding="utf-8") as file:
        json.dump([begin, end], file)
    dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--parallel", choices=("ddp", "fsdp"), default="ddp")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(
            train, args=(arguments, free_port(), folder), nprocs=arguments.ranks
        )
        arguments.out.mkdir(parents=True, exist_ok=True)
        measured = []
        for rank in range(arguments.ranks):
            for kind in ("kineto", "et"):
                with open(f"{folder}/{kind}-{rank}.json", "rb") as raw:
                    with gzip.GzipFile(arguments.out / f"{kind}-{rank}.json.gz", "wb", mtime=0) as out:
                        shutil.copyfileobj(raw, out)
            with open(f"{folder}/measured-{rank}.json", encoding="utf-8") as file:
                measured.append(json.load(file))
        seconds = (max(end for _, end in measured) - min(begin for begin, _ in measured)) / 1e9
    (arguments.out / "measured.json").write_text(json.dumps({"step_seconds": seconds}) + "\n")
    print(f"{arguments.out}: step of {seconds:.4f} s")


if __name__ == "__main__":
    main()
