"""Models of transformers from their configuration, with random weights, made ready to fine-tune.

What is made is what the libraries make of a checkpoint: transformers' own model classes, peft's
adapters, bitsandbytes' quantised linear layers. Only the weights are random, since nothing can be
fetched where this runs. The loop mirrors transformers' Trainer: the loss is looked at after each
backward pass (logging_nan_inf_filter), gradients are clipped by their norm.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from kit.errors import Refused

Tensor = torch.Tensor


@dataclass(frozen=True)
class Job:
    """One way to fine-tune one model: the key columns of the table `finetune`."""

    model: str
    method: str  # full | lora | nf4 | nf4_single | int8
    weights: str  # fp32 | bf16: of what is not quantised, as loaded
    autocast: int  # 1: the Trainer's bf16: true, with which peft keeps adapters in fp32
    prepared: int  # 1: peft's prepare_model_for_kbit_training
    dropout: float  # in front of adapters
    optimizer: str
    checkpoint: int
    seq: int
    micro_batch: int

    def label(self) -> str:
        """All of it in one word, as the other tables name the job."""
        flags = [self.weights]
        flags += ["autocast"] * self.autocast + ["prepared"] * self.prepared
        flags += ["checkpoint"] * self.checkpoint
        flags += [f"dropout{self.dropout:g}"] if self.dropout else []
        sizes = f"s{self.seq} b{self.micro_batch}"
        return f"{self.model} {self.method} {'+'.join(flags)} {self.optimizer} {sizes}"


LLAMA = {"rms_norm_eps": 1e-5, "max_position_embeddings": 131072, "rope_theta": 500000.0}
# Architectures as their config.json says them: (class of the configuration, its values).
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama3.2-1b": (
        "LlamaConfig",
        {
            **LLAMA,
            "vocab_size": 128256,
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "num_hidden_layers": 16,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "tie_word_embeddings": True,
        },
    ),
    "llama3.2-3b": (
        "LlamaConfig",
        {
            **LLAMA,
            "vocab_size": 128256,
            "hidden_size": 3072,
            "intermediate_size": 8192,
            "num_hidden_layers": 28,
            "num_attention_heads": 24,
            "num_key_value_heads": 8,
            "tie_word_embeddings": True,
        },
    ),
    "llama3.1-8b": (
        "LlamaConfig",
        {
            **LLAMA,
            "vocab_size": 128256,
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "tie_word_embeddings": False,
        },
    ),
    "qwen2.5-7b": (
        "Qwen2Config",
        {
            "vocab_size": 152064,
            "hidden_size": 3584,
            "intermediate_size": 18944,
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "tie_word_embeddings": False,
            "max_position_embeddings": 32768,
        },
    ),
    "olmoe-1b-7b": (
        "OlmoeConfig",
        {
            "vocab_size": 50304,
            "hidden_size": 2048,
            "intermediate_size": 1024,
            "num_hidden_layers": 16,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
            "num_experts": 64,
            "num_experts_per_tok": 8,
            "tie_word_embeddings": False,
        },
    ),
    "tiny": (
        "LlamaConfig",
        {
            "vocab_size": 256,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "tie_word_embeddings": True,
        },
    ),
}
PROJECTIONS = (
    *("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
    *("qkv_proj", "gate_up_proj"),
)
RANK = 16


def libraries() -> dict[str, str]:
    """Versions of what this needs beside torch; Refused names what is missing."""
    import importlib.metadata as metadata

    found = {}
    for name in ("transformers", "peft", "accelerate", "bitsandbytes"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "none"
    return found


def needs(name: str) -> Any:
    """The library, imported, or Refused."""
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Refused(f"{name} is not installed") from error


def base_model(job: Job, where: torch.device) -> nn.Module:
    """The model as transformers makes it, with random weights of the job's type."""
    transformers = needs("transformers")
    transformers.logging.set_verbosity_error()
    kind, values = CONFIGS[job.model]
    values = dict(values)
    attention = values.pop("attn_implementation", "sdpa")
    config = getattr(transformers, kind)(**values)
    config.use_cache = False
    dtype = torch.float32 if job.weights == "fp32" else torch.bfloat16
    with where, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = transformers.AutoModelForCausalLM.from_config(
            config, dtype=dtype, attn_implementation=attention
        )
    model.train()
    return model


