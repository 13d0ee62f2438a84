// OLMo's YAML (allenai/OLMo, with which OLMo 1 and 2 were trained): rules that join several keys;
// what one key says alone stands in data/recipes/olmo.csv. Source of defaults and meaning:
// olmo/config.py, olmo/model.py, olmo/checkpoint.py, scripts/train.py.
#include <fmt/format.h>

#include <algorithm>

#include "orrery/base/text.h"
#include "orrery/recipes/configuration.h"
#include "orrery/recipes/dialects.h"
#include "orrery/recipes/reading.h"

namespace orrery::recipes {
namespace {

bool OnOr(std::string_view argument, bool fallback, Reading* r) {
  const bool said = r->Has(argument);
  return r->On(argument) || (!said && fallback);
}

void ReadOlmoShapes(Reading* r) {
  Draft& draft = r->draft();
  const std::int64_t hidden = r->Whole("model.d_model").value_or(768);
  const std::int64_t heads = r->Whole("model.n_heads").value_or(12);
  draft.Set("model.layers", r->Whole("model.n_layers").value_or(12));
  draft.Set("model.hidden", hidden);
  draft.Set("model.heads", heads);
  if (const auto groups = r->Whole("model.n_kv_heads")) {
    draft.Set("model.kv_heads", *groups);
  } else if (r->On("model.multi_query_attention")) {
    draft.Set("model.kv_heads", std::int64_t{1});
  }
  // mlp_hidden_size is what goes into the activation; a gated one takes half of it as its gate.
  const std::string activation = Lower(r->Text("model.activation_type"));
  const std::int64_t width =
      r->Whole("model.mlp_hidden_size")
          .value_or(Product({r->Whole("model.mlp_ratio").value_or(4), hidden}));
  const bool gated = activation == "swiglu";
  draft.Set("model.ffn_hidden", gated ? width / 2 : width);
  draft.SetText("model.activation", gated ? "swiglu" : activation == "relu" ? "relu" : "gelu");
  const auto padded = r->Whole("model.embedding_size");
  draft.Set("model.vocab",
            std::max(r->Whole("model.vocab_size").value_or(50257), padded.value_or(50304)));
  const bool rope = r->On("model.rope"), alibi = r->On("model.alibi");
  draft.SetText("model.position", rope ? "rotary" : alibi ? "none" : "learned");
  if (const auto bound = r->Whole("model.max_sequence_length")) {
    draft.Set("model.max_position", *bound);
  }
  draft.SetText("model.norm", r->Text("model.layer_norm_type") == "rms" ? "rmsnorm" : "layernorm");
  const bool bias = OnOr("model.include_bias", true, r);
  draft.Set("model.attention_bias", bias);
  draft.Set("model.mlp_bias", bias);
  draft.Set("model.tied_embeddings", OnOr("model.weight_tying", true, r));
  if (r->On("model.attention_layer_norm")) {
    draft.Set("model.qk_norm", true);
    draft.Set("model.qk_norm_whole", true);
  }
  if (r->On("model.embedding_layer_norm")) draft.Set("model.embedding_norm", true);
  const double dropout =
      std::max({r->Real("model.attention_dropout", 0.1), r->Real("model.residual_dropout", 0.1),
                r->Real("model.embedding_dropout", 0.1)});
  if (dropout > 0) draft.Set("model.dropout", fmt::format("{}", dropout));
  const bool flash = r->On("model.flash_attention");
  draft.SetText("framework_options.attention", flash ? "flash2" : "sdpa");
  if (flash) draft.Set("framework_options.repeats_kv", false);
}

// activation_checkpointing: whole_layer, or one_in_four of the layers.
void ReadOlmoRecompute(Reading* r) {
  Draft& draft = r->draft();
  std::string strategy = r->Text("activation_checkpointing");
  if (strategy == "false" || strategy == "False") strategy.clear();
  if (strategy == "true" || strategy == "True") strategy = "whole_layer";
  constexpr std::pair<std::string_view, std::int64_t> kEvery[] = {{"whole_layer", 1},
                                                                  {"one_in_two", 2},
                                                                  {"one_in_three", 3},
                                                                  {"one_in_four", 4},
                                                                  {"one_in_eight", 8}};
  const auto found =
      std::ranges::find_if(kEvery, [&](const auto& one) { return one.first == strategy; });
  draft.SetText("training.recompute", strategy.empty() ? "none" : "full");
  if (strategy.empty()) return;
  if (found == std::end(kEvery)) {
    return r->Refuse("activation_checkpointing",
                     fmt::format("'{}' is not modelled; whole_layer and one_in_two, three, four "
                                 "and eight are",
                                 Printable(strategy, 40)));
  }
  if (found->second == 1) return;
  draft.SetText("training.recompute_method", "every");
  draft.Set("training.recompute_layers", found->second);
}

void ReadOlmoSharding(Reading* r) {
  Draft& draft = r->draft();
  const std::string strategy = Lower(r->Text("fsdp.sharding_strategy"));
  const std::string spread = r->Text("distributed_strategy");
  const std::string reduce = Lower(r->Text("fsdp.precision"));
  const auto copies = r->Whole("fsdp.hybrid_sharding_num_model_replicas");
  if (spread == "ddp" || spread == "single") {
    draft.SetText("framework", "ddp");
    draft.SetText("training.sharding", "none");
    return;
  }
  draft.SetText("framework", "fsdp1");
  const bool two = strategy == "shard_grad_op" || strategy == "_hybrid_shard_zero2";
  if (!two && strategy != "full_shard" && strategy != "no_shard" && strategy != "hybrid_shard") {
    r->Refuse("fsdp.sharding_strategy",
              "valid: FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD, _HYBRID_SHARD_ZERO2");
  }
  draft.SetText("training.sharding", strategy == "no_shard" ? "none" : two ? "zero2" : "zero3");
  draft.Set("framework_options.grad_reduce_fp32", reduce == "mixed");
  if (!Contains(strategy, "hybrid")) return;
  const std::int64_t dp = draft.Whole("parallel.dp", 0);
  const std::int64_t group =
      copies && *copies > 0 && dp > 0 ? dp / *copies : r->ClusterGpusPerNode();
  if (group > 1) draft.Set("parallel.shard_group", group);
}

void ReadOlmoTraining(Reading* r) {
  Draft& draft = r->draft();
  const std::string precision = Lower(r->Text("precision"));
  const std::string optimizer = Lower(r->Text("optimizer.name"));
  if (precision != "amp_bf16" && precision != "amp_fp16" && precision != "fp32") {
    r->Refuse("precision", "modelled: amp_bf16, amp_fp16, fp32");
  }
  draft.SetText("training.precision", precision.substr(precision.rfind('_') + 1));
  if (optimizer != "adamw") {
    r->Refuse("optimizer.name",
              fmt::format("'{}' is not modelled; adamw is", Printable(optimizer, 40)));
  }
  draft.SetText("training.optimizer", "adamw");
  draft.Set("framework_options.fused_adam", false);  // torch.optim.AdamW, for each
  draft.Set("framework_options.clip_gradients",
            r->Has("max_grad_norm") || r->Has("max_grad_norm_ratio"));
  const bool compiled = r->Has("compile.mode") || r->Has("compile.fullgraph") ||
                        r->Has("compile.backend") || r->Has("compile.dynamic");
  draft.SetText("framework_options.torch_layers", compiled ? "compiled" : "eager");
  if (r->On("fused_loss")) draft.Set("framework_options.online_cross_entropy", true);
  draft.Set("training.seq_len", r->Whole("model.max_sequence_length").value_or(1024));
  r->SetSize({});
  const std::int64_t dp = draft.Whole("parallel.dp", 0);
  const std::int64_t all = r->Whole("global_train_batch_size").value_or(512);
  const std::int64_t micro = r->Whole("device_train_microbatch_size").value_or(16);
  if (dp < 1) return;
  if (all % dp != 0) {
    return r->Problem(
        fmt::format("{}: global_train_batch_size {} is no multiple of {} GPUs; give "
                    "another --gpus",
                    r->Where("global_train_batch_size"), all, dp));
  }
  draft.Set("training.global_batch", all);
  draft.Set("training.micro_batch", std::min(micro, all / dp));
}

}  // namespace

const Table& OlmoTable() {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_olmo.inc"
  };
  static const Table table(kLines);
  return table;
}

bool IsOlmo(std::string_view text, const std::string& path) {
  return IsYaml(path) && HasKey(text, "global_train_batch_size") && Contains(text, "  d_model:") &&
         Contains(text, "  max_sequence_length:");
}

Result<Imported> ReadOlmo(const std::vector<File>& files, const Options& options) {
  if (files.size() != 1) {
    return InvalidInput("OLMo's configuration is one YAML file; {} are given", files.size());
  }
  ORRERY_ASSIGN_OR_RETURN(formats::Document document, ParseConfiguration(files.front()));
  ResolveExpressions(&document);
  const Tables tables = {&OlmoTable()};
  Reading reading(tables, options, files.front().path);
  AddLeaves(document, document.root, tables, &reading);
  reading.Translate();
  ReadOlmoShapes(&reading);
  ReadOlmoRecompute(&reading);
  ReadOlmoTraining(&reading);
  ReadOlmoSharding(&reading);
  return reading.Finish("olmo");
}

}  // namespace orrery::recipes
