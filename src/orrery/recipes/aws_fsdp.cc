// AWS's FSDP example (awsome-distributed-training, HyperPod): models of transformers by their sizes
// under FSDP2, from Slurm scripts and Kubernetes manifests. Source: aws-samples/
// awsome-distributed-training, 3.test_cases/pytorch/FSDP/src (train.py, model_utils).
#include <fmt/format.h>

#include <algorithm>

#include "orrery/base/text.h"
#include "orrery/recipes/configuration.h"
#include "orrery/recipes/dialects.h"
#include "orrery/recipes/launch.h"
#include "orrery/recipes/shell.h"

namespace orrery::recipes {
namespace {

// A number, or what the example takes.
std::int64_t NumberOr(std::string_view argument, std::int64_t fallback, Reading* r) {
  return r->Whole(argument).value_or(fallback);
}

void ReadAwsModel(Reading* r) {
  Draft& draft = r->draft();
  const std::string type = r->Has("--model_type") ? Lower(r->Text("--model_type")) : "gpt_neox";
  const std::int64_t hidden = NumberOr("--hidden_width", 768, r);
  const std::int64_t heads = NumberOr("--num_heads", 12, r);
  const std::int64_t layers = NumberOr("--num_layers", 12, r);
  const std::int64_t width = NumberOr("--intermediate_size", 11008, r);
  const auto keys = r->Whole("--num_key_value_heads");
  const std::int64_t vocab = NumberOr("--vocab_size", 50432, r);
  const bool neox = Contains(type, "gpt_neox");
  const bool llama = Contains(type, "llama") || Contains(type, "mistral") ||
                     Contains(type, "mathstral") || Contains(type, "mixtral");
  if (!neox && !llama) {
    r->Refuse("--model_type",
              fmt::format("'{}' is not read; gpt_neox, llama, mistral and mixtral are",
                          Printable(type, 40)));
  }
  draft.SetText("model.name", type);
  draft.Set("model.layers", layers);
  draft.Set("model.hidden", hidden);
  draft.Set("model.heads", heads);
  draft.Set("model.vocab", vocab);
  draft.SetText("model.position", "rotary");
  draft.Set("model.tied_embeddings", false);
  draft.Set("model.attention_bias", neox);
  draft.Set("model.mlp_bias", neox);
  draft.SetText("model.norm", neox ? "layernorm" : "rmsnorm");
  draft.SetText("model.activation", neox ? "gelu" : "swiglu");
  draft.Set("model.ffn_hidden", neox ? 4 * hidden : width);
  if (neox) draft.Set("model.parallel_block", true);
  if (keys && !neox) draft.Set("model.kv_heads", *keys);
  if (!Contains(type, "mixtral")) return;
  draft.Set("model.experts", std::int64_t{8});
  draft.Set("model.expert_top_k", std::int64_t{2});
  draft.Set("model.expert_ffn_hidden", width);
}

void ReadAwsTraining(Reading* r) {
  Draft& draft = r->draft();
  draft.SetText("framework", "fsdp2");
  draft.SetText("training.sharding", "zero3");
  draft.SetText("training.precision", NumberOr("--bf16", 1, r) > 0 ? "bf16" : "fp32");
  draft.SetText("training.recompute",
                NumberOr("--activation_checkpointing", 1, r) > 0 ? "full" : "none");
  const bool parameters = NumberOr("--cpu_offload", 0, r) > 0;
  const bool activations = NumberOr("--offload_activations", 0, r) > 0;
  if (parameters) draft.SetText("training.offload", "parameters");
  if (activations && parameters) {
    r->Refuse("--offload_activations",
              "activations in host memory beside parameters there are not modelled");
  } else if (activations) {
    draft.SetText("training.offload", "activations");
  }
  draft.SetText("training.optimizer", "adamw");
  draft.Set("framework_options.fused_adam", false);
  draft.SetText("framework_options.torch_layers", "eager");
  draft.Set("framework_options.transformers_modules", true);
  draft.Set("framework_options.drops_logits", true);
  if (r->Has("--grad_clip") && r->Real("--grad_clip", 1) == 0) {
    draft.Set("framework_options.clip_gradients", false);
  }
  const std::string strategy = r->Has("--sharding_strategy") ? r->Text("--sharding_strategy") : "";
  if (strategy == "hybrid") {
    draft.Assume(
        "--sharding_strategy hybrid: its fully_shard is handed no mesh, so that it shards "
        "over all ranks");
  }
  draft.Set("training.seq_len", NumberOr("--max_context_width", 2048, r));
  const std::int64_t micro = NumberOr("--train_batch_size", 2, r);
  draft.Set("training.micro_batch", micro);
  if (const std::int64_t dp = draft.Whole("parallel.dp", 0); dp > 0) {
    draft.Set("training.global_batch", Product({micro, dp}));
  }
}

}  // namespace

const Table& AwsFsdpTable() {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_aws_fsdp.inc"
  };
  static const Table table(kLines);
  return table;
}

bool IsAwsFsdp(std::string_view text, const std::string& path) {
  return !IsYaml(path) && Contains(text, "--hidden_width") && Contains(text, "--max_context_width");
}

Result<Imported> ReadAwsFsdp(const std::vector<File>& files, const Options& options) {
  if (files.size() != 1) {
    return InvalidInput("AWS's FSDP example has its arguments in one file; {} are given",
                        files.size());
  }
  const File& file = files.front();
  const Tables tables = {&AwsFsdpTable()};
  Reading reading(tables, options, file.path);
  ORRERY_ASSIGN_OR_RETURN(const Script script, ReadScript(file.text, file.path, options.variables));
  ORRERY_ASSIGN_OR_RETURN(const CommandLine line, FindTraining(script, tables, file.path));
  AddWords(line.words, tables, &reading);
  for (const std::string& note : script.notes) {
    reading.draft().Assume(fmt::format("{} {}", file.path, note));
  }
  reading.Translate();
  ReadAwsModel(&reading);
  reading.SetSize(line.launch);
  ReadAwsTraining(&reading);
  return reading.Finish("aws-fsdp");
}

}  // namespace orrery::recipes
