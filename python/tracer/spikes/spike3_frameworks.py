"""Spike 3b: DeepSpeed ZeRO-1/2/3 and a Hugging Face Llama on a machine with no GPU.

    pip install --no-deps --target EXTRA deepspeed hjson ninja msgpack py-cpuinfo psutil einops \\
        tqdm packaging; pip install --target EXTRA pydantic
    python spike3_frameworks.py EXTRA --zero 1|2|3 [--json]
    pip install --no-deps --target EXTRA transformers; pip install --target EXTRA huggingface-hub \\
        tokenizers safetensors regex
    python spike3_frameworks.py EXTRA --llama [--json]
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from typing import Any

import common

common.start("cuda")

import torch  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

import llama  # noqa: E402
from record import Recorder  # noqa: E402

WORLD = 4


class WithLoss(torch.nn.Module):
    """DeepSpeed wants the loss from the module."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Loss of the tokens against themselves."""
        return llama.loss_of(self.model(tokens), tokens)


def host_value(t: torch.Tensor) -> Any:
    """What a value read back is taken to be: 1.0 for a norm, 0 for a flag or a count."""
    return 1.0 if t.dtype.is_floating_point else 0


def zero(stage: int) -> dict[str, Any]:
    """The second step of rank 0 of four under ZeRO."""
    os.environ["DS_ACCELERATOR"] = "cuda"
    common.fake_job(0, WORLD)
    import deepspeed
    from deepspeed.runtime.zero import partitioned_param_coordinator as coordinator

    # ZeRO-3 compares its order of parameters with the other ranks' by value.
    coordinator.assert_ints_same_as_other_ranks = lambda *_: None
    options = {
        "train_micro_batch_size_per_gpu": 1,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
        "zero_allow_untested_optimizer": True,
        "gradient_clipping": 1.0,
    }
    recorder = Recorder()
    with FakeTensorMode(allow_non_fake_inputs=True):
        with torch.device("cuda"):
            model = llama.Llama(llama.SMALL, "cuda").to(torch.bfloat16)
        optimizer = torch.optim.AdamW(model.parameters())
        engine, *_ = deepspeed.initialize(
            model=WithLoss(model), optimizer=optimizer, config=options
        )
        tokens = torch.zeros(1, llama.SMALL.seq, dtype=torch.int64, device="cuda")
        for _ in range(2):
            recorder = Recorder()
            recorder.host_value = host_value
            with recorder:
                engine.backward(engine(tokens))
                engine.step()
    trace = recorder.trace
    return {
        "deepspeed": deepspeed.__version__,
        "stage": stage,
        "recorded": trace.comm_counts(),
        "bytes": [f"{n} x {name} {size}" for (name, size), n in sizes(trace).items()],
        "parameter_bytes": 2 * llama.SMALL.parameters(),
        "ops": len(trace.of("op")),
        "host_syncs": len(trace.of("sync")),
        "streams": sorted({e.stream for e in trace.of("comm")}),
    }


def sizes(trace: Any) -> Counter[tuple[str, int]]:
    """How often each collective of each size."""
    return Counter((e.name, e.sent) for e in trace.of("comm"))


def hugging_face() -> dict[str, Any]:
    """A Llama of transformers with each attention, with and without a mask."""
    import transformers

    config = llama.SMALL
    lines = []
    for attention in ("sdpa", "eager"):
        for masked in (False, True):
            settings = transformers.LlamaConfig(
                hidden_size=config.hidden, intermediate_size=config.ffn, vocab_size=config.vocab,
                num_hidden_layers=config.layers, num_attention_heads=config.heads,
                num_key_value_heads=config.kv_heads, attn_implementation=attention,
            )  # fmt: skip
            with FakeTensorMode(allow_non_fake_inputs=True), torch.device("cuda"):
                model = transformers.LlamaForCausalLM(settings).to(torch.bfloat16)
                tokens = torch.zeros(1, config.seq, dtype=torch.int64)
                mask = {"attention_mask": torch.ones_like(tokens)} if masked else {}
                with Recorder() as recorder:
                    model(input_ids=tokens, labels=tokens, **mask).loss.backward()
            ops = [e for e in recorder.trace.of("op") if not e.view]
            kinds = sorted({e.name for e in ops if "attention" in e.name} or {"aten::bmm"})
            lines.append(f"{attention}, mask {masked}: {len(ops)} ops, {', '.join(kinds)}")
    return {"transformers": transformers.__version__, "patch_lines": 0, "runs": lines}


def main() -> None:
    """One framework."""
    sys.path.append(sys.argv[1])
    if "--llama" in sys.argv:
        common.emit(hugging_face())
        return
    common.emit(zero(int(sys.argv[sys.argv.index("--zero") + 1])))


if __name__ == "__main__":
    main()
