"""DeepSpeed ZeRO: stage 1, 2 or 3, and micro-batches a step.

pip install deepspeed==0.19.8
orrery-trace --world-size 4 -- python examples/deepspeed_zero.py 3 1
"""

import sys

import deepspeed
import torch
from torch import nn

import llama

CONFIG = llama.SMALL


class WithLoss(nn.Module):
    """DeepSpeed wants the loss from the module."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Loss of the tokens against themselves."""
        return llama.loss_of(self.model(tokens), tokens)


def main() -> None:
    """Trains three steps."""
    stage, accumulate = (int(word) for word in (sys.argv[1:] + ["3", "1"][len(sys.argv) - 1 :]))
    deepspeed.init_distributed()
    model = WithLoss(llama.Llama(CONFIG, "cuda").cuda().to(torch.bfloat16))
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters()),
        config={
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": accumulate,
            "bf16": {"enabled": True},
            "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
            "zero_allow_untested_optimizer": True,
            "gradient_clipping": 1.0,
        },
    )
    for _ in range(3 * accumulate):
        tokens = torch.randint(0, CONFIG.vocab, (1, CONFIG.seq), device="cuda")
        engine.backward(engine(tokens))
        engine.step()


if __name__ == "__main__":
    main()
