#!/usr/bin/env python3
"""Parameters of each configuration of published.json as transformers builds it, without weights.

Needs transformers 5.24.0 and torch. Prints those that differ from the file by 0.1 % or more.
"""
import importlib
import json
import pathlib

import torch
import transformers

# Types of other repositories' code that compute as one that transformers has, and what that calls their keys.
SAME = {
    "kimi_k2": ("deepseek_v3", {}),
    "minicpm": ("llama", {}),
    "qwen2_5_omni_text": ("qwen2", {}),
    "qwen3_omni_moe_text": ("qwen3_moe", {}),
    "bailing_moe": ("sarvam_moe", {"num_experts": "n_routed_experts", "num_shared_experts": "n_shared_experts"}),
    "bailing_moe_v2": ("sarvam_moe", {"num_experts": "n_routed_experts", "num_shared_experts": "n_shared_experts"}),
}

# Parts of a model that are not its layers of text, and a pooler, which pre-training does not use.
BESIDE = ("image_encoder", "visual_projection", "vqmodel", "pooler")

# Models of text that only their wrappers build.
TEXTS = {
    "deepseek_ocr2_text": ("deepseek_ocr2", "DeepseekOcr2TextModel"),
    "emu3_text_model": ("emu3", "Emu3TextModel"),
    "granite4_vision_text": ("granite4_vision", "Granite4VisionTextModel"),
    "mistral_large4_text": ("mistral_large4", "MistralLarge4TextModel"),
    "paddleocr_vl_text": ("paddleocr_vl", "PaddleOCRTextModel"),
    "step3p5": ("step3p7", "Step3p7TextModel"),
}

# Encoders of images that are a part of a wrapper, and what in them is not counted.
TOWERS = {
    "vit": ("ViTForImageClassification", ()),
    "siglip_vision_model": ("SiglipVisionModel", ()),
    "clip_vision_model": ("CLIPVisionModel", ()),
    "deit": ("DeiTForImageClassification", ()),
    "dinov2": ("Dinov2Model", ("layer_scale", "mask_token")),
    "dinov2_with_registers": ("Dinov2WithRegistersModel", ("layer_scale", "mask_token")),
    "siglip2_vision_model": ("Siglip2VisionModel", ()),
    "pixtral": ("PixtralVisionModel", ()),
    "llama4_vision_model": ("Llama4VisionModel", ("vision_adapter",)),
    "qwen2_vl_vision": ("Qwen2VisionTransformerPretrainedModel", ("merger",)),
    "qwen2_5_vl_vision": ("Qwen2_5_VisionTransformerPretrainedModel", ("merger",)),
    "qwen3_vl_vision": ("Qwen3VLVisionModel", ("merger", "deepstack")),
}


def count_tower(config):
    kind = config["model_type"]
    name, left_out = TOWERS[kind]
    folder = kind.removesuffix("_model").removesuffix("_vision")
    module = importlib.import_module(f"transformers.models.{folder}.modeling_{folder}")
    model = getattr(module, name)
    keys = {key: value for key, value in config.items() if key != "model_type"}
    if kind in ("vit", "deit"):
        keys["num_labels"] = 1000
    with torch.device("meta"):
        built = model(model.config_class(**keys))
    return sum(p.numel() for key, p in built.named_parameters() if not any(part in key for part in left_out))


def text_model(config):
    if config.model_type not in TEXTS:
        return transformers.AutoModel.from_config(config)
    folder, name = TEXTS[config.model_type]
    return getattr(importlib.import_module(f"transformers.models.{folder}.modeling_{folder}"), name)(config)


def count(config):
    config = dict(config)
    if config["model_type"] in TOWERS:
        return count_tower(config)
    if config.get("text_config", {}).get("model_type") in SAME:
        config = dict(config["text_config"])
    config["model_type"], names = SAME.get(config["model_type"], (config["model_type"], {}))
    config = {names.get(key, key): value for key, value in config.items()}
    if "layers_block_type" in config and config["model_type"] == "bamba":
        config.pop("layers_block_type")  # derived from attn_layer_indices
    parsed = transformers.AutoConfig.for_model(**config)
    parsed = getattr(parsed, "text_config", parsed)
    with torch.device("meta"):
        output, model = 0, None
        heads = [transformers.AutoModelForCausalLM, transformers.AutoModelForMaskedLM]
        if parsed.is_encoder_decoder:
            heads = [transformers.AutoModelForSeq2SeqLM, transformers.AutoModelForSpeechSeq2Seq]
        for head in heads:
            try:
                model = model or head.from_config(parsed)
            except ValueError:
                pass
        if parsed.is_encoder_decoder and not config.get("tie_word_embeddings", True):
            output = parsed.vocab_size * parsed.d_model  # T5's class ties all; checkpoints have both tables
        if model is None:  # a text model that only its wrapper puts an output layer on
            model = text_model(parsed)
            tied = getattr(parsed, "tie_word_embeddings", False)
            output = 0 if tied else parsed.vocab_size * parsed.hidden_size
    trained = {id(p): p for name, p in model.named_parameters()  # a computed position is not
               if p.requires_grad and not any(part in name for part in BESIDE)}
    return output + sum(p.numel() for p in trained.values())


def main():
    rows = json.loads((pathlib.Path(__file__).parent / "published.json").read_text())
    for row in rows:
        try:
            found = count(row["config"])
        except (ValueError, TypeError, AttributeError) as error:
            print(f"{row['name']}: {str(error)[:80]}")
            continue
        if abs(found / row["parameters"] - 1) >= 1e-3:
            print(f"{row['name']}: {found}, the file says {row['parameters']}")


if __name__ == "__main__":
    main()
