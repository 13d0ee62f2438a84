"""Small models of several families, by name: what a step costs the host is measured on them.

A name says family, hidden size and layers, as `llama h1024 l8`; a fourth word `eager` takes
transformers' own attention in place of PyTorch's fused one.
"""

from __future__ import annotations

from typing import Any

from kit.finetune_models import CONFIGS

HEAD = 64
VOCAB = 4096


def _sizes(hidden: int, layers: int) -> dict[str, Any]:
    """What most configurations call by the same names."""
    return {
        "vocab_size": VOCAB,
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": hidden // HEAD,
        "num_key_value_heads": max(1, hidden // HEAD // 4),
        "tie_word_embeddings": False,
        "pad_token_id": 0,
    }


def _gpt2(hidden: int, layers: int) -> dict[str, Any]:
    heads = hidden // HEAD
    return {"vocab_size": VOCAB, "n_embd": hidden, "n_layer": layers, "n_head": heads}


def _gpt_neox(hidden: int, layers: int) -> dict[str, Any]:
    values = _sizes(hidden, layers)
    del values["num_key_value_heads"]
    return values


# Family: (class of the configuration, values of its own beside the sizes).
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {}),
    "mistral": ("MistralConfig", {"sliding_window": None}),
    "qwen2": ("Qwen2Config", {}),
    "qwen3": ("Qwen3Config", {"head_dim": HEAD}),
    "gemma2": ("Gemma2Config", {"head_dim": HEAD}),
    "gemma3": ("Gemma3TextConfig", {"head_dim": HEAD}),
    "phi3": ("Phi3Config", {}),
    "olmo2": ("Olmo2Config", {}),
    "gpt2": ("GPT2Config", {}),
    "gpt_neox": ("GPTNeoXConfig", {}),
    "olmoe": ("OlmoeConfig", {"num_experts": 16, "num_experts_per_tok": 4}),
    "mixtral": ("MixtralConfig", {"num_local_experts": 8, "num_experts_per_tok": 2}),
}
SIZES = {"gpt2": _gpt2, "gpt_neox": _gpt_neox}


def declare(family: str, hidden: int, layers: int, attention: str = "sdpa") -> str:
    """The name of a model, which `kit.finetune_models` can then make."""
    kind, own = FAMILIES[family]
    values = SIZES.get(family, _sizes)(hidden, layers) | own
    name = f"{family} h{hidden} l{layers}"
    if attention != "sdpa":
        name += f" {attention}"
    CONFIGS[name] = (kind, values | {"attn_implementation": attention})
    return name
