// LLM Foundry's YAML for Composer: rules that join several keys; what one key says alone stands in
// data/recipes/llm_foundry.csv. Source of defaults and meaning: mosaicml/llm-foundry,
// llmfoundry/utils/config_utils.py, models/mpt/configuration_mpt.py; mosaicml/composer,
// composer/utils/parallelism.py.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "orrery/base/text.h"
#include "orrery/recipes/configuration.h"
#include "orrery/recipes/dialects.h"
#include "orrery/recipes/known_models.h"
#include "orrery/recipes/reading.h"

namespace orrery::recipes {
namespace {

using formats::Node;

bool OnUnlessSaid(std::string_view argument, Reading* r) {
  return r->Find(argument) == nullptr || r->On(argument);
}

void ReadExperts(const std::string& type, Reading* r) {
  Draft& draft = r->draft();
  const auto experts = r->Whole("model.ffn_config.moe_num_experts");
  const auto top = r->Whole("model.ffn_config.moe_top_k");
  if (type != "mb_moe" && type != "mb_dmoe" && type != "torch_dmoe") return;
  draft.Set("model.experts", experts.value_or(1));
  draft.Set("model.expert_top_k", top.value_or(1));
  draft.Set("model.expert_ffn_hidden", draft.Whole("model.ffn_hidden", 0));
}

// The shapes of MPT, which LLM Foundry's own models are.
void ReadMpt(Reading* r) {
  Draft& draft = r->draft();
  const std::int64_t hidden = r->Whole("model.d_model").value_or(2048);
  const std::int64_t heads = r->Whole("model.n_heads").value_or(16);
  draft.Set("model.layers", r->Whole("model.n_layers").value_or(24));
  draft.Set("model.hidden", hidden);
  draft.Set("model.heads", heads);
  if (const auto dim = r->Whole("model.head_dim")) draft.Set("model.head_dim", *dim);
  draft.Set("model.vocab", r->Whole("model.vocab_size").value_or(50368));
  const std::string type = r->Text("model.ffn_config.ffn_type");
  const auto width = r->Whole("model.ffn_config.ffn_hidden_size");
  const double ratio = r->Real("model.expansion_ratio", 4);
  const double wide = ratio * static_cast<double>(hidden);
  if (width) {
    draft.Set("model.ffn_hidden", *width);
  } else if (wide >= 1 && wide <= 1e8) {
    draft.Set("model.ffn_hidden", static_cast<std::int64_t>(wide));
  }
  const bool gated =
      type == "mptglu" || type == "mptgeglu" || type.starts_with("mb_") || type == "torch_dmoe";
  if (!gated && type != "mptmlp") {
    r->Refuse("model.ffn_config.ffn_type", "modelled: mptmlp, mptglu, mb_moe, mb_dmoe");
  }
  const std::string function = r->Text("model.ffn_config.ffn_act_fn.name");
  draft.SetText("model.activation", gated ? "swiglu" : function == "relu" ? "relu" : "gelu");
  ReadExperts(type, r);
  const std::string attention = r->Text("model.attn_config.attn_type");
  if (const auto groups = r->Whole("model.attn_config.kv_n_heads")) {
    draft.Set("model.kv_heads", *groups);
  } else if (attention == "multiquery_attention") {
    draft.Set("model.kv_heads", std::int64_t{1});
  }
  const bool alibi = r->On("model.attn_config.alibi"), rope = r->On("model.attn_config.rope");
  const bool learned = OnUnlessSaid("model.learned_pos_emb", r) && !alibi && !rope;
  draft.SetText("model.position", rope ? "rotary" : learned ? "learned" : "none");
  if (const auto bound = r->Whole("model.max_seq_len")) draft.Set("model.max_position", *bound);
  const bool bias = !r->On("model.no_bias");
  draft.Set("model.attention_bias",
            r->Find("model.attention_bias") == nullptr ? bias : r->On("model.attention_bias"));
  draft.Set("model.mlp_bias", bias);
  draft.Set("model.tied_embeddings", OnUnlessSaid("model.tie_word_embeddings", r));
  draft.SetText("model.norm", r->Text("model.norm_type").find("rms") != std::string::npos
                                  ? "rmsnorm"
                                  : "layernorm");
  const bool by_head = r->On("model.attn_config.qk_gn"), whole = r->On("model.attn_config.qk_ln");
  if (by_head || whole) draft.Set("model.qk_norm", true);
  if (whole) draft.Set("model.qk_norm_whole", true);
  const auto window = r->Whole("model.attn_config.sliding_window_size");
  if (window && *window > 0) draft.Set("model.window", *window);
  const double dropout = std::max({r->Real("model.resid_pdrop", 0), r->Real("model.emb_pdrop", 0),
                                   r->Real("model.attn_config.attn_pdrop", 0)});
  if (dropout > 0) draft.Set("model.dropout", fmt::format("{}", dropout));
}

void ReadShapes(const std::string& model_file, Reading* r) {
  const std::string name = r->Text("model.name");
  const std::string hub = r->Text("model.pretrained_model_name_or_path");
  if (name == "mpt_causal_lm" && model_file.empty() && r->options().model.empty()) {
    return ReadMpt(r);
  }
  if (name != "mpt_causal_lm" && name != "hf_causal_lm") {
    r->Refuse("model.name", fmt::format("'{}' is not modelled; mpt_causal_lm and hf_causal_lm are",
                                        Printable(name, 40)));
  }
  ReadModel("hub", model_file, hub, "model.pretrained_model_name_or_path", r);
}

void ReadAttention(Reading* r) {
  Draft& draft = r->draft();
  const std::string mpt = r->Text("model.attn_config.attn_impl");
  const std::string hub = r->Text("model.attn_implementation");
  const bool flash = r->On("model.use_flash_attention_2") || hub == "flash_attention_2";
  const bool own = r->Text("model.name") == "mpt_causal_lm";
  if (!own) {
    draft.Set("framework_options.unpads_attention", false);
    draft.SetText("framework_options.attention", hub == "eager" ? "unfused" : "flash2");
    if (flash) draft.Set("framework_options.repeats_kv", false);
  } else if (mpt == "torch") {
    draft.SetText("framework_options.attention", "unfused");
    draft.Set("framework_options.unpads_attention", false);
  } else if (mpt == "triton") {
    draft.SetText("framework", "composer@2023.10");
  } else if (mpt == "flex") {
    draft.SetText("framework_options.attention", "flash2");
    draft.Set("framework_options.unpads_attention", false);
    draft.Assume("flex attention is priced as flash attention");
  } else if (mpt != "flash") {
    r->Refuse("model.attn_config.attn_impl", "modelled: flash, torch, triton, flex");
  }
  const std::string loss = r->Text("model.loss_fn");
  if (loss == "torch_crossentropy") draft.Set("framework_options.torch_loss", true);
}

void ReadFoundrySharding(bool sharded, Reading* r) {
  Draft& draft = r->draft();
  const std::string strategy = Lower(r->Text("fsdp_config.sharding_strategy"));
  const std::string mixed = Lower(r->Text("fsdp_config.mixed_precision"));
  const std::string reshard = Lower(r->Text("fsdp_config.reshard_after_forward"));
  const bool again = r->On("fsdp_config.activation_checkpointing");
  const bool host = r->On("fsdp_config.activation_cpu_offload");
  const bool parameters = r->On("fsdp_config.cpu_offload");
  const bool limit = OnUnlessSaid("fsdp_config.limit_all_gathers", r);
  const std::int64_t shards = r->Whole("fsdp_config.data_parallel_shard_degree").value_or(-1);
  const std::int64_t copies = r->Whole("fsdp_config.data_parallel_replicate_degree").value_or(-1);
  const bool hybrid = strategy.starts_with("hybrid_shard") || copies > 1;
  const std::string sharding =
      !sharded || strategy == "no_shard" ? "none"
      : strategy == "shard_grad_op" || strategy == "_hybrid_shard_zero2" || reshard == "false"
          ? "zero2"
          : "zero3";
  if (sharded && !hybrid && strategy != "full_shard" && strategy != "no_shard" &&
      strategy != "shard_grad_op") {
    r->Refuse("fsdp_config.sharding_strategy",
              "valid: FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD");
  }
  draft.SetText("training.sharding", sharding);
  if (!sharded) draft.SetText("framework", "ddp");
  if (hybrid) {
    const std::int64_t group = shards > 1 ? shards : r->ClusterGpusPerNode();
    if (group > 1) draft.Set("parallel.shard_group", group);
  }
  draft.SetText("training.recompute", again ? "full" : "none");
  for (const std::string& target : r->Texts("fsdp_config.activation_checkpointing_target")) {
    if (!again || Lower(target) == "mptblock") continue;
    r->Refuse("fsdp_config.activation_checkpointing_target",
              fmt::format("'{}' runs again and not the whole layer; modelled: MPTBlock, or nothing",
                          Printable(target, 60)));
  }
  if (host || parameters) {
    draft.SetText("training.offload", host && parameters ? "all"
                                      : host             ? "activations"
                                                         : "parameters");
  }
  if (sharded) draft.Set("framework_options.grad_reduce_fp32", mixed != "pure");
  if (sharding == "zero3") draft.Set("framework_options.limit_all_gathers", limit);
}

void ReadFoundryBatch(Reading* r) {
  Draft& draft = r->draft();
  Launch launch;
  const auto gpus = r->Whole("n_gpus");
  if (gpus && *gpus > 0) launch.gpus = *gpus;
  r->SetSize(launch);
  const std::int64_t dp = draft.Whole("parallel.dp", 0);
  const auto each = r->Whole("device_train_batch_size");
  const auto all = r->Whole("global_train_batch_size");
  const std::string micro = r->Text("device_train_microbatch_size");
  if (dp < 1) return;
  const std::int64_t batch = all ? *all : each ? *each * dp : 0;
  if (batch < 1) {
    return r->Missing(
        "how many sequences a step takes (global_train_batch_size): give --set "
        "training.global_batch=N");
  }
  draft.Set("training.global_batch", batch);
  if (batch % dp != 0) {
    return r->Problem(
        fmt::format("{}: global_train_batch_size {} is no multiple of {} GPUs; give "
                    "another --gpus",
                    r->Where("global_train_batch_size"), batch, dp));
  }
  if (micro == "auto" || micro.empty()) {
    if (r->IsSet("training.micro_batch")) return;
    return r->Missing(
        "how large a micro-batch is (device_train_microbatch_size auto tries): give "
        "--set training.micro_batch=N");
  }
  const std::int64_t size = r->Whole("device_train_microbatch_size").value_or(1);
  draft.Set("training.micro_batch", std::min(size, batch / dp));
}

void ReadTraining(Reading* r) {
  Draft& draft = r->draft();
  const std::string precision = Lower(r->Text("precision"));
  if (precision == "amp_bf16" || precision == "amp_fp16" || precision == "fp32") {
    draft.SetText("training.precision", precision.substr(precision.rfind('_') + 1));
  } else if (precision == "amp_fp8") {
    draft.SetText("training.precision", "fp8");
  } else {
    r->Refuse("precision", "modelled: amp_bf16, amp_fp16, amp_fp8, fp32");
  }
  const std::string optimizer = Lower(r->Text("optimizer.name"));
  if (optimizer == "decoupled_adamw" || optimizer == "adamw" || optimizer == "adam") {
    draft.SetText("training.optimizer", "adamw");
  } else if (optimizer == "decoupled_lionw") {
    draft.SetText("training.optimizer", "lion");
  } else {
    r->Refuse("optimizer.name",
              fmt::format("'{}' is not modelled; decoupled_adamw and decoupled_lionw are",
                          Printable(optimizer, 40)));
  }
  const auto length = r->Whole("max_seq_len");
  if (length) {
    draft.Set("training.seq_len", *length);
  } else if (!r->IsSet("training.seq_len")) {
    r->Missing("how long sequences are (max_seq_len): give --set training.seq_len=N");
  }
  const bool clips = r->Has("algorithms.gradient_clipping.clipping_type");
  draft.Set("framework_options.clip_gradients", clips);
  const auto rank = r->Whole("model.peft_config.r");
  const std::string kind = Lower(r->Text("model.peft_config.peft_type"));
  const std::vector<std::string> targets = r->Texts("model.peft_config.target_modules");
  if (!rank) return;
  if (!kind.empty() && kind != "lora") r->Refuse("model.peft_config.peft_type", "modelled: LORA");
  draft.Set("training.lora_rank", *rank);
  const bool qkv = targets.size() == 1 && (targets[0] == "Wqkv" || targets[0] == "qkv_proj");
  const bool all = targets.empty() || targets[0] == "all-linear";
  if (!qkv && !all) {
    r->Refuse("model.peft_config.target_modules",
              "adapters are modelled beside Wqkv or all-linear");
  }
  draft.SetText("training.lora_targets", qkv ? "qkv" : "all");
}

}  // namespace

const Table& LlmFoundryTable() {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_llm_foundry.inc"
  };
  static const Table table(kLines);
  return table;
}

