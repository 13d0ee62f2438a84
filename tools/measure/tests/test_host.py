"""Steps that wait for the host: what is counted, which jobs are kept back, their predictions."""

from __future__ import annotations

import torch

import finetune_jobs
import host_fit
import host_steps
from kit import host_calls


def test_jobs_come_back_from_their_keys_and_teach_or_are_kept_back():
    listed = host_steps.jobs()
    keys = [tuple(host_steps.key_of(j, "hot").items()) for j in listed]
    assert len(set(keys)) == len(keys)
    for job, loop, taught in listed:
        assert host_steps.job_of(host_steps.key_of((job, loop, taught), "hot")) == job
    taught = {(job, loop) for job, loop, teaches in listed if teaches}
    assert not taught & {(job, loop) for job, loop, teaches in listed if not teaches}


def test_calls_are_counted_by_kind():
    layer = torch.nn.Linear(4, 4, bias=False)
    x = torch.ones(2, 3, 4, requires_grad=True)
    # A linear layer over three dimensions: the weight's transpose and two views around a product.
    with host_calls.counted() as calls:
        y = layer(x)
    assert calls.columns() == {
        **{"operators": 1, "views": 3, "modules": 1},
        **{"nodes": 0, "functions": 0},
    }
    nodes, functions = host_calls.graph_of(y)
    assert nodes >= 4 and functions == 0


def test_a_family_becomes_a_model_of_the_sizes_in_its_name():
    model = finetune_jobs.model_of("qwen3 h1024 l8")
    assert (model["hidden"], model["layers"], model["heads"], model["kv_heads"]) == (1024, 8, 16, 4)
    assert model["qk_norm"] and "experts" not in model
    assert finetune_jobs.model_of("llama3.2-1b") == "llama3.2-1b"
    job = host_steps.job("olmoe")
    made = finetune_jobs.job_of(host_steps.key_of((job, "own", 1), "hot"), "h200-ib-400g")
    assert made["framework"] == "fsdp" and made["model"]["experts"] == 16


def test_a_checkpoints_backward_pass_holds_the_forward_pass_again():
    forward = {"operators": 38, "views": 38, "modules": 13}
    backward = {"operators": 106, "views": 167, "modules": 13, "functions": 7}
    parts = {"forward": forward, "backward": backward}
    # 68 operators of its own and 38 again; 129 views of its own and 38 again; functions twice.
    assert host_fit.calls(parts, "backward", (1.0, 2.0)) == [
        host_fit.OPERATOR_BACKWARD * 68 + host_fit.OPERATOR_FORWARD * 38,
        2.0 * 129 + 38,
        13,
        14,
    ]
