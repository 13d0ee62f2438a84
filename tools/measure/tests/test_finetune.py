"""Fine-tuning: what a profile and a memory history come to, names of jobs, their predictions."""

from __future__ import annotations

from dataclasses import replace

import pytest

import finetune
import finetune_jobs
import quantized
from kit import step_trace
from kit.quantized_kernels import BY_NAME
from kit.schemas import TABLES
from kit.tables import format_row


def test_busy_time_counts_overlapping_kernels_once():
    # 0..10 and 5..20 overlap, 30..40 stands alone, 31..32 lies within it: 20 + 10.
    events = [("b", 5.0, 15.0), ("a", 0.0, 10.0), ("c", 30.0, 10.0), ("d", 31.0, 1.0)]
    assert step_trace.busy_us(events) == pytest.approx(30.0)
    assert step_trace.busy_us([]) == 0.0


def test_kernels_of_one_name_stand_together_and_the_rest_in_one_row():
    events = [(f"k{i}", 0.0, 1.0) for i in range(step_trace.MOST_KERNELS + 3)]
    events += [("k0", 0.0, 5.0)]
    rows = step_trace.by_name(events, "m")
    assert (rows[0]["name"], rows[0]["count"], rows[0]["total_us"]) == ("k0", 2, 6.0)
    assert (rows[-1]["name"], rows[-1]["count"]) == ("all others", 3)
    assert sum(r["count"] for r in rows) == len(events)
    for row in rows:
        format_row(TABLES["finetune_kernels"], row)


def test_blocks_alive_at_the_peak():
    # From 100: +50 = 150, +50 = 200 (the peak), -50, -30 of before the step: 120, +60 = 180.
    trace = [
        {"action": "alloc", "addr": 1, "size": 50},
        {"action": "alloc", "addr": 2, "size": 50},
        {"action": "free_requested", "addr": 1, "size": 50},
        {"action": "free_completed", "addr": 1, "size": 50},
        {"action": "free_completed", "addr": 9, "size": 30},
        {"action": "alloc", "addr": 3, "size": 60},
    ]
    rows = step_trace.blocks_at_peak(trace, 100, "m")
    assert [(r["what"], r["size_bytes"], r["count"]) for r in rows] == [
        ("before", 100, 1),
        ("made", 50, 2),
    ]
    last = step_trace.blocks_at_peak(trace[:1], 100, "m")
    assert [(r["what"], r["size_bytes"]) for r in last] == [("before", 100), ("made", 50)]
    for row in rows:
        format_row(TABLES["finetune_blocks"], row)


def test_jobs_have_names_of_their_own_and_come_back_from_their_keys():
    labels = [job.label() for job in finetune.JOBS]
    assert len(set(labels)) == len(labels)
    for job in finetune.JOBS:
        assert finetune.job_of(finetune.key_of(job, "hot")) == job


def test_sizes_of_kernels_are_listed_once():
    options = quantized.runner.parser_of(quantized.ITEM).parse_args(["plan"])
    cases = quantized.cases([], None, options)
    assert len({tuple(c.key.items()) for c in cases}) == len(cases)
    # 4 bits and a byte of scale a 64 in, 2 bytes out.
    assert BY_NAME["nf4_dequantize_double"].bytes_of(64, 64, 0, 2) == 4096 * (0.5 + 1 / 64 + 2)


def test_a_row_becomes_the_job_that_the_trainer_runs():
    qlora = finetune.JOBS[0]
    job = finetune_jobs.job_of(finetune.key_of(qlora, "hot"), "h200-ib-400g")
    assert job["training"]["base_quantization"] == "nf4"
    assert job["training"]["double_quantization"] and job["training"]["recompute"] == "full"
    assert not job["framework_options"]["model_type_states"]  # adapters in fp32
    single = replace(qlora, method="nf4_single", optimizer="paged_adamw_8bit")
    job = finetune_jobs.job_of(finetune.key_of(single, "hot"), "h200-ib-400g")
    assert job["training"]["base_quantization"] == "nf4"
    assert not job["training"]["double_quantization"]
    assert job["training"]["optimizer_states"] == "8bit"