bool IsLlmFoundry(std::string_view text, const std::string& path) {
  if (!IsYaml(path)) return false;
  return (text.find("\nglobal_train_batch_size:") != std::string_view::npos ||
          text.find("\ndevice_train_microbatch_size:") != std::string_view::npos) &&
         text.find("max_seq_len:") != std::string_view::npos;
}

Result<Imported> ReadLlmFoundry(const std::vector<File>& files, const Options& options) {
  ORRERY_ASSIGN_OR_RETURN(const Configuration taken, TakeConfiguration(files, "LLM Foundry"));
  const File& file = taken.file;
  ORRERY_ASSIGN_OR_RETURN(formats::Document document, ParseConfiguration(file));
  ResolveExpressions(&document);
  Reading reading({&LlmFoundryTable()}, options, file.path);
  AddLeaves(document, document.root, {&LlmFoundryTable()}, &reading);
  reading.Translate();
  reading.draft().SetText("framework", "composer");
  ReadShapes(taken.model, &reading);
  const Node* fsdp = document.root.Find("fsdp_config");
  ReadFoundrySharding(fsdp != nullptr && fsdp->kind == Node::Kind::kMap, &reading);
  ReadAttention(&reading);
  ReadTraining(&reading);
  ReadFoundryBatch(&reading);
  return reading.Finish("llm-foundry");
}

}  // namespace orrery::recipes
