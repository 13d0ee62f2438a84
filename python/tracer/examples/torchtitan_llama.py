"""Models for torchtitan's own train script, with tokens of its own making.

torchtitan looks a configuration up by module and name; this is such a module. The train script is
torchtitan's, unchanged, and takes its arguments:

    cd python/tracer/examples
    orrery-trace --world-size 8 -- python -m torchtitan.train --module torchtitan_llama \\
        --config debugmodel --parallelism.tensor_parallel_degree 2
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torchtitan.components.dataloader import BaseDataLoader
from torchtitan.components.tokenizer import BaseTokenizer
from torchtitan.models.deepseek_v3 import config_registry as deepseek
from torchtitan.models.llama3 import config_registry, model_registry
from torchtitan.trainer import Trainer


class Tokens(BaseTokenizer):
    """No text is read, so no token is made."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        """Nothing to set."""

    def __init__(self, config: Config, *, tokenizer_path: str) -> None:
        super().__init__()
        self.eos_id = 0

    def encode(self, *args: Any, **kwargs: Any) -> list[int]:
        """No token."""
        return []

    def decode(self, *args: Any, **kwargs: Any) -> str:
        """No text."""
        return ""

    def get_vocab_size(self) -> int:
        """Llama 3's."""
        return 128256


class SameRow(BaseDataLoader):
    """One row of tokens, again and again."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        """Nothing to set."""

    def __init__(self, config: Config, *, seq_len: int, local_batch_size: int, **_: Any) -> None:
        self.shape = (local_batch_size, seq_len)

    def __iter__(self) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        while True:
            tokens = torch.zeros(self.shape, dtype=torch.int64)
            positions = torch.arange(self.shape[1]).repeat(self.shape[0], 1)
            yield {"input": tokens, "positions": positions}, tokens.clone()

    def state_dict(self) -> dict[str, Any]:
        """No state."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """No state."""


def own_data(config: Trainer.Config) -> Trainer.Config:
    """A configuration of torchtitan's, with the tokens above and no validation or checkpoint."""
    config.tokenizer = Tokens.Config()
    config.dataloader = SameRow.Config()
    config.validator.enable = False
    config.checkpoint.enable = False
    return config


def debugmodel() -> Trainer.Config:
    """torchtitan's smallest Llama: 6 layers of 256."""
    return own_data(config_registry.llama3_debugmodel())


def llama3_8b() -> Trainer.Config:
    """Llama 3 8B."""
    return own_data(config_registry.llama3_8b())


def llama3_70b() -> Trainer.Config:
    """Llama 3 70B."""
    return own_data(config_registry.llama3_70b())


def llama3_405b() -> Trainer.Config:
    """Llama 3.1 405B in bf16; torchtitan's own takes float8, which needs torchao."""
    config = own_data(config_registry.llama3_70b())
    config.model_spec = model_registry("405B")
    return config


def deepseek_v3() -> Trainer.Config:
    """DeepSeek-V3 671B."""
    return own_data(deepseek.deepseek_v3_671b())


def deepseek_v3_debugmodel() -> Trainer.Config:
    """Its smallest: 6 layers of 256, 5 of them with experts."""
    return own_data(deepseek.deepseek_v3_debugmodel())