def quantize(model: nn.Module, method: str) -> None:
    """Puts bitsandbytes' layers in place of the linear layers but the output layer."""
    bnb = needs("bitsandbytes")
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    four = method.startswith("nf4")
    found = [(n, m) for n, m in model.named_modules() if isinstance(m, nn.Linear)]
    for name, old in found:
        if name == "lm_head":
            continue
        bias = old.bias is not None
        where = old.weight.device
        with torch.device("meta"):
            if four:
                new = bnb.nn.Linear4bit(
                    old.in_features,
                    old.out_features,
                    bias,
                    compute_dtype=torch.bfloat16,
                    compress_statistics=method == "nf4",
                    quant_type="nf4",
                )
            else:
                new = bnb.nn.Linear8bitLt(
                    old.in_features,
                    old.out_features,
                    bias,
                    has_fp16_weights=False,
                    threshold=6.0,
                )
        if four:
            weight = bnb.nn.Params4bit(
                old.weight.data,
                requires_grad=False,
                quant_type="nf4",
                compress_statistics=method == "nf4",
                module=new,
            )
            new.weight = weight.to(where)
            new.quant_state = new.weight.quant_state
        else:
            weight = bnb.nn.Int8Params(old.weight.data, requires_grad=False, has_fp16_weights=False)
            new.weight = weight._quantize(where)
        if bias:
            new.bias = nn.Parameter(old.bias.data, requires_grad=False)
        parent = model.get_submodule(name.rpartition(".")[0])
        setattr(parent, name.rpartition(".")[2], new)
        old.weight = None
    model.is_quantized = True  # type: ignore[assignment]
    if four:
        model.is_loaded_in_4bit = True  # type: ignore[assignment]
    else:
        model.is_loaded_in_8bit = True  # type: ignore[assignment]


def model_of(job: Job, where: torch.device) -> nn.Module:
    """The model of a job: quantised, prepared, with adapters, with checkpoints."""
    model = base_model(job, where)
    if job.method not in ("full", "lora"):
        quantize(model, job.method)
    if job.method != "full":
        peft = needs("peft")
        if job.prepared:
            model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
        names = {n.rpartition(".")[2] for n, _ in model.named_modules()}
        adapters = peft.LoraConfig(
            r=RANK,
            lora_alpha=2 * RANK,
            lora_dropout=job.dropout,
            target_modules=[n for n in PROJECTIONS if n in names],
            task_type="CAUSAL_LM",
        )
        model = peft.get_peft_model(model, adapters, autocast_adapter_dtype=bool(job.autocast))
        model = model.base_model.model
    if job.checkpoint:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if job.method != "full":
            model.enable_input_require_grads()
    model.config.use_cache = False
    return model


@dataclass
class InBackward:
    """An optimizer for each parameter, which steps once its gradient is there (torchtune's)."""

    optimizers: list[Any]
    handles: list[Any] = field(default_factory=list)

    def step(self) -> None:
        """Nothing is left to do."""

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Nothing is left to do."""


def optimizer_of(job: Job, model: nn.Module) -> Any:
    """The optimizer as the Trainer makes it; `in_backward_8bit` as torchtune does."""
    trained = [p for p in model.parameters() if p.requires_grad]
    if job.optimizer == "adamw_fused":
        return torch.optim.AdamW(trained, lr=1e-5, fused=True)
    if job.optimizer == "adamw_foreach":
        return torch.optim.AdamW(trained, lr=1e-5, foreach=True)
    if job.optimizer == "adafactor":
        adafactor = needs("transformers").Adafactor
        return adafactor(trained, lr=1e-5, scale_parameter=False, relative_step=False)
    bnb = needs("bitsandbytes")
    if job.optimizer == "in_backward_8bit":
        made = InBackward([])
        for p in trained:
            one = bnb.optim.AdamW8bit([p], lr=1e-5)
            made.optimizers.append(one)

            def hook(p: Tensor, one: Any = one) -> None:
                one.step()
                one.zero_grad(set_to_none=True)

            made.handles.append(p.register_post_accumulate_grad_hook(hook))
        return made
    manager = bnb.optim.GlobalOptimManager.get_instance()
    for module in model.modules():  # as the Trainer does
        if isinstance(module, nn.Embedding) and module.weight.requires_grad:
            manager.register_module_override(module, "weight", {"optim_bits": 32})
    kinds = {"adamw_8bit": "AdamW8bit", "paged_adamw_8bit": "PagedAdamW8bit"}
    return getattr(bnb.optim, kinds[job.optimizer])(trained, lr=1e-5)


def release(optimizer: Any) -> None:
    """Lets go of what hooks and bitsandbytes' manager would keep of a model."""
    for handle in getattr(optimizer, "handles", ()):
        handle.remove()
    if "bitsandbytes" in sys.modules:
        sys.modules["bitsandbytes"].optim.GlobalOptimManager.get_instance().initialize()


@contextlib.contextmanager
def precision(job: Job, where: torch.device) -> Iterator[None]:
    """Autocast to bf16 around the forward pass, where the job has it."""
    with torch.autocast(where.type, dtype=torch.bfloat16, enabled=bool(job.autocast)):
        yield
