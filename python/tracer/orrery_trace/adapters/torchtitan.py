"""torchtitan's own train script, `python -m torchtitan.train`. Tried on 0.3.0 with PyTorch 2.14."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from orrery_trace.groups import Patches
from orrery_trace.imports import when_imported
from orrery_trace.recorder import Recorder

MODULE = "torchtitan"
REASON = (
    "it captures the step in a CUDA graph, its pipeline stages learn shapes from one another, and "
    "its experts read how many tokens they get"
)


def install(module: ModuleType, recorder: Recorder, patches: Patches) -> None:
    """Patches the parts as they are imported."""
    parts = {"cudagraph": _cuda_graph, "pipeline_parallel": _stages, "utils": _timeouts}
    for name, patch in parts.items():
        call = functools.partial(patch, recorder=recorder, patches=patches)
        when_imported(f"{MODULE}.distributed.{name}", call)
    call = functools.partial(_experts, recorder=recorder, patches=patches)
    when_imported(f"{MODULE}.models.common.token_dispatcher", call)


def _cuda_graph(module: ModuleType, recorder: Recorder, patches: Patches) -> None:
    """The step runs as it does with `--training.disable_cuda_graphs`; the trace says so."""

    def launched(function: Any) -> Any:
        recorder.assume("torchtitan's CUDA graph is left out: each kernel is launched by the host")
        return function

    patches.replace(module, "wrap_with_cuda_graph", launched)
    patches.replace(module, "cudagraph_teardown", lambda: None)


def _timeouts(module: ModuleType, recorder: Recorder, patches: Patches) -> None:
    """After its first step it shortens the timeouts of groups, which fake ones have not."""
    patches.replace(module, "set_pg_timeouts", lambda *_, **__: None)


def _stages(module: ModuleType, recorder: Recorder, patches: Patches) -> None:
    """Gives each stage the shapes that its neighbours would send: a micro-batch of hidden states.

    They are cut along the sequence by context parallelism and by sequence parallelism.
    """
    import torch
    from torch.distributed.pipelining import _utils

    build = module.pipeline_llm

    @functools.wraps(build)
    def pipeline_llm(model: Any, **given: Any) -> Any:
        built = build(model, **given)
        plan, training, dims = given["parallelism"], given["training"], given["parallel_dims"]
        length = training.seq_len // dims.cp
        rows = (plan.pipeline_parallel_microbatch_size, length)
        parts = dims.tp if plan.enable_sequence_parallel else 1
        hidden = (rows[0], length // parts, given["model_config"].dim)
        kind = getattr(torch, training.mixed_precision_param)

        def meta(shape: tuple[int, ...], dtype: torch.dtype) -> Any:
            gradient = dtype.is_floating_point
            made = torch.empty(shape, dtype=dtype, device="meta", requires_grad=gradient)
            return (_utils._TensorMeta.from_tensor(made),)

        schedule = built[0]
        for stage in getattr(schedule, "_stages", None) or [schedule._stage]:
            stage._user_meta = _utils._StageMeta(
                inputs=meta(rows, torch.int64) if stage.is_first else meta(hidden, kind),
                outputs=meta(hidden, kind),
            )
        return built

    patches.replace(module, "pipeline_llm", pipeline_llm)


def _experts(module: ModuleType, recorder: Recorder, patches: Patches) -> None:
    """Token counts must be known on the host: every rank gets as many as every other.

    The lists of counts, just read from fake tensors, are filled in where tokens are first sent.
    """
    kind = module.AllToAllTokenDispatcher
    send = kind._dispatch_token_exchange

    @functools.wraps(send)
    def balanced(
        self: Any, tokens: Any, group: Any, received: list[int], sent: list[int], *rest: Any
    ) -> Any:
        ranks = len(sent)
        copies = tokens.shape[0]
        received[:] = sent[:] = [copies // ranks] * ranks
        recorder.add(
            "routing",
            tokens=copies // self.top_k,
            topk=self.top_k,
            experts=self.num_experts,
            local_experts=self.num_experts // ranks,
            bytes_per_token=tokens.shape[1] * tokens.element_size(),
            group=recorder.group_number(group),
            **recorder.place(),
        )
        recorder.assume("expert routing is balanced")
        return send(self, tokens, group, received, sent, *rest)

    patches.replace(kind, "_dispatch_token_exchange", balanced)
