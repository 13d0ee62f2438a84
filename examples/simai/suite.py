#!/usr/bin/env python3
"""Writes the Megatron workloads of SimAI's benchmark suite (version 1.1, 128 GPUs) as SimAI reads them.

Usage: suite.py FOLDER [--ga N] [--flops F]
  N: micro-batches of a pipeline (16 unless said; micro-batches hold one sequence)
  F: FLOP/s that a GPU reaches (156e12 unless said, half of an A100's bf16 peak): the suite has no kernel times

Sizes, groups and frameworks are the suite's; what a layer sends is what AICB writes for Megatron. The DeepSpeed
workloads (8 and 9) are not among them.
"""

import argparse
import pathlib

WORLD = 128
#        name              seq  tp  pp  sp    ep  hidden layers ffn   experts
SUITE = [("1-llama-7b", 2048, 1, 1, False, 1, 4096, 32, 16384, 0),
         ("2-gpt-13b", 2048, 2, 1, True, 1, 5120, 40, 20480, 0),
         ("3-gpt-22b", 2048, 4, 1, False, 1, 6144, 48, 24576, 0),
         ("4-llama-65b", 4096, 8, 2, True, 1, 8192, 80, 28672, 0),
         ("5-gpt-175b-sp", 2048, 8, 8, True, 1, 12288, 96, 49152, 0),
         ("6-gpt-175b", 2048, 8, 8, False, 1, 12288, 96, 49152, 0),
         ("7-llama3-405b", 8192, 8, 16, True, 1, 16384, 126, 53248, 0),
         ("10-mixtral-8x7b", 2048, 2, 1, True, 8, 4096, 32, 14336, 8)]
VOCABULARY = 51200


class Workload:
    def __init__(self, flops):
        self.flops, self.lines = flops, []

    def add(self, name, forward=0.0, forward_comm=("NONE", 0), backward_comm=("NONE", 0), weight_comm=("NONE", 0)):
        """A line; `forward` in FLOP: as many again for the input's gradient and for the weights'."""
        ns = round(forward / self.flops * 1e9)
        phases = [(ns, *forward_comm), (ns, *backward_comm), (ns, *weight_comm)]
        self.lines.append("\t".join([name, "-1", *(f"{t}\t{comm}\t{size}" for t, comm, size in phases), "100"]))


def write(row, path, ga, flops):
    name, seq, tp, pp, sp, ep, hidden, layers, ffn, experts = row
    own = -(-layers // pp)
    message = 2 * seq * hidden
    attention, mlp = 4 * hidden * hidden / tp, 2 * hidden * ffn / tp
    parameters = round(own * (attention + mlp * max(1, experts // ep)) + VOCABULARY * hidden / tp)
    # Megatron's column- and row-parallel layers: what each does forward and backward.
    column = {"forward_comm": ("ALLGATHER", message), "backward_comm": ("REDUCESCATTER", message)} if sp else {"backward_comm": ("ALLREDUCE", message)}
    row_parallel = {"forward_comm": ("REDUCESCATTER", message), "backward_comm": ("ALLGATHER", message)} if sp else {"forward_comm": ("ALLREDUCE", message)}
    w = Workload(flops)
    w.add("grad_gather", weight_comm=("ALLGATHER", 2 * parameters))
    w.add("grad_param_comm", weight_comm=("REDUCESCATTER", 4 * parameters))
    for _ in range(ga):
        w.add("embedding_layer", forward_comm=("ALLREDUCE", message))
        for _ in range(own):
            w.add("attention_column", 2 * seq * attention * 0.75 + 4 * seq * seq * hidden / tp, **column)
            w.add("attention_row", 2 * seq * attention * 0.25, **row_parallel)
            if experts:
                w.add("moe_dispatch", forward_comm=("ALLTOALL_EP", 2 * message // tp), backward_comm=("ALLTOALL_EP", 2 * message // tp))
                w.add("moe_experts", 2 * 2 * seq * mlp)  # two experts a token
                w.add("moe_combine", forward_comm=("ALLTOALL_EP", 2 * message // tp), backward_comm=("ALLTOALL_EP", 2 * message // tp))
            else:
                w.add("mlp_column", seq * mlp, **column)
                w.add("mlp_row", seq * mlp, **row_parallel)
    for i in range(3):
        w.add(f"cross_entropy{i + 1}", forward_comm=("ALLREDUCE", 4 * seq))
    header = (f"HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: {tp} ep: {ep} pp: {pp} vpp: 1 ga: {ga} all_gpus: {WORLD} "
              f"checkpoints: 0 checkpoint_initiates: 0 pp_comm: {message // tp if sp else message}")
    path.write_text("\n".join([header, str(len(w.lines)), *w.lines]) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--ga", type=int, default=16)
    parser.add_argument("--flops", type=float, default=156e12)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for row in SUITE:
        write(row, args.folder / f"{row[0]}.txt", args.ga, args.flops)


if __name__ == "__main__":
    main()
